r"""Columns of bytes joined row by row to the messages of a batch, end to end in one piece of memory.

A message of a batch is `total size 4 | 0 4 | 0 4 | flag 4 | body size 4 | body | properties size 2 | properties`
(`fusee.message.batch`), its properties are text `name \x01 value \x02`, so the two bytes cannot stand in a name or
value. Here each of these is a column of bytes, made by arithmetic on whole arrays; one join of the columns gives every
message.

The compiled form is `row_messages.pyx`, a twin of this module written for C: it measures all rows first, and copies
those that are asked for straight to where they are wanted. All columns are Arrow arrays of type binary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fusee.message.properties import PROPERTIES_SIZE_MAX
from fusee.pipeline.byte_columns import binary_of, offsets_of
from fusee.pipeline.row_faults import refuse_properties, refuse_property, refuse_size, refuse_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fusee.pipeline.byte_columns import MapEntries

_HEAD_SIZE: Final = 20
_ELEMENT_EXTRA: Final = 22
_INT32_MAX: Final = 2**31 - 1
_ROWS_END: Final = 10**17
_EMPTY: Final = pa.scalar(b"", pa.binary())


class Messages:
    """The messages of a table. `offsets` has where each begins when all lie end to end, and where the last ends."""

    def __init__(self, joined: pa.Array) -> None:
        self._joined = joined
        self.offsets = offsets_of(joined)
        self.offsets.flags.writeable = False

    def fill_run(self, into: memoryview, first: int, end: int) -> None:
        """Write these messages end to end; they fill the memory exactly. Raises ValueError otherwise."""
        if not 0 <= first <= end <= len(self._joined):
            raise ValueError("a row that the table does not have")
        self._copy(into, self._joined.slice(first, end - first))

    def fill(self, into: memoryview, rows: NDArray[np.int64]) -> None:
        """The same in any order."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self._joined):
            raise ValueError("a row that the table does not have")
        self._copy(into, self._joined.take(pa.array(rows, pa.int64())))

    @staticmethod
    def _copy(into: memoryview, messages: pa.Array) -> None:
        places = offsets_of(messages)
        data = memoryview(messages.buffers()[2] or b"").cast("B")[int(places[0]) : int(places[-1])]
        if len(into) != len(data):
            raise ValueError(f"{len(data)} bytes of messages, and room for {len(into)}")
        into[:] = data


def join_messages(
    body: pa.Array,
    flags: NDArray[np.int32] | None,
    texts: Sequence[tuple[bytes, pa.Array]],
    entries: MapEntries | None,
    key_head: bytes | None,
    first_row: int,
) -> Messages:
    r"""The messages of these rows.

    `texts` are columns that become a property of that name, where they have a value. With `key_head` each message gets
    that text, the number of its row counted from `first_row`, and \x02. Raises MessageError for a row that no message
    can have, and ValueError for columns that contradict themselves or each other.
    """
    count = len(body)
    of_map = () if entries is None else (entries.names, entries.values)
    for column in (body, *(column for _, column in texts), *of_map):
        column.validate(full=True)
    if not 0 <= first_row < _ROWS_END:
        raise ValueError(f"row {first_row} is none")
    if any(len(column) != count for _, column in texts) or (flags is not None and len(flags) != count):
        raise ValueError("the columns are not of one length")
    if entries is not None and len(entries.bounds) != count + 1:
        raise ValueError("the map has another number of rows than the body")
    spans = None if entries is None else _map_entries(entries)
    parts = [_entry(name, column, first_row) for name, column in texts]
    if spans is not None:
        parts.append(spans)
    if key_head is not None:
        rows = np.arange(first_row, first_row + count, dtype=np.int64)
        numbers = pa.array(rows).cast(pa.string()).cast(pa.binary())
        parts.append(_join(pa.scalar(key_head), numbers, pa.scalar(b"\x02")))
    properties = _join(*parts) if parts else pa.array([b""], pa.binary()).take(pa.array(np.zeros(count, np.int64)))
    body_sizes = np.diff(offsets_of(body))
    if body.null_count:
        body_sizes[np.asarray(body.is_null())] = 0
    property_sizes = np.diff(offsets_of(properties))
    sizes = body_sizes + property_sizes + _ELEMENT_EXTRA
    if count and int(property_sizes.max()) > PROPERTIES_SIZE_MAX:
        row = int(property_sizes.argmax())
        refuse_properties(first_row + row, int(property_sizes[row]))
    if count and int(sizes.max()) > _INT32_MAX:
        row = int(sizes.argmax())
        refuse_size(first_row + row, int(sizes[row]))
    head = np.zeros((count, 5), dtype=">i4")
    head[:, 0] = sizes
    head[:, 3] = 0 if flags is None else flags
    head[:, 4] = body_sizes
    return Messages(_join(_fixed(head, _HEAD_SIZE), body, _fixed(property_sizes.astype(">i2"), 2), properties))


def _entry(name: bytes, column: pa.Array, first_row: int) -> pa.Array:
    r"""`name \x01 value \x02` where there is a value, else nothing."""
    found = pc.fill_null(pc.or_(pc.match_substring(column, b"\x01"), pc.match_substring(column, b"\x02")), False)
    if pc.any(found).as_py():
        row = pc.index(found, True).as_py()
        refuse_text(first_row + row, name, column[row].as_py())
    joined = pc.binary_join_element_wise(pa.scalar(name + b"\x01"), column, pa.scalar(b"\x02"), b"")
    there = pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
    return pc.if_else(there, joined, _EMPTY)


def _map_entries(entries: MapEntries) -> pa.Array:
    """All entries of each map, one after the other."""
    names, values, bounds = entries.names, entries.values, entries.bounds
    if len(names) != len(values) or bounds[0] < 0 or bounds[-1] > len(names) or bool((np.diff(bounds) < 0).any()):
        raise ValueError("the map has entries that are not there")
    keep = pc.and_(
        pc.invert(pc.is_in(names, pa.array(sorted(entries.left_out), pa.binary()))),
        pc.fill_null(pc.greater(pc.binary_length(values), 0), False),
    )
    keep = pc.and_(keep, pc.fill_null(pc.greater(pc.binary_length(names), 0), False))
    inside = np.zeros(len(names), dtype=np.bool_)
    valid = np.ones(len(bounds) - 1, np.bool_) if entries.valid is None else entries.valid
    inside[int(bounds[0]) : int(bounds[-1])] = np.repeat(valid, np.diff(bounds))
    keep = pc.and_(keep, pa.array(inside))
    for what, texts in (("name", names.filter(keep)), ("value", values.filter(keep))):
        found = pc.or_(pc.match_substring(texts, b"\x01"), pc.match_substring(texts, b"\x02"))
        if pc.any(found).as_py():
            refuse_property(what, texts[pc.index(found, True).as_py()].as_py())
    joined = pc.if_else(keep, _join(names, pa.scalar(b"\x01"), values, pa.scalar(b"\x02")), _EMPTY)
    # The entries of a row lie end to end, so a row is a span of the same bytes.
    spans = offsets_of(joined)[bounds] if len(names) else np.zeros(len(bounds), np.int64)
    return binary_of(spans, joined.buffers()[2] or pa.py_buffer(b""))


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b""), null_handling="replace", null_replacement="")


def _fixed(values: NDArray[Any], size: int) -> pa.Array:
    """Each row of numbers as bytes."""
    data = np.ascontiguousarray(values).tobytes()
    return binary_of(np.arange(0, len(data) + 1, size, dtype=np.int64), pa.py_buffer(data))
