"""The key index: which records carry a key, in a row of hash files (Java: IndexService).

Indexed are, for each record but rolled-back ones, `topic#UNIQ_KEY`, `topic#` with each token of KEYS, and `topic#T#`
with its tag, in that order (5.5.0 does so; older releases leave the tag out). Keys are hashed and entered a batch at a
time. A file that is full is followed by a new one, named after the local time; the keys of one record may be spread
over two.

What the index has looked at ends at `covered_offset`: every record before it is in completely, the record at it at
least in part, and dispatch must go on from there or from before. A record that comes again adds only the keys that
are missing. (The reference adds the last record once more each time, so its look-ups can give a record twice.)

A look-up goes from the newest file to the oldest and along the chain of one slot. It finds hashes, not keys: callers
compare the text (`query`). Its length is bounded by `LOOKUP_STEPS_MAX`, and the answer says when that was too little.

Everything here can be made again from the log, so after an unclean stop whatever is doubtful is dropped and entered
again; see `index_file` for what is not doubtful. Files of which nothing is sure go, and all behind them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from fusee.errors import StoreError
from fusee.message.properties import find_tag
from fusee.store.dispatch_batch import DispatchBatch
from fusee.store.index_file import IndexFile, IndexShape, WalkBudget
from fusee.store.key_hash import index_hash, index_hashes, joined_hashes, topic_prefix_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fusee.clock import Clock
    from fusee.store.config import StoreConfig
    from fusee.store.filesystem import File, FileSystem
    from fusee.store.results import Dispatched

LOOKUP_STEPS_MAX: Final = 200_000
"""Entries that one look-up visits at most, about 0.1 s."""

OPEN_FILES_MAX: Final = 32
"""Finished files that are kept open for look-ups."""

_NAME_DIGITS: Final = 17
_TRANSACTION_MASK: Final = 0xC
_ROLLBACK: Final = 0xC


def tag_key(tag: str) -> str:
    """What stands for a tag among the keys."""
    return f"T#{tag}"


class IndexAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a look-up found, and how far the index is."""

    log_offsets: tuple[int, ...]
    """Ascending; records whose key has this hash and whose store time lies in the span, give or take a second."""
    last_update_timestamp_ms: int
    last_update_log_offset: int
    is_complete: bool = True
    """Whether the look-up came to its end: False when it visited too many entries."""


class Candidates:
    """Log offsets that a look-up yields, newest first, none twice."""

    def __init__(self, files: Sequence[IndexFile], key_hash: int, begin_ms: int, end_ms: int) -> None:
        self._files = files
        self._key_hash = key_hash
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._budget = WalkBudget(LOOKUP_STEPS_MAX)

    @property
    def is_complete(self) -> bool:
        """Whether the walk, as far as it went, was not cut short."""
        return not self._budget.is_spent

    def __iter__(self) -> Iterator[int]:
        last = -1
        for file in reversed(self._files):
            if file.overlaps(self._begin_ms, self._end_ms):
                for log_offset in file.walk(self._key_hash, self._begin_ms, self._end_ms, self._budget):
                    if log_offset != last:
                        last = log_offset
                        yield log_offset
            if self._budget.is_spent or file.begin_timestamp_ms < self._begin_ms:
                return


