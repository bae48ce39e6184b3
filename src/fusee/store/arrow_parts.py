"""Parts of varying length as Arrow arrays, copied by Arrow and not one by one.

`arrow` is pyarrow, which is optional and loaded late, by whoever calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def parts_and_gaps(arrow: Any, data: Any, starts: NDArray[np.int64], ends: NDArray[np.int64], kind: Any) -> Any:
    """An array over the data, not a copy: data[starts[i]:ends[i]] is item 2 * i, and between them are the gaps."""
    count = len(starts)
    if not count:
        return arrow.array([], kind)
    borders = np.empty(2 * count, np.int32)
    borders[0::2] = starts
    borders[1::2] = ends
    return arrow.Array.from_buffers(kind, 2 * count - 1, [None, arrow.py_buffer(borders), data])


def take_parts(arrow: Any, parts: Any) -> Any:
    """The parts alone, copied."""
    return parts.take(arrow.array(np.arange(0, len(parts), 2)))


def text_bytes(strings: Any) -> NDArray[np.uint8]:
    """The bytes of an array of strings that begins at the start of its buffers."""
    _, offsets, data = strings.buffers()
    if data is None or not len(strings):
        return np.empty(0, np.uint8)
    size = int(np.frombuffer(offsets, np.int32)[len(strings)])
    return np.frombuffer(data, np.uint8, size)
