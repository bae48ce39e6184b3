r"""The entries of many property strings at once: where each name and value lies, found by its separators.

`fusee.message.properties` gives the form, `name \x01 value \x02 ...`, and what a reader must put up with. Here the
strings of a batch lie end to end in one array of bytes, and the result is four arrays of positions in it.

An entry ends at a 0x02, or with the string where the last 0x02 was left out, as 4.x clients do. Where there are as many
0x01 as ends, each with something before it and between it and its end, every 0x01 is the border of its entry. Else
(entries without 0x01, empty names or values, a 0x01 inside a value) the first 0x01 of each entry is searched for, still
for all entries at once.

An entry whose name was in the same string before is left in: `last_wins` folds those, knowing names as numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


_COUNTED_PER_ENTRY: Final = 8  # counters worth having to avoid a sort


class PropertyEntries(NamedTuple):
    """Where the names and values of all entries lie; entries of row r are those from row_offsets[r] on."""

    row_offsets: NDArray[np.int64]
    name_start: NDArray[np.int64]
    name_end: NDArray[np.int64]
    value_start: NDArray[np.int64]
    value_end: NDArray[np.int64]


def split_entries(raw: NDArray[np.uint8], offsets: NDArray[np.int32]) -> PropertyEntries:
    """The entries of the strings raw[offsets[r]:offsets[r + 1]], in order; what is no entry is left out."""
    ends = np.flatnonzero(raw == 2)
    marks = np.flatnonzero(raw == 1)
    row_ends = offsets[1:]
    row_ends = row_ends[row_ends > offsets[:-1]]
    is_open = raw[row_ends - 1] != 2
    starts = np.zeros(len(ends), np.int64)
    if is_open.any():
        # An open end lies on the first byte of the next string, which may be an end itself: open ends go first.
        open_ends = row_ends[is_open].astype(np.int64)
        together = np.concatenate((open_ends, ends))
        order = np.argsort(together, kind="stable")
        ends = together[order]
        starts = np.zeros(len(ends), np.int64)
        starts[1:] = (ends + (order >= len(open_ends)))[:-1]
    else:
        starts[1:] = ends[:-1] + 1
    if len(ends) == len(marks) and (marks > starts).all() and (ends > marks + 1).all():
        return PropertyEntries(np.searchsorted(starts, offsets), starts, marks, marks + 1, ends)
    first_marks = np.append(marks, offsets[-1])[np.searchsorted(marks, starts)]
    kept = (first_marks > starts) & (first_marks + 1 < ends)
    starts = starts[kept]
    marks = first_marks[kept]
    return PropertyEntries(np.searchsorted(starts, offsets), starts, marks, marks + 1, ends[kept])


def last_wins(
    rows: NDArray[np.int64], names: NDArray[np.int64], name_count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Which entries stay when a name stands more than once in a row, or None when none does.

    `rows` and `names` give the row and the number of the name, below `name_count`, of each entry. Of a name the first
    entry keeps its place and the last one gives the value: the indices of both are returned, one pair per name and
    row. A dict filled in order does the same.
    """
    pairs = rows * name_count + names
    if (
        len(rows)
        and (int(rows[-1]) + 1) * name_count <= _COUNTED_PER_ENTRY * len(rows)
        and np.bincount(pairs).max() < 2
    ):
        return None
    order = np.argsort(pairs, kind="stable")
    ordered = pairs[order]
    is_first = np.ones(len(pairs), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    if is_first.all():
        return None
    is_last = np.append(is_first[1:], True)
    firsts = order[is_first]
    lasts = order[is_last]
    in_place = np.argsort(firsts)
    return firsts[in_place], lasts[in_place]
