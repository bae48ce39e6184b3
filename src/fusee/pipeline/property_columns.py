r"""Properties of a batch whose messages all have the same ones, in the same order: what one kind of producer writes.

The property strings of all rows lie end to end in one array of bytes, `name \x01 value \x02 ...` over and over. If the
separators alternate, each row has as many and ends with one, and the names are those of the first row (compared eight
bytes at a time), then every name and value is known from the places of the separators alone, for all rows at once. The
names of the map are those of the first row, repeated; its values are copied in one go, and one property is
every n-th of them.

Whatever is not so (other names in some rows, an empty or a doubled one, bytes that are no UTF-8) is not for here:
`uniform_properties` gives None then, and `store.columns` decodes it as it decodes everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from fusee.store.record_scan import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.message.record_layout import Buffer
    from fusee.store.record_scan import RecordParts

_WORD: Final = 8


class UniformProperties:
    """The properties of each row, all of which have the same names."""

    def __init__(
        self, raw: NDArray[np.uint8], names: list[bytes], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self._names = names
        self._width = len(names)
        self._count = len(starts) // self._width
        self._index_of = {name.decode(): index for index, name in enumerate(names)}
        self._values = _parts_and_gaps(pa.py_buffer(raw), starts, ends, pa.string())
        self._items: Any = None

    def values(self, name: str) -> Any:
        """The values of one property; null in every row when there is no such property."""
        index = self._index_of.get(name)
        if index is None:
            return pa.nulls(self._count, pa.string())
        places = np.arange(index, self._count * self._width, self._width)
        return self.items.take(pa.array(places)) if self._items is not None else self._values.take(pa.array(2 * places))

    @property
    def items(self) -> Any:
        """The values of all properties, row after row."""
        if self._items is None:
            self._items = self._values.take(pa.array(np.arange(0, len(self._values), 2)))
        return self._items

    @property
    def keys(self) -> Any:
        """The names of all properties, row after row."""
        ends = np.cumsum([len(name) for name in self._names], dtype=np.int64)
        row_size = int(ends[-1])
        offsets = np.zeros(self._count * self._width + 1, np.int32)
        offsets[1:] = (np.arange(self._count)[:, None] * row_size + ends).ravel()
        data = b"".join(self._names) * self._count
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string(), self._count * self._width, buffers)

    @property
    def offsets(self) -> Any:
        """Where the properties of each row begin among all."""
        return pa.array(np.arange(0, self._count * self._width + 1, self._width, dtype=np.int32))


def uniform_properties(data: Buffer, parts: RecordParts) -> UniformProperties | None:
    """The properties of these records, if all have the same names in the same order and nothing is unusual."""
    row_count = len(parts.positions)
    first = int(parts.positions[0])
    span = pa.py_buffer(np.frombuffer(data, np.uint8)[first : int(parts.record_end[-1])])
    strings = _parts_and_gaps(span, parts.properties_start - first, parts.record_end - first, pa.binary())
    strings = strings.take(pa.array(np.arange(0, len(strings), 2)))
    _, offset_buffer, bytes_buffer = strings.buffers()
    row_ends = np.frombuffer(offset_buffer, np.int32, row_count + 1)[1:]
    size = int(row_ends[-1])
    if not size:
        return None
    # room behind the end, so that a word can be read at any byte
    raw = np.zeros(size + _WORD, np.uint8)
    raw[:size] = np.frombuffer(bytes_buffer, np.uint8, size)
    separators = np.flatnonzero(raw[:size] <= 2)
    width, rest = divmod(len(separators), 2 * row_count)
    if rest or not width:
        return None
    marks, ends = separators[0::2], separators[1::2]
    if not ((raw[marks] == 1).all() and (raw[ends] == 2).all() and (ends[width - 1 :: width] == row_ends - 1).all()):
        return None
    name_starts = np.zeros(len(ends), np.int64)
    name_starts[1:] = ends[:-1] + 1
    if (marks <= name_starts).any() or (ends <= marks + 1).any():
        return None
    names = _common_names(raw, name_starts.reshape(row_count, width), marks.reshape(row_count, width))
    if names is None or not _is_utf8(raw):
        return None
    return UniformProperties(raw, names, marks + 1, ends)


def _common_names(raw: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[bytes] | None:
    """The names of the first row if every row has them and none twice."""
    sizes = ends[0] - starts[0]
    if (ends - starts != sizes).any():
        return None
    words = windows(raw, "<u8")
    names: list[bytes] = []
    for index, size in enumerate(sizes.tolist()):
        for place in range(0, size, _WORD):
            found = words[starts[:, index] + place]
            if size - place < _WORD:
                found = found & np.uint64((1 << 8 * (size - place)) - 1)
            if (found != found[0]).any():
                return None
        names.append(raw[int(starts[0, index]) : int(ends[0, index])].tobytes())
    return names if len(set(names)) == len(names) else None


def _is_utf8(raw: NDArray[np.uint8]) -> bool:
    # Separators are ASCII, so the whole is UTF-8 just when every part is.
    if raw.max() < 0x80:
        return True
    try:
        raw.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def _parts_and_gaps(data: Any, starts: NDArray[np.int64], ends: NDArray[np.int64], kind: Any) -> Any:
    """An array over the data, not a copy: data[starts[i]:ends[i]] is item 2 * i, and between them are the gaps."""
    borders = np.empty(2 * len(starts), np.int32)
    borders[0::2] = starts
    borders[1::2] = ends
    return pa.Array.from_buffers(kind, 2 * len(starts) - 1, [None, pa.py_buffer(borders), data])
