"""Entries of an index file, many at once: each is put in front of the chain of its slot.

A slot holds the number of the newest entry of its chain, 0 when there is none; an entry holds the number of the one
before it (`index_file` gives the bytes). Entering changes the slots; `leave` takes that back, when the entries could
not be written.

The compiled form is `index_entries.pyx`, a twin of this module written for C: it goes from entry to entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ENTRY_TYPE: Final = np.dtype([("hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_SECONDS_MAX: Final = 2**31 - 1


def enter(
    slots: NDArray[np.int32],
    hashes: NDArray[np.int64],
    log_offsets: NDArray[np.int64],
    timestamps_ms: NDArray[np.int64],
    begin_timestamp_ms: int,
    first_number: int,
) -> tuple[bytes, NDArray[np.int64], NDArray[np.int32], int]:
    """The entries of these keys as they are stored; the slot of each, what it held before it, how many were empty.

    Entries are numbered from `first_number` on. Hashes are not negative.
    """
    size = len(hashes)
    if not size == len(log_offsets) == len(timestamps_ms):
        raise ValueError("one place and one time are needed for each hash")
    if size and hashes.min() < 0:
        raise ValueError("a hash is negative")
    numbers = np.arange(first_number, first_number + size, dtype=np.int32)
    places = hashes % len(slots)
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    sorted_numbers = numbers[order]
    # Of entries that fall on one slot, each follows the one before it; the first follows what the slot held.
    sorted_previous = slots[sorted_places]
    repeats = np.flatnonzero(sorted_places[1:] == sorted_places[:-1])
    new_slots = int(np.count_nonzero(sorted_previous == 0))
    if len(repeats):
        new_slots -= int(np.count_nonzero(sorted_previous[repeats + 1] == 0))
        sorted_previous[repeats + 1] = sorted_numbers[repeats]
    previous = np.empty(size, dtype=np.int32)
    previous[order] = sorted_previous
    entries: NDArray[Any] = np.empty(size, dtype=_ENTRY_TYPE)
    entries["hash"] = hashes
    entries["log_offset"] = log_offsets
    entries["seconds"] = np.clip((timestamps_ms - begin_timestamp_ms) // 1000, 0, _SECONDS_MAX)
    entries["previous"] = previous
    slots[places] = numbers  # of equal places the last one stays
    return entries.tobytes(), places, previous, new_slots


def leave(slots: NDArray[np.int32], places: NDArray[np.int64], previous: NDArray[np.int32]) -> None:
    """Give the slots what they held before."""
    slots[places[::-1]] = previous[::-1]  # of equal places the first one stays
