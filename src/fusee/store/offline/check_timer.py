"""Timer wheel and timer log (Java: TimerWheel and TimerLog): do slots lead to units, and units to records?

The timer log is a row of 52-byte units, one for each message that waits, linked backwards by slot; a file ends with a
blank of 16 bytes. The wheel has a 32-byte slot for each unit of time, which knows the last unit of its chain. A slot
keeps what it held in its last turn, so those whose units are gone are old and not wrong.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fusee.message.topics import TIMER_TOPIC
from fusee.store.offline.check_queues import ENTRY
from fusee.store.offline.files import TIMER_LOG, TIMER_WHEEL
from fusee.store.offline.findings import Severity
from fusee.store.offline.rows import check_row, entry_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.store.offline.files import OfflineStore, SegmentRow
    from fusee.store.offline.findings import Findings
    from fusee.store.offline.log_facts import LogFacts

TIMER_UNIT: Final = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_time_ms", ">i8"),
        ("delay_ms", ">i4"),
        ("log_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
TIMER_SLOT: Final = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")])
_TIMER_BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
_TIMER_BLANK: Final = Struct(">iqi")
_TIMER_MAGIC_MAX: Final = 7
_TIMER_ENTRIES_MAX: Final = 4_000_000


def check_timer(store: OfflineStore, findings: Findings, facts: LogFacts) -> None:
    """Check both; the log must have been walked."""
    row = store.row(TIMER_LOG)
    check_row(store, findings, row, "timer", row.segment_size)
    queue = store.queue(TIMER_TOPIC, 0)
    places = _timer_places(queue)
    end = row.min_offset
    starts: list[NDArray[np.int64]] = []
    for segment in row.segments:
        for position, units in entry_blocks(row, segment, TIMER_UNIT):
            sizes = units["size"]
            whole = int(np.argmax(sizes != TIMER_UNIT.itemsize)) if (sizes != TIMER_UNIT.itemsize).any() else len(units)
            origin = segment.base_offset + position
            _check_units(store, findings, facts, row, units[:whole], origin, places)
            starts.append(origin + TIMER_UNIT.itemsize * np.arange(whole))
            end = origin + whole * TIMER_UNIT.itemsize
            if whole < len(units):
                blank = row.read(end, _TIMER_BLANK.size)
                size, _, magic = _TIMER_BLANK.unpack(blank) if len(blank) == _TIMER_BLANK.size else (0, 0, 0)
                if (size, magic) != (0, 0) and magic != _TIMER_BLANK_MAGIC:
                    text = f"no unit of the timer log: size {size}, magic {magic:#x}"
                    severity = Severity.NOTE if facts.is_unclean else Severity.ERROR
                    file = store.relative(segment.path)
                    findings.tell(severity, "timer-unit", file, text, end - segment.base_offset)
                break
    known = np.concatenate([*starts, np.empty(0, np.int64)])
    _check_wheel(store, findings, facts, row, end, known)


def _timer_places(queue: SegmentRow) -> NDArray[np.int64] | None:
    """Log offsets of the records of the timer topic; None when they are too many to keep."""
    found: list[NDArray[np.int64]] = []
    count = 0
    for segment in queue.segments:
        for _, entries in entry_blocks(queue, segment, ENTRY):
            found.append(entries["log_offset"][entries["size"] > 0].astype(np.int64))
            count += len(found[-1])
            if count > _TIMER_ENTRIES_MAX:
                return None
    return np.concatenate([*found, np.empty(0, np.int64)])


def _check_units(
    store: OfflineStore,
    findings: Findings,
    facts: LogFacts,
    row: SegmentRow,
    units: NDArray[Any],
    origin: int,
    places: NDArray[np.int64] | None,
) -> None:
    starts = origin + TIMER_UNIT.itemsize * np.arange(len(units))
    log_offset = units["log_offset"].astype(np.int64)
    bad = (units["magic"] < 0) | (units["magic"] > _TIMER_MAGIC_MAX) | (units["previous"] >= starts)
    astray = np.zeros(len(units), bool)
    if places is not None:
        astray = (log_offset >= facts.min_offset) & ~np.isin(log_offset, places) & ~facts.in_damage(log_offset)
    for wrong, what in (
        (bad, "its magic or its link cannot be"),
        (astray, "no record of the timer topic is at log offset"),
    ):

        def made(index: int, what: str = what) -> tuple[str, str, int, int]:
            place = int(starts[index])
            segment = row.locate(place)
            file = store.relative(segment.path if segment is not None else row.folder)
            position = place - (segment.base_offset if segment is not None else 0)
            return file, f"timer unit: {what} {log_offset[index]}", position, int(log_offset[index])

        severity = Severity.NOTE if facts.is_unclean else Severity.ERROR
        findings.add_each(severity, "timer-unit", np.flatnonzero(wrong).tolist(), made)


def _check_wheel(
    store: OfflineStore,
    findings: Findings,
    facts: LogFacts,
    log: SegmentRow,
    log_end: int,
    known: NDArray[np.int64],
) -> None:
    path = store.root / TIMER_WHEEL
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return
    file = store.relative(path)
    slots = size // TIMER_SLOT.itemsize
    if size % TIMER_SLOT.itemsize or not slots:
        findings.error("timer-wheel", file, f"its {size} bytes are no whole number of {TIMER_SLOT.itemsize}-byte slots")
        return
    step = TIMER_SLOT.itemsize
    for start, end in list(store.descriptors.written_ranges(path, 0, size)):
        position = start - start % step
        data = store.descriptors.read(path, position, end - position)
        wheel: NDArray[Any] = np.frombuffer(data, TIMER_SLOT, len(data) // step)
        number = position // step + np.arange(len(wheel))
        used = wheel["time"] > 0
        turned = used & (wheel["time"] % slots != number)
        # A slot keeps its last turn, the units of which may be gone.
        live = used & (wheel["last"] >= log.min_offset)
        astray = live & ((wheel["last"] < wheel["first"]) | ~np.isin(wheel["last"].astype(np.int64), known))
        for wrong, what in ((turned, "belongs elsewhere"), (astray, "leads to no unit of the timer log")):

            def made(index: int, what: str = what, wheel: NDArray[Any] = wheel, position: int = position) -> Any:
                slot = wheel[index]
                text = (
                    f"the slot of time {slot['time']} {what}: first {slot['first']}, last {slot['last']}, end {log_end}"
                )
                return file, text, position + index * step, None

            severity = Severity.NOTE if facts.is_unclean else Severity.ERROR
            findings.add_each(severity, "timer-slot", np.flatnonzero(wrong).tolist(), made)
