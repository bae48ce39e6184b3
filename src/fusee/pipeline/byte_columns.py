"""Arrow's columns of bytes as what they are made of: places, and bytes between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class MapEntries:
    """The entries of a column of maps, as binary columns, and from where to where those of each row go.

    Rows that are not `valid` have none. Entries whose names are `left_out` do not count.
    """

    names: pa.Array
    values: pa.Array
    bounds: NDArray[np.int64]
    valid: NDArray[np.bool_] | None
    left_out: frozenset[bytes]


def offsets_of(array: pa.Array) -> NDArray[np.int64]:
    """Where each value begins in the bytes of the array, and where the last ends."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int32, count=len(array) + 1, offset=4 * array.offset).astype(np.int64)


def binary_of(offsets: NDArray[np.int64], data: pa.Buffer) -> pa.Array:
    """The column of the values that lie between these places."""
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), data])
