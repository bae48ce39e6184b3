"""Parts of many records at once: copied end to end, summed, and values found in strings of properties.

A part is a stretch of a buffer, given by where it begins and where it ends. `record_scan` says where the parts of
records lie; here is what touches every byte or every entry of them, and nothing that knows what a record is.

The compiled form is `record_parts.pyx`, a twin of this module written for C: it goes from part to part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fusee.message.record_layout import body_crc
from fusee.store.property_entries import split_entries
from fusee.store.record_fields import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Places = NDArray[np.int64]

SIZE_MAX: Final = (1 << 31) - 2
"""Bytes that one copy may have: more cannot be counted by an int32."""


def copy_parts(view: NDArray[np.uint8], starts: Places, ends: Places) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """view[starts[i]:ends[i]] of each i, end to end: where each begins in the copy, and its end; and the copy.

    Raises ValueError for a part that does not lie in the view, and when all together are larger than SIZE_MAX.
    """
    _check(view, starts, ends)
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    if offsets[-1] > SIZE_MAX:
        raise ValueError(f"parts of {offsets[-1]} bytes are larger than {SIZE_MAX}")
    data = memoryview(view)  # type: ignore[arg-type]
    copied = b"".join([data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])
    return offsets.astype(np.int32), np.frombuffer(copied, np.uint8)


def checksums(view: NDArray[np.uint8], starts: Places, ends: Places) -> NDArray[np.int32]:
    """The checksum of each part, as it is stored with a body. Raises ValueError as `copy_parts` does."""
    _check(view, starts, ends)
    data = memoryview(view)  # type: ignore[arg-type]
    found = [body_crc(data[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(found, np.int32)


def find_values(view: NDArray[np.uint8], starts: Places, ends: Places, name: bytes) -> tuple[Places, Places]:
    """Where the value of this property begins and ends in each string of properties; -1 twice where there is none.

    Of several in one string it is the last. Raises ValueError as `copy_parts` does.
    """
    offsets, raw = copy_parts(view, starts, ends)
    entries = split_entries(raw, offsets)
    value_starts, value_ends = np.full(len(starts), -1, np.int64), np.full(len(starts), -1, np.int64)
    named = np.flatnonzero(entries.name_end - entries.name_start == len(name))
    if len(named) and name:
        cells: NDArray[Any] = windows(raw, f"V{len(name)}")[entries.name_start[named]]
        is_it = (cells.view(np.uint8).reshape(-1, len(name)) == np.frombuffer(name, np.uint8)).all(axis=1)
        named = named[is_it]
        rows = np.searchsorted(entries.row_offsets, named, side="right") - 1
        moved = starts[rows] - offsets[rows]
        # of a row that comes twice the last one stays
        value_starts[rows] = entries.value_start[named] + moved
        value_ends[rows] = entries.value_end[named] + moved
    return value_starts, value_ends


def _check(view: NDArray[np.uint8], starts: Places, ends: Places) -> None:
    if len(starts) != len(ends):
        raise ValueError(f"{len(starts)} parts begin and {len(ends)} end")
    if len(starts) and (starts.min() < 0 or (ends < starts).any() or ends.max() > len(view)):
        raise ValueError(f"a part does not lie in the {len(view)} bytes given")
