"""Where records begin and where their parts lie, for many records of a buffer at once.

`fusee.message.record` gives the layout and `record_scan` the names; here is the part of it that touches every record.
Where sizes repeat, `walk` looks at a whole run of them: if a record of size s is followed by s again at every s-th
byte, then these are the records, with no doubt left.

The compiled form is `record_places.pyx`, a twin of this module written for C: it goes from record to record.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  the module's own class has a lower-case name
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fusee.message.record_layout import BLANK_SIZE_MIN, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, TOPIC_SIZE_MAX_V1
from fusee.store.record_fields import HEAD, TAIL, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.message.record_layout import Buffer

_TOTAL_SIZE: Final = Struct(">i").unpack_from
_STEPS_FIRST: Final = 32
_STEPS_MAX: Final = 4096
_RUN_WORTH: Final = 64  # shorter runs are walked as fast as they are compared


def walk(data: Buffer, position: int, stop: int) -> tuple[NDArray[np.int64], int]:
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


def fields_of(view: NDArray[np.uint8], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...] | None:
    """What dispatching asks of the records at these positions; None as `places_of`, which says what positions are.

    Sizes, queue ids, queue offsets, system flags, store times; where topics begin and end, and properties.
    """
    places = places_of(view, positions)
    if places is None:
        return None
    head, _, store_timestamp_start, _, _, topic_start, topic_end, properties_start, record_end = places
    names = ("store_size", "queue_id", "queue_offset", "sys_flag")
    return (
        *(head[name].astype(np.int64) for name in names),
        windows(view, ">i8")[store_timestamp_start].astype(np.int64),
        topic_start,
        topic_end,
        properties_start,
        record_end,
    )


def are_equal(view: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> bool:
    """Whether view[starts[i]:ends[i]] is the same for all i; all of them lie in the view."""
    if not len(starts):
        return True
    size = int(ends[0] - starts[0])
    if (ends - starts != size).any():
        return False
    if size == 0:
        return True
    cells: NDArray[Any] = windows(view, f"V{size}")[starts]
    return bool((cells.view(np.uint8).reshape(-1, size) == view[starts[0] : ends[0]]).all())


def places_of(view: NDArray[np.uint8], positions: NDArray[np.int64]) -> tuple[NDArray[Any], ...] | None:
    """What `record_scan.RecordParts` holds behind the positions, in its order; None when anything contradicts itself.

    Positions are at least one and ascend; each must be that of a whole record inside the data which begins where the
    one before it has ended, or later.
    """
    end = len(view)
    if positions.min() < 0 or positions.max() > end - RECORD_SIZE_MIN:
        return None
    head = windows(view, f"V{HEAD.itemsize}")[positions].view(HEAD)
    magic = head["magic"]
    is_long = magic == MAGIC_V2
    total = head["store_size"].astype(np.int64)
    record_end = positions + total
    if not ((magic == MAGIC_V1) | is_long).all() or record_end[-1] > end or (positions[1:] < record_end[:-1]).any():
        return None
    families = head["sys_flag"].astype(np.int64)
    store_timestamp_start = positions + (56 + 12 * (families >> 4 & 1))
    body_start = store_timestamp_start + (32 + 12 * (families >> 5 & 1))
    if (body_start + 3 > record_end).any():  # and with it any total size that is too small or negative
        return None
    tail = windows(view, f"V{TAIL.itemsize}")[body_start - TAIL.itemsize].view(TAIL)
    body_size = tail["body_size"].astype(np.int64)
    body_end = body_start + body_size
    topic_start = body_end + 1 + is_long
    if body_size.min() < 0 or (topic_start + 2 > record_end).any():
        return None
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
        return None
    # signed, as the layout has it: a size over 32767 reads negative and cannot add up
    properties_size = windows(view, ">i2")[topic_end]
    if (properties_start + properties_size != record_end).any():
        return None
    return (
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
