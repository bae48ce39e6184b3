"""When what is written is on disk: flush policy and bookkeeping, without a thread of its own.

A flush is a job in three steps: `begin` (on the store's thread) notes which files to sync and how far they then
reach, `FlushJob.run` (on any thread; fdatasync releases the interpreter) syncs them, `finish` (on the store's thread)
moves the flushed offset. One job runs at a time, so whatever was written while it ran is covered by the next one: that
is group commit, many waiting senders for one sync.

A sync that fails is final. Linux marks the pages clean and forgets the error, so trying again would report success
for lost data. The store then refuses every put and every flush with StoreFailedError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from fusee.errors import StoreError, StoreFailedError
from fusee.store.config import FlushDiskType, StoreConfig
from fusee.store.layout import PAGE_SIZE

if TYPE_CHECKING:
    from fusee.store.commit_log import CommitLog
    from fusee.store.filesystem import File


class FlushJob:
    """Files to sync, and what is then true."""

    __slots__ = ("error", "files", "target_offset", "timestamp_ms")

    def __init__(self, files: list[File], target_offset: int, timestamp_ms: int) -> None:
        self.files = files
        self.target_offset = target_offset
        self.timestamp_ms = timestamp_ms
        self.error: StoreError | None = None

    def cut(self, log_offset: int, timestamp_ms: int) -> None:
        """What lies behind this is gone, synced or not."""
        self.target_offset = min(self.target_offset, log_offset)
        self.timestamp_ms = min(self.timestamp_ms, timestamp_ms)

    def run(self) -> None:
        """Sync. Keeps the error for `finish` instead of raising it on a thread that cannot tell anybody."""
        try:
            for file in self.files:
                file.sync()
        except StoreError as error:
            self.error = error


class Durability:
    """How far the commit log is on disk, and when to flush it."""

    def __init__(self, log: CommitLog, config: StoreConfig) -> None:
        self._log = log
        self.config = config
        self._running: FlushJob | None = None
        self._looked_at = 0.0
        self._thorough_at = 0.0
        self._commit_looked_at = 0.0
        self._committed_at = 0.0
        self.flushed_offset = 0
        self.flushed_timestamp_ms = 0
        self.syncs = 0
        self.failure: StoreFailedError | None = None

    def start_at(self, log_offset: int, timestamp_ms: int) -> None:
        """Everything before this is on disk already."""
        self.flushed_offset = log_offset
        self.flushed_timestamp_ms = timestamp_ms

    def check(self) -> None:
        """Raise StoreFailedError after a failed sync."""
        if self.failure is not None:
            raise self.failure

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def unflushed_bytes(self) -> int:
        return max(self._log.written_offset - self.flushed_offset, 0)

    def is_due(self, now: float) -> bool:
        """Whether the policy wants a flush now (monotonic seconds)."""
        unflushed = self.unflushed_bytes
        if unflushed == 0 or self._running is not None:
            return False
        config = self.config
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return True
        if now - self._looked_at < config.flush_interval_commit_log / 1000:
            return False
        self._looked_at = now
        thorough = now - self._thorough_at >= config.flush_commit_log_thorough_interval / 1000
        if thorough:
            self._thorough_at = now
        return thorough or unflushed >= config.flush_commit_log_least_pages * PAGE_SIZE

    def is_commit_due(self, now: float) -> bool:
        """Whether what is gathered should be written now (monotonic seconds).

        At once, unless the transient pool is on: then by its interval, for enough pages, or when it has waited long.
        """
        gathered = self._log.gathered_bytes
        config = self.config
        if gathered == 0 or not config.transient_store_pool_enable:
            return gathered > 0
        if now - self._commit_looked_at < config.commit_interval_commit_log / 1000:
            return False
        self._commit_looked_at = now
        thorough = now - self._committed_at >= config.commit_commit_log_thorough_interval / 1000
        if thorough or gathered >= config.commit_commit_log_least_pages * PAGE_SIZE:
            self._committed_at = now
            return True
        return False

    def begin(self, timestamp_ms: int) -> FlushJob | None:
        """The next flush, of everything written; None when there is nothing to do or one is running.

        `timestamp_ms` is the store time of the last record written.
        """
        self.check()
        if self._running is not None or self.unflushed_bytes == 0:
            return None
        target = self._log.written_offset
        size = self._log.segment_size
        files = [
            file
            for base_offset, file in self._log.segments()
            if base_offset < target and base_offset + size > self.flushed_offset
        ]
        self._running = FlushJob(files, target, timestamp_ms)
        return self._running

    def finish(self, job: FlushJob) -> None:
        """Take over the result of a flush. Raises StoreFailedError when it failed."""
        self._running = None
        if job.error is not None:
            self.fail(job.error)
        self.syncs += len(job.files)
        self.flushed_offset = max(self.flushed_offset, job.target_offset)
        self.flushed_timestamp_ms = max(self.flushed_timestamp_ms, job.timestamp_ms)

    def fail(self, error: StoreError) -> NoReturn:
        """Stop for good: a file that belongs to the store could not be synced."""
        self.failure = StoreFailedError(
            f"the disk did not take what was written: {error}. Messages since log offset {self.flushed_offset} may be "
            "lost; nothing more is accepted. Check the disk, then restart the broker: it recovers what is there"
        )
        raise self.failure from error

    def cut(self, log_offset: int, timestamp_ms: int) -> None:
        """The log was cut here, behind a record of this time; a flush that is running covers no more than that."""
        self.flushed_offset = min(self.flushed_offset, log_offset)
        self.flushed_timestamp_ms = min(self.flushed_timestamp_ms, timestamp_ms)
        if self._running is not None:
            self._running.cut(log_offset, timestamp_ms)
