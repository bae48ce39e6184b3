"""The fixed fields of records as NumPy types, and the numbers that begin at every byte of a buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


def windows(data: NDArray[np.uint8], dtype: np.dtype[Any] | str) -> NDArray[Any]:
    """The items of this type that begin at every byte of the data, as a view: item i begins at byte i."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(data) - kind.itemsize + 1, 0),), kind, data.data, strides=(1,))
