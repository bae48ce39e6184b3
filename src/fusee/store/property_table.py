"""The properties of many records as Arrow arrays: a map for each row, or the values of one name.

A table is made of an Arrow array of property strings that are text already, laid end to end. Names and values are all
taken in one way: an array is laid over the bytes whose items are, in turn, a part and the gap behind it
(`parts_and_gaps`), and Arrow copies every second item. Where all rows have the same names in the same order, which is
usual, a name is a place in each row; else names are numbered, and those that stand twice in a row folded.

The compiled form is `property_table.pyx`, a twin of this module written for C: it goes from byte to byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fusee.store.arrow_parts import parts_and_gaps, take_parts, text_bytes
from fusee.store.property_entries import last_wins, split_entries

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PropertyTable:
    """The entries of many property strings: of a name that stands twice in a row the last value counts."""

    def __init__(self, arrow: Any, strings: Any) -> None:
        """`arrow` is pyarrow, which is loaded late; `strings` is an array of it without nulls, at least one."""
        self._arrow = arrow
        self._count = len(strings)
        _, offsets, data = strings.buffers()
        entries = split_entries(text_bytes(strings), np.frombuffer(offsets, np.int32, self._count + 1))
        self._row_offsets: NDArray[np.int64] = entries.row_offsets
        self._names = take_parts(
            arrow, parts_and_gaps(arrow, data, entries.name_start, entries.name_end, arrow.string())
        )
        # Values and the gaps between them, in turn: value i is item 2 * i.
        self._values = parts_and_gaps(arrow, data, entries.value_start, entries.value_end, arrow.string())
        # Which value belongs to each name; None when value i belongs to name i.
        self._value_of: NDArray[np.int64] | None = None
        # The number of each entry's name; None when each row has the same `width` names.
        self._codes: NDArray[np.int64] | None = None
        self._code_of: dict[str, int] = {}
        self._width = _width_of_equal_rows(self._names, self._row_offsets)
        if self._width:
            self._code_of = {name: place for place, name in enumerate(self._names.slice(0, self._width).to_pylist())}
            if len(self._code_of) == self._width:
                return
        self._width = 0
        self._number_names()

    def _number_names(self) -> None:
        arrow = self._arrow
        encoded = self._names.dictionary_encode()
        self._code_of = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
        self._codes = np.asarray(encoded.indices).astype(np.int64)
        rows = np.repeat(np.arange(self._count), np.diff(self._row_offsets))
        folded = last_wins(rows, self._codes, len(self._code_of))
        if folded is None:
            return
        firsts, self._value_of = folded
        self._row_offsets = np.searchsorted(rows[firsts], np.arange(self._count + 1))
        self._names = self._names.take(arrow.array(firsts))
        self._codes = self._codes[firsts]

    def maps(self) -> Any:
        """A map for each row."""
        arrow = self._arrow
        chosen = np.arange(len(self._names)) if self._value_of is None else self._value_of
        offsets = arrow.array(self._row_offsets.astype(np.int32))
        return arrow.MapArray.from_arrays(offsets, self._names, self._values.take(arrow.array(2 * chosen)))

    def values_of(self, name: str) -> Any:
        """The values of one property, null where a row has none."""
        arrow = self._arrow
        code = self._code_of.get(name)
        if code is None:
            return arrow.nulls(self._count, arrow.string())
        if self._width:
            places = np.arange(2 * code, 2 * len(self._names), 2 * self._width)
            return self._values.take(arrow.array(places))
        entries = np.flatnonzero(self._codes == code)
        rows = np.searchsorted(self._row_offsets, entries, side="right") - 1
        chosen = np.zeros(self._count, np.int64)
        absent = np.ones(self._count, bool)
        chosen[rows] = 2 * (entries if self._value_of is None else self._value_of[entries])
        absent[rows] = False
        return self._values.take(arrow.array(chosen, mask=absent if absent.any() else None))


def _width_of_equal_rows(names: Any, row_offsets: NDArray[np.int64]) -> int:
    """How many names each row has, if all rows have the same ones in the same order; else 0."""
    width = int(row_offsets[1])
    count = len(row_offsets) - 1
    if not width or len(names) != width * count:
        return 0
    offsets = np.frombuffer(names.buffers()[1], np.int32, len(names) + 1)
    row_size = int(offsets[width])
    if (offsets[width:] - offsets[:-width] != row_size).any() or (row_offsets[1:] - row_offsets[:-1] != width).any():
        return 0
    data = text_bytes(names).tobytes()
    return width if data == data[:row_size] * count else 0
