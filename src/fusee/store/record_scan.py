"""Records as arrays: where they begin, where their parts lie, and their fixed fields, found without a loop per record.

Theory of operation
-------------------
`fusee.message.record` gives the layout. Three steps, each over all records at once:

1. `find_records`: where records begin. Every record only says where the next one is, so this is the one step that goes
   from record to record (`record_places.walk`); it reads nothing but TOTALSIZE. Whoever has positions from a consume
   queue skips this step.
2. `locate_parts`: the sizes inside the records, in the order in which each becomes readable. All are compared with
   TOTALSIZE before anything behind them is read, with the very rules of `record_bounds`; on the first contradiction
   the records are walked again, one by one, to name the first bad one and to say what is wrong with it.
3. `RecordParts`: fields gathered from windows that begin at every byte (`windows`), so that the big-endian number at
   any position is one index away.

Nothing here knows of Arrow, files or messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fusee.errors import RecordError
from fusee.message.record import read_frame
from fusee.message.record_layout import BLANK_SIZE_MIN, MAGIC_BLANK, MAGIC_POSITION, record_bounds
from fusee.store.record_fields import HEAD, TAIL, windows
from fusee.store.record_places import fields_of, places_of, walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.message.record_layout import Buffer

__all__ = [
    "HEAD",
    "TAIL",
    "RecordFields",
    "RecordParts",
    "check_stop",
    "find_records",
    "locate_fields",
    "locate_parts",
    "out_of_order",
    "windows",
]


class RecordParts(NamedTuple):
    """Where the parts of each record lie, checked, and the fields of its head. One row per record."""

    positions: NDArray[np.int64]
    head: NDArray[Any]
    """Of type HEAD."""
    tail: NDArray[Any]
    """Of type TAIL."""
    store_timestamp_start: NDArray[np.int64]
    body_start: NDArray[np.int64]
    body_end: NDArray[np.int64]
    topic_start: NDArray[np.int64]
    topic_end: NDArray[np.int64]
    properties_start: NDArray[np.int64]
    record_end: NDArray[np.int64]


class RecordFields(NamedTuple):
    """What dispatching asks of records; one row per record."""

    sizes: NDArray[np.int64]
    queue_ids: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    sys_flags: NDArray[np.int64]
    store_timestamps_ms: NDArray[np.int64]
    topic_start: NDArray[np.int64]
    topic_end: NDArray[np.int64]
    properties_start: NDArray[np.int64]
    record_end: NDArray[np.int64]


def find_records(
    data: Buffer, position: int = 0, *, from_log: bool = False, size_max: int | None = None
) -> tuple[NDArray[np.int64], int]:
    """Where the records begin that lie end to end from `position`, and where the first byte behind them is.

    The walk ends at the end of the data, or at the first place where no whole record lies: a caller who expected more
    asks `check_stop` for the reason. It also ends with the first record that reaches `size_max` bytes. Only total
    sizes are looked at; `locate_parts` checks the rest.

    With `from_log` the data are files of a commit log: blanks at the ends of files are passed over, and zero bytes up
    to the end of the data count as an end, because nothing was written there yet.
    """
    end = len(data)
    stop = end if size_max is None else min(end, position + max(size_max, 1))
    found, position = walk(data, position, stop)
    sizes_end = position
    if position > end:
        sizes_end = position = int(found[-1])
        found = found[:-1]
    if from_log:
        view = np.frombuffer(data, np.uint8)
        if len(found):
            found = found[windows(view, ">u4")[found + MAGIC_POSITION] != MAGIC_BLANK]
        if sizes_end < stop and not view[sizes_end : sizes_end + BLANK_SIZE_MIN].any() and not view[sizes_end:].any():
            position = end
    return found, position


def check_stop(data: Buffer, stop: int, *, from_log: bool = False) -> None:
    """Raise the RecordError that says why `find_records` ended at `stop`, unless that is the end of the data."""
    if stop >= len(data):
        return
    if from_log and len(data) - stop >= BLANK_SIZE_MIN and read_frame(data, stop, len(data)) == (0, 0):
        raise RecordError(f"record at {stop}: nothing was written here, but other bytes follow; the log has a hole")
    record_bounds(data, stop, len(data))


def locate_parts(data: Buffer, positions: NDArray[np.int64]) -> RecordParts:
    """The parts of the records at these positions, at least one, in ascending order.

    Raises RecordError, naming the first bad position, unless each is a whole record inside the data and begins where
    the one before it has ended, or later.
    """
    view = np.frombuffer(data, np.uint8)
    places = places_of(view, positions)
    if places is None:
        raise _first_bad(data, positions)
    head, tail, *rest = places
    return RecordParts(positions, head, tail, *rest)


def locate_fields(data: Buffer, positions: NDArray[np.int64]) -> RecordFields:
    """What dispatching asks of the records at these positions. Raises RecordError as `locate_parts`."""
    found = fields_of(np.frombuffer(data, np.uint8), positions)
    if found is None:
        raise _first_bad(data, positions)
    return RecordFields(*found)


def out_of_order(position: int, before_end: int) -> RecordError:
    """The error for a position inside, or in front of, the record that was to come before it."""
    return RecordError(
        f"record at {position}: it begins before the record in front of it has ended at {before_end}; give "
        "positions in ascending order"
    )


def _first_bad(data: Buffer, positions: NDArray[np.int64]) -> RecordError:
    end = len(data)
    before_end = 0
    for position in positions.tolist():
        try:
            *_, record_end = record_bounds(data, position, end)
        except RecordError as error:
            return error
        if position < before_end:
            return out_of_order(position, before_end)
        before_end = record_end
    return RecordError(f"records at {positions[0]}..{positions[-1]}: they changed while they were read")
