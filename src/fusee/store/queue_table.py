"""All consume queues of a store, by topic and queue id (Java: ConsumeQueueStore).

Queues are found in the folders when the store is opened: <topic>/<queue id>/ below consumequeue/, and below
batchconsumequeue/ for topics whose records are batches. A new one is made by the first record that goes there; it is
of the batch kind when its topic has such queues already, or when that first record is a batch.

As a dispatch sink the table takes records in log order and groups each batch by queue, so that a queue gets one write
for all of its records. Half and rolled-back messages of transactions (`sys_flag`) make no entry.

The number of open files is bounded (`file_pool`), the number of queues is not: one takes about a kilobyte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.errors import StoreCorruptError, StoreError
from fusee.message.topics import LMQ_PREFIX, is_system_topic
from fusee.store.batch_consume_queue import BatchConsumeQueue
from fusee.store.consume_queue import Boundary, ConsumeQueue
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.file_pool import FilePool
from fusee.store.layout import PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from fusee.store.config import StoreConfig
    from fusee.store.consume_queue import StoreTimeOf
    from fusee.store.file_pool import PooledFile
    from fusee.store.filesystem import File, FileSystem
    from fusee.store.layout import StorePaths
    from fusee.store.results import Dispatched

    Queue = ConsumeQueue | BatchConsumeQueue
    Progress = Callable[[int, int], object]

_TRANSACTION_TYPE: Final = 0xC
_COMMIT: Final = 0x8
_PROGRESS_EVERY: Final = 1024


class QueueTable:
    """Finds queues, feeds them, and does to all of them what is asked of the store."""

    def __init__(self, paths: StorePaths, config: StoreConfig, files: FileSystem) -> None:
        self._paths = paths
        self._config = config
        self._files = files
        self._pool = FilePool(files, config.open_files_max)
        self._queues: dict[tuple[str, int], Queue] = {}
        self._batch_topics: set[str] = set()

    # Life

    def open(self) -> None:
        """Find the queues and their ends. Raises StoreError or StoreCorruptError naming the file that is wrong."""
        for is_batch, root in ((False, self._paths.consume_queues), (True, self._paths.batch_consume_queues)):
            for topic in self._files.names(root):
                folder = root / topic
                if not self._files.is_folder(folder):
                    continue
                for name in self._files.names(folder):
                    if not (name.isascii() and name.isdigit() and self._files.is_folder(folder / name)):
                        continue
                    key = (topic, int(name))
                    if key in self._queues:
                        raise StoreError(
                            f"{folder / name}: this queue is in {self._paths.consume_queues} as well; remove the one "
                            "that does not fit the topic's queue.type"
                        )
                    queue = self._make(topic, int(name), is_batch=is_batch)
                    queue.open()
                    self._queues[key] = queue

    def recover(self, *, verify: bool = True, synced_offset: int = 0, progress: Progress | None = None) -> int:
        """How far into the log the queues reach.

        With `verify`, after an unclean stop, the last files of every queue are read, and cut where they are not good;
        durable when this returns. All entries that point before `synced_offset` are known to be on disk: the higher,
        the less is read. `progress(done, total)` counts queues.
        """
        if verify:
            unsynced: list[PooledFile] = []
            for done, queue in enumerate(self._queues.values(), 1):
                unsynced += queue.recover(synced_offset)
                if progress is not None and done % _PROGRESS_EVERY == 0:
                    progress(done, len(self._queues))
            _sync(unsynced)
        return max((queue.max_log_offset for queue in self._queues.values()), default=0)

    def close(self) -> None:
        """Close every file."""
        self._pool.close()

    def _make(self, topic: str, queue_id: int, *, is_batch: bool) -> Queue:
        if is_batch:
            self._batch_topics.add(topic)
            folder = self._paths.batch_consume_queues / topic / str(queue_id)
            size = self._config.mapper_file_size_batch_consume_queue
            return BatchConsumeQueue(topic, queue_id, folder, size, self._pool)
        size = self._config.mapped_file_size_consume_queue
        return ConsumeQueue(topic, queue_id, self._paths.consume_queue(topic, queue_id), size, self._pool)

    # Looking up

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, if a record ever went there."""
        return self._queues.get((topic, queue_id))

    def topics(self) -> list[str]:
        """Topics that have a queue, sorted."""
        return sorted({topic for topic, _ in self._queues})

    def queue_ids(self, topic: str) -> list[int]:
        """Queues of a topic, sorted."""
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The number that the next message of this queue gets, as far as records were dispatched; 0 for a new one."""
        queue = self._queues.get((topic, queue_id))
        return queue.next_offset if queue is not None else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first message of this queue that is there; 0 for a new one."""
        queue = self._queues.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, store_time_of: StoreTimeOf
    ) -> int:
        """The message that a search by time gives (request 29), from min to max offset; 0 for a new queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.offset_by_time(timestamp_ms, boundary, store_time_of) if queue is not None else 0

    # Dispatch

    def accept(self, batch: Sequence[Dispatched]) -> None:
        """Make the entries of these records, in log order; those already there are ignored.

        Raises StoreFullError or StoreError; then some queues have their entries, and the same batch may come again.
        """
        if isinstance(batch, DispatchBatch) and batch.is_plain and self._batch_topics.isdisjoint(batch.topics):
            self._accept_arrays(batch)
        else:
            self._accept_objects(batch)

    def _accept_arrays(self, batch: DispatchBatch) -> None:
        queues = self._queues
        for run in batch.groups():
            queue = queues.get((run.topic, run.queue_id))
            if not (
                run.is_consecutive
                and isinstance(queue, ConsumeQueue)
                and queue.append_packed(run.first_queue_offset, run.entries)
            ):
                self._accept_objects([batch[row] for row in run.rows.tolist()])

    def _accept_objects(self, batch: Sequence[Dispatched]) -> None:
        groups: dict[tuple[str, int], list[Dispatched]] = {}
        get = groups.get
        for record in batch:
            transaction = record.sys_flag & _TRANSACTION_TYPE
            if transaction and transaction != _COMMIT:
                continue
            key = (record.topic, record.queue_id)
            group = get(key)
            if group is None:
                groups[key] = [record]
            else:
                group.append(record)
        queues = self._queues
        for key, group in groups.items():
            queue = queues.get(key)
            if queue is None:
                queue = self._make_for(group[0])
                queue.append(group)
                queues[key] = queue
            else:
                queue.append(group)

    def _make_for(self, record: Dispatched) -> Queue:
        topic, queue_id = record.topic, record.queue_id
        if not topic or topic in (".", "..") or "/" in topic or "\0" in topic or queue_id < 0:
            raise StoreCorruptError(
                f"the record at log offset {record.log_offset} says that it belongs to queue {queue_id} of topic "
                f"{topic!r}, which cannot be"
            )
        return self._make(topic, queue_id, is_batch=topic in self._batch_topics or record.batch_count > 0)

    # What is asked of everything that is derived from the log

    def collect_dirty(self, least_pages: int = 0) -> list[File]:
        """Files with at least this many unsynced pages, to be synced by the caller; they count as clean now."""
        return self._pool.collect_dirty(least_pages * PAGE_SIZE)

    def truncate(self, log_offset: int) -> None:
        """Forget every message at or behind this log offset; durable when this returns."""
        unsynced: list[PooledFile] = []
        for queue in self._queues.values():
            if queue.max_log_offset > log_offset:
                unsynced += queue.cut(log_offset)
        _sync(unsynced)

    def drop_before(self, log_offset: int) -> None:
        """The log begins here now: min offsets rise, files that point only before it go."""
        for queue in self._queues.values():
            queue.drop_before(log_offset)

    # Removing

    def delete_topic(self, topic: str) -> bool:
        """Remove every queue of a topic; whether it had any. Its queues begin at 0 when it comes back."""
        keys = [key for key in self._queues if key[0] == topic]
        for key in keys:
            self._remove(key)
        self._batch_topics.discard(topic)
        return bool(keys)

    def remove_unused(self, topics: Collection[str]) -> list[str]:
        """Remove the queues of every topic that is not one of these, nor the system's own; which topics."""
        unused = [
            topic
            for topic in self.topics()
            if topic not in topics and not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX)
        ]
        for topic in unused:
            self.delete_topic(topic)
        return unused

    def remove_expired(self, log_offset: int, topics: Collection[str] = ()) -> list[tuple[str, int]]:
        """Remove queues whose every message is before this log offset; which.

        None of these topics, whose next messages need their numbers, and none of the system's own.
        """
        expired = [
            key
            for key, queue in self._queues.items()
            if 0 < queue.max_log_offset <= log_offset and key[0] not in topics and not is_system_topic(key[0])
        ]
        for key in expired:
            self._remove(key)
        return expired

    def _remove(self, key: tuple[str, int]) -> None:
        queue = self._queues[key]
        queue.remove()
        del self._queues[key]
        topic = key[0]
        root = self._paths.consume_queues if isinstance(queue, ConsumeQueue) else self._paths.batch_consume_queues
        self._remove_if_empty(root / topic)

    def _remove_if_empty(self, folder: Path) -> None:
        if self._files.exists(folder) and not self._files.names(folder):
            self._files.remove_folder(folder)
            self._files.sync_folder(folder.parent)


def _sync(files: list[PooledFile]) -> None:
    # After all changes and not after each: the first sync commits the file system's journal for the rest.
    for file in files:
        file.sync()