class Index:
    """The files of the index, oldest first."""

    def __init__(self, folder: Path, config: StoreConfig, files: FileSystem, clock: Clock) -> None:
        self.folder = folder
        self._shape = IndexShape(config.max_hash_slot_num, config.max_index_num)
        self.answers_max = config.max_msgs_num_batch
        """Most log offsets, and most records, that one query gives."""
        self._file_system = files
        self._clock = clock
        self._files: list[IndexFile] = []
        self._recent: dict[IndexFile, None] = {}
        # Offset of the last record looked at; -1 before the first.
        self._end_log_offset = -1
        self.safe_timestamp_ms = 0
        """Store time up to which files are finished and on disk: what a checkpoint may promise to the reference."""

    # Opening and ending

    def open(self, *, unclean: bool, safe_timestamp_ms: int = 0) -> None:
        """Take up the files that are there.

        After an unclean stop only what was certainly on disk stays, and is made consistent; `safe_timestamp_ms` is the
        checkpoint's promise for files of the reference. Raises StoreError when a file has another size than the
        settings say.
        """
        names = [
            name for name in self._file_system.names(self.folder) if len(name) == _NAME_DIGITS and name.isdecimal()
        ]
        for place, name in enumerate(names):
            path = self.folder / name
            file = IndexFile.load(path, self._shape, self._file_system) if self._file_system.size(path) else None
            is_whole = file is not None and (
                not ((unclean and not file.is_finished(safe_timestamp_ms)) or not file.is_plausible)
                or file.repair(safe_timestamp_ms)
            )
            if not is_whole:
                # Newest first, each on disk before the next: a crash leaves no gap.
                for later in reversed(names[place:]):
                    self._file_system.remove(self.folder / later)
                    self._file_system.sync_folder(self.folder)
                break
            assert file is not None
            self._files.append(file)
            self._note_use(file)
            if not file.is_full:
                for later in reversed(names[place + 1 :]):
                    self._file_system.remove(self.folder / later)
                    self._file_system.sync_folder(self.folder)
                break
        if self._files:
            self._end_log_offset = self._files[-1].end_log_offset
        self.safe_timestamp_ms = max((file.end_timestamp_ms for file in self._files if file.is_full), default=0)

    def close(self) -> None:
        """Let go of the files. What `collect_dirty` has not given out is as lost as in a crash."""
        for file in self._files:
            file.release()
        self._recent.clear()

    @property
    def covered_offset(self) -> int:
        """Log offset from which dispatch must go on at the latest, for no key to be missed."""
        return max(self._end_log_offset, 0)

    @property
    def files(self) -> Sequence[IndexFile]:
        """Oldest first."""
        return self._files

    # Taking in

    def accept(self, batch: Sequence[Dispatched]) -> None:
        """Enter the keys of these records, in log order; what is in already stays as it is.

        When it raises, for want of space, what was entered is kept, and the same batch may come again.
        """
        end = self._end_log_offset
        if isinstance(batch, DispatchBatch) and int(batch.log_offsets[0]) > end and batch.is_plain:
            self._accept_arrays(batch)
            return
        if not batch or batch[-1].log_offset < end:
            return
        if not self._files:
            self._add_file(batch[0].log_offset, batch[0].store_timestamp_ms)
        keys: list[str] = []
        prefixes: list[int] = []
        log_offsets: list[int] = []
        timestamps_ms: list[int] = []
        for record in batch:
            log_offset = record.log_offset
            tokens = record.keys
            unique_key = record.unique_key
            if unique_key:
                tokens = (unique_key, *tokens)
            tag = find_tag(record.properties)
            if tag is not None:
                tokens = (*tokens, tag_key(tag.decode("utf-8", "replace")))
            if log_offset <= end:
                if log_offset < end:
                    continue
                tokens = tokens[self._entered_keys(end) :]
            if not tokens or record.sys_flag & _TRANSACTION_MASK == _ROLLBACK:
                continue
            keys += tokens
            count = len(tokens)
            if count == 1:
                prefixes.append(topic_prefix_hash(record.topic))
                log_offsets.append(log_offset)
                timestamps_ms.append(record.store_timestamp_ms)
            else:
                prefixes += [topic_prefix_hash(record.topic)] * count
                log_offsets += [log_offset] * count
                timestamps_ms += [record.store_timestamp_ms] * count
        if keys:
            self._enter(
                index_hashes(joined_hashes(prefixes, keys)),
                np.array(log_offsets, dtype=np.int64),
                np.array(timestamps_ms, dtype=np.int64),
            )
        last = batch[-1]
        self._files[-1].cover(last.log_offset, last.store_timestamp_ms)
        self._end_log_offset = last.log_offset

    def _accept_arrays(self, batch: DispatchBatch) -> None:
        if not self._files:
            self._add_file(int(batch.log_offsets[0]), int(batch.store_timestamps_ms[0]))
        hashes, rows = batch.index_keys()
        if len(rows):
            self._enter(hashes, batch.log_offsets[rows], batch.store_timestamps_ms[rows])
        self._files[-1].cover(batch.last_log_offset, batch.last_timestamp_ms)
        self._end_log_offset = batch.last_log_offset

    def _enter(
        self, hashes: NDArray[np.int64], log_offsets: NDArray[np.int64], timestamps_ms: NDArray[np.int64]
    ) -> None:
        start = 0
        while start < len(hashes):
            file = self._files[-1]
            if file.is_full:
                file = self._add_file(int(log_offsets[start]), int(timestamps_ms[start]))
            stop = start + file.room
            file.append(hashes[start:stop], log_offsets[start:stop], timestamps_ms[start:stop])
            self._end_log_offset = file.end_log_offset
            start = stop

    def _entered_keys(self, log_offset: int) -> int:
        """How many keys of the last record are in."""
        entered = 0
        for file in reversed(self._files):
            found = file.count - file.first_at_or_behind(log_offset)
            entered += found
            if found < file.count - 1:
                break
        return entered

    def _add_file(self, log_offset: int, timestamp_ms: int) -> IndexFile:
        self._file_system.make_folder(self.folder)
        now_ms = self._clock.time_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
        if self._files and name <= self._files[-1].path.name:
            # Two in one millisecond, or a clock that was set back: names must be in order.
            name = f"{int(self._files[-1].path.name) + 1:0{_NAME_DIGITS}d}"
        path = self.folder / name
        try:
            file = IndexFile.create(
                path, self._shape, self._file_system, log_offset=log_offset, timestamp_ms=timestamp_ms
            )
        except StoreError:
            # Or each further try would leave another one behind (RocketMQ issue 7539).
            self._file_system.remove(path)
            raise
        self._file_system.sync_folder(self.folder)
        self._files.append(file)
        self._note_use(file)
        return file

    # Looking up

    def candidates(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Candidates:
        """Log offsets of records that may carry this key, newest first, as far as the caller wants to go."""
        for file in self._files:
            if file.overlaps(begin_ms, end_ms):
                self._note_use(file)
        return Candidates(self._files, index_hash(topic, key), begin_ms, end_ms)

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> IndexAnswer:
        """The newest records that may carry this key, at most `max_count` and `max_msgs_num_batch`."""
        candidates = self.candidates(topic, key, begin_ms, end_ms)
        wanted = min(max_count, self.answers_max)
        found: list[int] = []
        if wanted > 0:
            for log_offset in candidates:
                found.append(log_offset)
                if len(found) >= wanted:
                    break
        found.sort()
        return IndexAnswer(
            tuple(found), self.last_update_timestamp_ms, self.last_update_log_offset, candidates.is_complete
        )

    @property
    def last_update_timestamp_ms(self) -> int:
        """Store time of the last record looked at."""
        return self._files[-1].end_timestamp_ms if self._files else 0

    @property
    def last_update_log_offset(self) -> int:
        """Log offset of the last record looked at."""
        return self._files[-1].end_log_offset if self._files else 0

    def _note_use(self, file: IndexFile) -> None:
        self._recent.pop(file, None)
        self._recent[file] = None
        if len(self._recent) > OPEN_FILES_MAX:
            for old in tuple(self._recent):
                # One that is to be synced stays open until it is.
                if old.is_settled and old is not self._files[-1]:
                    old.release()
                    del self._recent[old]
                    if len(self._recent) <= OPEN_FILES_MAX:
                        break

    # Keeping it on disk and in step with the log

    def collect_dirty(self, *, thorough: bool = True) -> list[File]:
        """Files that must be synced for everything entered to survive; all of them before the next call.

        Without `thorough`, slots that changed stay in memory: a crash costs computing them, but a flush writes only
        what is new instead of up to 4 bytes for each slot. A clean stop needs a thorough one.
        """
        dirty: list[File] = []
        for file in self._files:
            if file.is_full and file.is_settled:
                self.safe_timestamp_ms = max(self.safe_timestamp_ms, file.end_timestamp_ms)
            else:
                handle = file.collect(thorough=thorough)
                if handle is not None:
                    dirty.append(handle)
        return dirty

    def truncate(self, log_offset: int) -> None:
        """Forget records at and behind this log offset; durable."""
        if self._end_log_offset < log_offset:
            return
        while self._files and not self._files[-1].truncate(log_offset):
            self._discard(self._files.pop())
        self._end_log_offset = self._files[-1].end_log_offset if self._files else -1

    def drop_before(self, log_offset: int) -> list[Path]:
        """Remove files of which every record lies before this log offset, never the last; which."""
        dropped: list[Path] = []
        while len(self._files) > 1 and self._files[0].end_log_offset < log_offset:
            file = self._files.pop(0)
            self._discard(file)
            dropped.append(file.path)
        return dropped

    def _discard(self, file: IndexFile) -> None:
        self._recent.pop(file, None)
        file.remove()
        # One by one: were two removals to reach the disk in the other order, a crash would leave a gap in the row.
        self._file_system.sync_folder(self.folder)
