"""Opening a store: find where the log ends, cut what is torn, bring everything derived level with it.

The log is walked from a segment that is known to be good and verified record by record: magic, lengths that add up,
its own offset in the record, the checksum of its body. The walk ends at the first place that holds no good record; that
is the end of the log. What lies behind is cleared, consume queues and index forget it, and everything from the start of
the walk is dispatched again, which changes nothing where it was dispatched before.

Where the walk starts: after a clean stop, at the newest segment whose first record the consume queues cover; after an
unclean one (`abort` is there), at the newest segment that begins before the time of the checkpoint, when everything was
on disk. Segments before are not read, so recovery costs what was written lately and not what is stored.

A torn tail is what a crash leaves: nothing good behind the bad place that was promised to be on disk. It is cut and
reported. When a good record behind the bad place had been synced before the crash, or the stop was clean, the damage is
not the crash's: StoreCorruptError names file and position, and nothing is cut unless `repair` is asked for. (The
reference cuts there without a word, and everything behind is lost.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.errors import RecordError, StoreCorruptError
from fusee.message.record import check_record_crc
from fusee.message.record_layout import (
    BODY_CRC_POSITION,
    FRAME,
    LOG_OFFSET_POSITION,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    TIMESTAMP,
    body_crc,
    record_bounds,
    store_timestamp_position,
)
from fusee.store.layout import segment_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.store.commit_log import CommitLog
    from fusee.store.config import StoreConfig

    Progress = Callable[[int, int], object]

_PROGRESS_EVERY: Final = 4096
_SEARCH_STEP: Final = 1024 * 1024
_SECTOR_SIZE: Final = 512
_MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a store found and did."""

    unclean: bool
    walked_from: int
    end_offset: int
    records: int
    cut_bytes: int = 0
    cut_reason: str = ""
    dispatched: int = 0

    def __str__(self) -> str:
        how = "after an unclean stop" if self.unclean else "after a clean stop"
        cut = f"; cut {self.cut_bytes} bytes: {self.cut_reason}" if self.cut_reason else ""
        return (
            f"log ends at {self.end_offset} {how}; {self.records} records verified from {self.walked_from}, "
            f"{self.dispatched} dispatched again{cut}"
        )


class Walk(NamedTuple):
    """Where a walk over the log ended, and why."""

    end_offset: int
    records: int
    last_timestamp_ms: int
    reason: str


class RecordFound(NamedTuple):
    """A good record behind a bad place."""

    log_offset: int
    store_timestamp_ms: int


