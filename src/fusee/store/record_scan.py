"""Records as arrays: where they begin, where their parts lie, and their fixed fields, found without a loop per record.

Theory of operation
-------------------
`fusee.message.record` gives the layout. Three steps, each over all records at once:

1. `find_records`: where records begin. Every record only says where the next one is, so this is the one step that goes
   from record to record; it reads nothing but TOTALSIZE. Where sizes repeat, it looks at a whole run of them: if a
   record of size s is followed by s again at every s-th byte, then these are the records, with no doubt left.
   Whoever has positions from a consume queue skips this step.
2. `locate_parts`: the sizes inside the records, in the order in which each becomes readable. All are compared with
   TOTALSIZE before anything behind them is read, with the very rules of `record_bounds`; on the first contradiction
   the records are walked again, one by one, to name the first bad one and to say what is wrong with it.
3. `RecordParts`: fields gathered from windows that begin at every byte (`windows`), so that the big-endian number at
   any position is one index away.

Nothing here knows of Arrow, files or messages.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  the module's own class has a lower-case name
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from fusee.errors import RecordError
from fusee.message.record import read_frame
from fusee.message.record_layout import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    TOPIC_SIZE_MAX_V1,
    record_bounds,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.message.record_layout import Buffer

# The part of the head that lies in the same place whatever the hosts are.
HEAD: Final = np.dtype(
    [
        ("store_size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
# The part of the head between the hosts and the body.
TAIL: Final = np.dtype([("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_size", ">i4")])

_TOTAL_SIZE: Final = Struct(">i").unpack_from
_STEPS_FIRST: Final = 32
_STEPS_MAX: Final = 4096
_RUN_WORTH: Final = 64  # shorter runs are walked as fast as they are compared


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


def windows(data: NDArray[np.uint8], dtype: np.dtype[Any] | str) -> NDArray[Any]:
    """The items of this type that begin at every byte of the data, as a view: item i begins at byte i."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(data) - kind.itemsize + 1, 0),), kind, data.data, strides=(1,))


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
    found, position = _walk(data, position, stop)
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


def _walk(data: Buffer, position: int, stop: int) -> tuple[NDArray[np.int64], int]:
    """Positions from here on by their total sizes, and the end of the last one, which may lie beyond the data."""
    chunks: list[NDArray[np.int64]] = []
    steps = _STEPS_FIRST
    total_size = _TOTAL_SIZE
    while position < stop:
        walked: list[int] = []
        append = walked.append
        size = 0
        try:
            for _ in range(steps):
                size = total_size(data, position)[0]
                if size < BLANK_SIZE_MIN:
                    break
                append(position)
                position += size
                if position >= stop:
                    break
        except StructError:
            size = 0  # fewer bytes are left than a size takes
        chunks.append(np.array(walked, np.int64))
        if size < BLANK_SIZE_MIN:
            break
        if position >= stop:
            break
        steps = min(steps * 2, _STEPS_MAX)
        if len(walked) > 2 and walked[-1] - walked[-2] == size == walked[-2] - walked[-3]:
            run = _run_length(data, position, stop, size)
            if run:
                chunks.append(position + size * np.arange(run, dtype=np.int64))
                position += size * run
            if run >= _RUN_WORTH:
                steps = _STEPS_FIRST
    return (chunks[0] if len(chunks) == 1 else np.concatenate([np.empty(0, np.int64), *chunks])), position


def _run_length(data: Buffer, position: int, stop: int, size: int) -> int:
    """How many records of exactly this size follow each other from here, starting before `stop`."""
    count = min((min(stop, len(data) - 3) - position + size - 1) // size, _STEPS_MAX)
    if count <= 0:
        return 0
    sizes: NDArray[Any] = np.ndarray((count,), ">i4", memoryview(data), offset=position, strides=(size,))
    same = sizes == size
    return count if same.all() else int(same.argmin())


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
    end = len(view)
    if positions.min() < 0 or positions.max() > end - RECORD_SIZE_MIN:
        raise _first_bad(data, positions)
    head = windows(view, f"V{HEAD.itemsize}")[positions].view(HEAD)
    magic = head["magic"]
    is_long = magic == MAGIC_V2
    total = head["store_size"].astype(np.int64)
    record_end = positions + total
    if not ((magic == MAGIC_V1) | is_long).all() or record_end[-1] > end or (positions[1:] < record_end[:-1]).any():
        raise _first_bad(data, positions)
    families = head["sys_flag"].astype(np.int64)
    store_timestamp_start = positions + (56 + 12 * (families >> 4 & 1))
    body_start = store_timestamp_start + (32 + 12 * (families >> 5 & 1))
    if (body_start + 3 > record_end).any():  # and with it any total size that is too small or negative
        raise _first_bad(data, positions)
    tail = windows(view, f"V{TAIL.itemsize}")[body_start - TAIL.itemsize].view(TAIL)
    body_size = tail["body_size"].astype(np.int64)
    body_end = body_start + body_size
    topic_start = body_end + 1 + is_long
    if body_size.min() < 0 or (topic_start + 2 > record_end).any():
        raise _first_bad(data, positions)
    topic_size = view[body_end].astype(np.int64)
    any_long = bool(is_long.any())
    if any_long:
        topic_size = np.where(is_long, topic_size << 8 | view[body_end + 1], topic_size)
    topic_end = topic_start + topic_size
    properties_start = topic_end + 2
    too_long = topic_size > TOPIC_SIZE_MAX_V1
    if any_long:
        too_long = np.where(is_long, topic_size > 32767, too_long)
    if too_long.any() or (properties_start > record_end).any():
        raise _first_bad(data, positions)
    # signed, as the layout has it: a size over 32767 reads negative and cannot add up
    properties_size = windows(view, ">i2")[topic_end]
    if (properties_start + properties_size != record_end).any():
        raise _first_bad(data, positions)
    return RecordParts(
        positions,
        head,
        tail,
        store_timestamp_start,
        body_start,
        body_end,
        topic_start,
        topic_end,
        properties_start,
        record_end,
    )


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
