"""The key index against the log: chains are whole, every key of every record is found, and nothing else is.

Entries stand in log order, over all files. So they are read in step with the log, a chunk of records at a time, and
compared as sets of (log offset, hash). RocketMQ 5.5 also enters tags, as `topic#T#tag`; they may be there or not.

That an entry is there does not mean that it is found: for this its slot must lead to it. Each file's chains are
computed from its entries, in the order they were added, and compared link by link.

What an unclean stop leaves is no damage: header and slots may be older than the entries, the last records may not be in
yet. Recovery makes slots and missing entries anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from fusee.message import properties as names
from fusee.store.key_hash import index_hash
from fusee.store.layout import INDEX_ENTRY_SIZE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from fusee.store.offline.findings import Severity
from fusee.store.offline.index_files import open_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fusee.store.offline.columns import Columns, Topics
    from fusee.store.offline.files import OfflineStore
    from fusee.store.offline.findings import Findings
    from fusee.store.offline.index_files import IndexView
    from fusee.store.offline.log_facts import LogFacts

_HASH_BITS: Final = 31
_SECONDS_MAX: Final = 0x7FFFFFFF
_LAST: Final = (1 << 63) - 1


class _Block(NamedTuple):
    """Entries of one file, in log order."""

    view: IndexView
    numbers: NDArray[np.int64]
    log_offset: NDArray[np.int64]
    hashes: NDArray[np.int64]
    seconds: NDArray[np.int64]

    def cut(self, kept: NDArray[np.bool_] | slice) -> _Block:
        return _Block(self.view, self.numbers[kept], self.log_offset[kept], self.hashes[kept], self.seconds[kept])


class IndexCheck:
    """Checks all index files."""

    def __init__(self, store: OfflineStore, findings: Findings, facts: LogFacts, topics: Topics) -> None:
        self._store = store
        self._findings = findings
        self._facts = facts
        self._topics = topics
        self._views, bad = open_index(store)
        for path, reason in bad:
            findings.error("index-file", store.relative(path), reason)
        for view in self._views:
            if view.shape is None:
                findings.note(
                    "index-shape",
                    store.relative(view.path),
                    "its numbers of slots and entries cannot be told from what is in it; it was not checked",
                )
        self._views = [view for view in self._views if view.shape is not None]
        filled = [view for view in self._views if view.count > 1]
        self._first_log_offset = filled[0].header.begin_log_offset if filled else None
        self._last_log_offset = max((view.last_log_offset() or 0 for view in filled), default=-1)
        self._blocks = self._stream()
        self._waiting: list[_Block] = []
        self._before = 0
        self._behind = 0
        self._behind_first: int | None = None
        self._into_damage = 0
        self._is_read = False
        self.entries = 0
        self.files = len(self._views)

    # In step with the log

    def accept(self, columns: Columns, start: int, end: int) -> None:
        """Compare the entries of these records, which are all there is in [start, end) of the log."""
        if not self._views:
            self._behind += len(columns.key_row)
            return
        taken = self._take(end)
        origin = columns.log_offset[0]
        expected = (columns.log_offset[columns.key_row] - origin) << _HASH_BITS | columns.key_hash
        tags = (columns.log_offset[columns.tag_row] - origin) << _HASH_BITS | columns.tag_hash
        wanted = np.concatenate((expected, tags))
        found: list[NDArray[np.int64]] = []
        for block in taken:
            # Before this chunk nobody waits for them any more.
            early = block.log_offset < start
            if early.any():
                self._tell_unmatched(block.cut(early))
                block = block.cut(~early)  # noqa: PLW2901
            keys = (block.log_offset - origin) << _HASH_BITS | block.hashes
            known = np.isin(keys, wanted)
            if not known.all():
                self._tell_unmatched(block.cut(~known))
            self._check_times(block.cut(known), columns)
            found.append(keys[known])
        missing = ~np.isin(expected, np.concatenate([*found, np.empty(0, np.int64)]))
        if missing.any():
            self._tell_missing(columns, np.flatnonzero(missing))

    def finish(self) -> None:
        """Look at what is left behind the last record."""
        beyond = 0
        if self._views:
            for block in self._take(None):
                behind = block.log_offset >= self._facts.end_offset
                beyond += int(behind.sum())
                self._tell_unmatched(block.cut(~behind))
        folder = self._store.paths.index
        file = self._store.relative(folder)
        if beyond:
            self._facts.tell_beyond(self._findings, "index-beyond-log", folder, "the index", beyond)
        for view in self._views:
            if view.header.end_log_offset >= max(self._facts.end_offset, 1) and not self._facts.is_unclean:
                self._findings.error(
                    "index-header",
                    self._store.relative(view.path),
                    f"the header is not true: it ends at log offset {view.header.end_log_offset}, behind the log",
                    24,
                )
        if not self._views:
            if self._behind:
                self._findings.note(
                    "index-none", file, f"there is no index; {self._behind} keys of records are not found"
                )
            return
        if self._before:
            self._findings.note(
                "index-starts-late",
                file,
                f"{self._before} keys of records before log offset {self._first_log_offset}, where the index begins",
            )
        if self._behind:
            text = f"{self._behind} keys of records from log offset {self._behind_first} on are not in the index"
            if self._facts.is_unclean:
                self._findings.note("index-behind", file, f"{text} yet; recovery enters them", None, self._behind_first)
            else:
                self._findings.error("index-behind", file, text, None, self._behind_first)
        if self._into_damage:
            self._findings.note(
                "index-into-damage",
                file,
                f"{self._into_damage} entries point to records in the damaged places of the log",
            )

    def _take(self, end: int | None) -> list[_Block]:
        """Entries of records before this log offset, each once."""
        while not self._is_read and (end is None or not self._waiting or self._waiting[-1].log_offset[-1] < end):
            block = next(self._blocks, None)
            if block is None:
                self._is_read = True
            elif len(block.log_offset):
                self._waiting.append(block)
        if end is None:
            taken, self._waiting = self._waiting, []
            return taken
        taken = []
        while self._waiting:
            block = self._waiting[0]
            count = int(np.searchsorted(block.log_offset, end))
            if count:
                taken.append(block.cut(slice(0, count)))
            if count < len(block.log_offset):
                self._waiting[0] = block.cut(slice(count, None))
                break
            del self._waiting[0]
        return taken

    def _tell_unmatched(self, block: _Block) -> None:
        """Entries for which no record has such a key."""
        block = block.cut(block.log_offset >= self._facts.min_offset)
        damaged = self._facts.in_damage(block.log_offset)
        self._into_damage += int(damaged.sum())
        block = block.cut(~damaged)
        self._findings.add_each(
            Severity.ERROR,
            "index-entry-astray",
            range(len(block.numbers)),
            lambda index: (
                self._store.relative(block.view.path),
                f"entry {block.numbers[index]}: no record at log offset {block.log_offset[index]} has such a key",
                self._position(block.view, int(block.numbers[index])),
                int(block.log_offset[index]),
            ),
        )

    def _tell_missing(self, columns: Columns, keys: NDArray[np.int64]) -> None:
        log_offsets = columns.log_offset[columns.key_row[keys]]
        # The keys of the records at both ends may have been spread over files that are not there.
        first = self._first_log_offset
        before = np.zeros(len(keys), bool)
        if first is not None:
            before = log_offsets <= first if first > self._facts.min_offset else log_offsets < first
        behind = log_offsets >= self._last_log_offset
        self._before += int(before.sum())
        if behind.any():
            self._behind += int(behind.sum())
            if self._behind_first is None:
                self._behind_first = int(log_offsets[behind][0])

        def missing(key: int) -> tuple[str, str, int, int]:
            row = int(columns.key_row[key])
            log_offset = int(columns.log_offset[row])
            file, position = self._facts.place(log_offset)
            topic = self._topics.names[int(columns.topic[row])]
            text = _key_with_hash(columns.properties_of(row), topic, int(columns.key_hash[key]))
            return file, f"key {text!r} of the record of {topic} is not in the index", position, log_offset

        rest: list[int] = keys[~before & ~behind].tolist()
        self._findings.add_each(Severity.ERROR, "index-key-missing", rest, missing)

    def _check_times(self, block: _Block, columns: Columns) -> None:
        if not len(block.numbers):
            return
        rows = np.searchsorted(columns.log_offset, block.log_offset)
        elapsed_ms = columns.store_timestamp_ms[rows] - block.view.header.begin_timestamp_ms
        expected = np.clip(elapsed_ms // 1000, 0, _SECONDS_MAX)
        # RocketMQ counts the first entry of a file from the end of the file before.
        wrong: list[int] = np.flatnonzero((block.seconds != expected) & (block.numbers != 1)).tolist()
        self._findings.add_each(
            Severity.ERROR,
            "index-entry-time",
            wrong,
            lambda index: (
                self._store.relative(block.view.path),
                f"entry {block.numbers[index]} says second {block.seconds[index]} of the file, it is {expected[index]}",
                self._position(block.view, int(block.numbers[index])),
                int(block.log_offset[index]),
            ),
        )

    # Files on their own

    def _stream(self) -> Iterator[_Block]:
        for view in self._views:
            yield from self._entries_of(view)

    def _entries_of(self, view: IndexView) -> Iterator[_Block]:
        """The entries of a file in log order; its chains are checked on the way."""
        assert view.shape is not None
        self._check_header(view)
        slots = view.shape.slots
        newest = np.zeros(slots, np.int32)
        links_wrong = 0
        last_log_offset = 0
        for first, entries in view.blocks():
            self.entries += len(entries)
            numbers = np.arange(first, first + len(entries), dtype=np.int64)
            hashes = entries["hash"].astype(np.int64)
            links_wrong += self._check_links(view, newest, numbers, hashes, entries["previous"])
            block = _Block(
                view, numbers, entries["log_offset"].astype(np.int64), hashes, entries["seconds"].astype(np.int64)
            )
            kept = self._check_order(block, last_log_offset)
            if len(kept.log_offset):
                last_log_offset = int(kept.log_offset[-1])
            yield kept
        self._check_slots(view, newest, links_wrong)

    def _check_header(self, view: IndexView) -> None:
        assert view.shape is not None
        header = view.header
        file = self._store.relative(view.path)
        problems: list[tuple[str, int]] = []
        if header.next_number > view.shape.entries or header.next_number < 0:
            problems.append((f"it counts {header.next_number} entries where {view.shape.entries} fit", 36))
        if not 0 <= header.slots_used <= min(max(header.next_number - 1, 0), view.shape.slots):
            problems.append((f"it counts {header.slots_used} slots in use", 32))
        if header.begin_log_offset > header.end_log_offset or header.begin_log_offset < 0:
            problems.append((f"it goes from log offset {header.begin_log_offset} to {header.end_log_offset}", 16))
        if header.begin_timestamp_ms < 0 or (
            header.end_timestamp_ms < header.begin_timestamp_ms and header.next_number > 1
        ):
            problems.append((f"it goes from time {header.begin_timestamp_ms} to {header.end_timestamp_ms}", 0))
        last = view.last_log_offset()
        if last is not None and header.end_log_offset < last:
            problems.append((f"it ends at log offset {header.end_log_offset}, its last entry is of {last}", 24))
        for text, position in problems:
            if self._facts.is_unclean:
                self._findings.note(
                    "index-header", file, f"the header is not true: {text}; recovery mends it", position
                )
            else:
                self._findings.error("index-header", file, f"the header is not true: {text}", position)
        if view.mark() is False:
            self._findings.error(
                "index-mark", file, "the mark in entry 0 does not match its checksum", view.shape.entries_position
            )

    def _check_links(
        self,
        view: IndexView,
        newest: NDArray[np.int32],
        numbers: NDArray[np.int64],
        hashes: NDArray[np.int64],
        previous: NDArray[Any],
    ) -> int:
        """Does each entry lead to the one before it in its slot? How many do not."""
        assert view.shape is not None
        places = (hashes & _SECONDS_MAX) % view.shape.slots
        order = np.argsort(places, kind="stable")
        sorted_places = places[order]
        sorted_numbers = numbers[order]
        expected = newest[sorted_places].astype(np.int64)
        repeats = np.flatnonzero(sorted_places[1:] == sorted_places[:-1]) + 1
        expected[repeats] = sorted_numbers[repeats - 1]
        wrong = np.flatnonzero((expected != previous[order]) | (hashes[order] < 0))
        newest[places] = numbers  # of equal places the last one stays
        if not self._facts.is_unclean:
            self._findings.add_each(
                Severity.ERROR,
                "index-chain",
                wrong.tolist(),
                lambda index: (
                    self._store.relative(view.path),
                    f"entry {sorted_numbers[index]} leads to {previous[order[index]]}, its slot says {expected[index]}",
                    self._position(view, int(sorted_numbers[index])),
                    None,
                ),
            )
        return len(wrong)

    def _check_order(self, block: _Block, last_log_offset: int) -> _Block:
        """The entries that stand in log order; the others are told."""
        log_offset = block.log_offset
        before = np.concatenate(([last_log_offset], log_offset[:-1]))
        after = np.concatenate((log_offset[1:], [_LAST]))
        outlier = ((log_offset < before) | (log_offset > after)) & (before <= after)
        kept = ~outlier
        # Whatever is still out of order is not one stray number but a damaged stretch.
        rising = np.maximum.accumulate(np.where(kept, log_offset, 0))
        kept &= (log_offset >= rising) & (log_offset >= last_log_offset)
        if kept.all():
            return block
        self._findings.add_each(
            Severity.ERROR,
            "index-entry-order",
            np.flatnonzero(~kept).tolist(),
            lambda index: (
                self._store.relative(block.view.path),
                f"entry {block.numbers[index]} is of log offset {log_offset[index]}, out of order with those around it",
                self._position(block.view, int(block.numbers[index])),
                int(log_offset[index]),
            ),
        )
        return block.cut(kept)

    def _check_slots(self, view: IndexView, newest: NDArray[np.int32], links_wrong: int) -> None:
        stored = view.slots()
        different = np.flatnonzero(stored != newest[: len(stored)])
        used = int(np.count_nonzero(newest))
        file = self._store.relative(view.path)
        if self._facts.is_unclean:
            if len(different) or links_wrong:
                self._findings.note(
                    "index-slots-old",
                    file,
                    f"{len(different)} slots and {links_wrong} links are not what the entries say; recovery mends them",
                )
            return
        self._findings.add_each(
            Severity.ERROR,
            "index-slot",
            different.tolist(),
            lambda place: (
                file,
                f"slot {place} leads to entry {stored[place]}, the newest is {newest[place]}: keys are not found",
                INDEX_HEADER_SIZE + place * INDEX_SLOT_SIZE,
                None,
            ),
        )
        if view.header.slots_used != used:
            self._findings.error(
                "index-header", file, f"the header counts {view.header.slots_used} slots in use, there are {used}", 32
            )

    def _position(self, view: IndexView, number: int) -> int:
        assert view.shape is not None
        return view.shape.entries_position + number * INDEX_ENTRY_SIZE


def _key_with_hash(properties: dict[str, str], topic: str, wanted: int) -> str:
    keys = [properties.get(names.UNIQ_KEY, ""), *properties.get(names.KEYS, "").split(" ")]
    return next((key for key in keys if key and index_hash(topic, key) == wanted), "?")