class LogWalker:
    """Verifies records; the log must not have been truncated yet, so that all of every segment can be seen."""

    def __init__(self, log: CommitLog, config: StoreConfig, synced_timestamp_ms: int | None = None) -> None:
        """`synced_timestamp_ms`: after a crash, the store time before which everything was on disk.

        Records from then on are looked at for what a torn write leaves in their properties, which no checksum covers.
        """
        self._log = log
        self._synced_timestamp_ms = synced_timestamp_ms
        self._config = config
        self._segments = log.segments()

    def timestamp_at(self, base_offset: int) -> int | None:
        """Store time of the record at the start of a segment; None when there is no good record."""
        for base, file in self._segments:
            if base == base_offset:
                try:
                    _, timestamp_ms = self._verify(file.view(), 0, base)
                except RecordError:
                    return None
                return timestamp_ms
        return None

    def start_after_clean_stop(self, covered_offset: int) -> int:
        """The newest segment whose first record the consume queues know."""
        for base, _ in reversed(self._segments):
            if base <= covered_offset and self.timestamp_at(base) is not None:
                return base
        return self._log.min_offset

    def start_after_crash(self, safe_timestamp_ms: int) -> int:
        """The newest segment that begins before everything was on disk."""
        for base, _ in reversed(self._segments):
            timestamp_ms = self.timestamp_at(base)
            if timestamp_ms and timestamp_ms <= safe_timestamp_ms:
                return base
        return self._log.min_offset

    def walk(self, start: int, progress: Progress | None = None) -> Walk:
        """Verify everything from the start of a segment on."""
        records = 0
        timestamp_ms = 0
        offset = start
        total = self._segments[-1][0] + self._log.segment_size - start if self._segments else 0
        for base, file in self._segments:
            if base < start:
                continue
            if base != offset:
                return Walk(offset, records, timestamp_ms, "")
            view = file.view()
            position = 0
            size = len(view)
            while True:
                if size - position < 8:
                    return Walk(base + position, records, timestamp_ms, f"no blank at the end of {file.path.name}")
                length, magic = FRAME.unpack_from(view, position)
                if magic == MAGIC_BLANK and length == size - position:
                    break
                if length == 0 and magic == 0:
                    return Walk(base + position, records, timestamp_ms, "")
                try:
                    position, timestamp_ms = self._verify(view, position, base)
                except RecordError as error:
                    return Walk(base + position, records, timestamp_ms, str(error))
                records += 1
                if progress is not None and records % _PROGRESS_EVERY == 0:
                    progress(base + position - start, total)
            offset = base + size
        return Walk(offset, records, timestamp_ms, "")

    def find_record_behind(self, log_offset: int) -> RecordFound | None:
        """The first good record behind this offset, found by magic and by the offset it carries."""
        for base, file in self._segments:
            if base + self._log.segment_size <= log_offset:
                continue
            view = file.view()
            # A segment is mostly a hole when it is new: reading through it would take seconds.
            for position, end in file.written_ranges(max(log_offset + 1 - base, 0)):
                found = self._find_record_in(view, base, position, end)
                if found is not None:
                    return found
        return None

    def _find_record_in(self, view: memoryview, base: int, position: int, end: int) -> RecordFound | None:
        while position < end:
            piece = bytes(view[position : min(position + _SEARCH_STEP, end) + 8])
            found = min((at for magic in _MAGICS if (at := piece.find(magic)) >= 0), default=-1)
            if found < 0:
                position += _SEARCH_STEP
                continue
            start = position + found - 4
            if start >= 0:
                try:
                    _, timestamp_ms = self._verify(view, start, base)
                    return RecordFound(base + start, timestamp_ms)
                except RecordError:
                    pass
            position += found + 1
        return None

    def extent_behind(self, log_offset: int) -> int:
        """How many bytes behind this offset hold something."""
        for base, file in reversed(self._segments):
            view = file.view()
            for first, last in reversed(file.written_ranges(max(log_offset - base, 0))):
                end = last
                while end > first:
                    start = max(end - _SEARCH_STEP, first)
                    left = bytes(view[start:end]).rstrip(b"\0")
                    if left:
                        return base + start + len(left) - log_offset
                    end = start
        return 0

    def _verify(self, view: memoryview, position: int, base: int) -> tuple[int, int]:
        """(end of the record, its store time). Raises RecordError."""
        if len(view) - position < RECORD_SIZE_MIN:
            raise RecordError(f"record at {position}: only {len(view) - position} bytes are left")
        length, _ = FRAME.unpack_from(view, position)
        body_start, body_end, topic_start, properties_start, end = record_bounds(
            view, position, min(position + max(length, 0), len(view))
        )
        (log_offset,) = TIMESTAMP.unpack_from(view, position + LOG_OFFSET_POSITION)
        if log_offset != base + position:
            raise RecordError(f"record at {base + position}: it says that it belongs at {log_offset}")
        if self._config.check_crc_on_recover:
            stored = int.from_bytes(view[position + BODY_CRC_POSITION : position + BODY_CRC_POSITION + 4], "big")
            if body_start != body_end and body_crc(view[body_start:body_end]) != stored:
                raise RecordError(f"record at {base + position}: the body does not match its checksum")
            if self._config.enabled_append_prop_crc or self._config.force_verify_prop_crc:
                sealed = check_record_crc(view, position, end)
                if not sealed and self._config.force_verify_prop_crc:
                    raise RecordError(f"record at {base + position}: it carries no checksum of the whole")
        flags = view[position + 39]
        (timestamp_ms,) = TIMESTAMP.unpack_from(view, position + store_timestamp_position(flags))
        if (
            self._synced_timestamp_ms is not None
            and timestamp_ms >= self._synced_timestamp_ms
            and (_is_torn(view, properties_start, end) or _is_torn(view, topic_start, properties_start - 2))
            and not check_record_crc(view, position, end)
        ):
            raise RecordError(f"record at {base + position}: a part of its properties was never written")
        return end, timestamp_ms


def _is_torn(view: memoryview, start: int, end: int) -> bool:
    """Whether this text has holes such as a write leaves that reached the disk only in part.

    What did not arrive reads as zeros: whole sectors, or everything from some byte on. A text of properties neither
    begins nor ends with a zero byte, and has no sector full of them.
    """
    text = bytes(view[start:end])
    if not text or b"\0" not in text:
        return False
    if text[0] == 0 or text[-1] == 0:
        return True
    first_border = -start % _SECTOR_SIZE
    return any(text[border] == 0 or text[border - 1] == 0 for border in range(first_border, len(text), _SECTOR_SIZE))


def judge(
    walk: Walk, walker: LogWalker, log: CommitLog, *, unclean: bool, synced_timestamp_ms: int, repair: bool
) -> tuple[int, str]:
    """(bytes to cut, reason) behind the end of a walk. Raises StoreCorruptError when this is no torn tail."""
    if not walk.reason:
        behind = walker.find_record_behind(walk.end_offset) if unclean else None
        if behind is None:
            return 0, ""
    else:
        behind = walker.find_record_behind(walk.end_offset)
    place = (
        f"{log.folder / segment_name(walk.end_offset - walk.end_offset % log.segment_size)} at position "
        f"{walk.end_offset % log.segment_size} (log offset {walk.end_offset})"
    )
    reason = walk.reason or "nothing was written here, though something was behind"
    promised = behind is not None and (not unclean or behind.store_timestamp_ms < synced_timestamp_ms)
    if promised and not repair:
        assert behind is not None
        raise StoreCorruptError(
            f"{place} is damaged: {reason}. Good records follow from log offset {behind.log_offset}, and they had been "
            "synced to disk, so this is no torn tail of a crash. Restore the file from a replica or a backup; or open "
            "with repair, which gives up everything from the damage on"
        )
    return walker.extent_behind(walk.end_offset), f"{place}: {reason}"
