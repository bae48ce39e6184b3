"""A table of properties says what decoding each string says."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.properties import decode_properties
from fusee.store.property_table import PropertyTable

PIECES = st.sampled_from(
    ["a", "bb", "TAGS", "KEYS", "\x01", "\x02", "\x01v\x02", "é", "漢", " ", "TAGS\x01x\x02", "\x00"]
)
STRINGS = st.lists(st.lists(PIECES, max_size=12).map("".join), min_size=1, max_size=8)
EQUAL = st.tuples(st.lists(PIECES, max_size=8).map("".join), st.integers(1, 5)).map(lambda both: [both[0]] * both[1])


@given(STRINGS | EQUAL)
def test_maps_and_values_are_those_of_each_string(strings: list[str]) -> None:
    table = PropertyTable(pa, pa.array(strings, pa.string()))
    expected = [decode_properties(text.encode()) for text in strings]
    maps = table.maps()
    maps.validate(full=True)
    assert [dict(row) for row in maps.to_pylist()] == expected
    assert [[name for name, _ in row] for row in maps.to_pylist()] == [list(row) for row in expected]
    for name in ("TAGS", "a", "é", "absent", "bb"):
        values = table.values_of(name)
        values.validate(full=True)
        assert values.to_pylist() == [row.get(name) for row in expected]
        assert values.null_count == sum(name not in row for row in expected)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 34, 100, 5000])
def test_row_with_many_names_and_each_of_them_twice(count: int) -> None:
    text = "".join(f"n{number}\x01a{number}\x02" for number in range(count))
    text += "".join(f"n{number}\x01b{number}\x02" for number in range(count))
    table = PropertyTable(pa, pa.array([text, "x\x01y", ""], pa.string()))
    rows = table.maps().to_pylist()
    assert rows == [[(f"n{number}", f"b{number}") for number in range(count)], [("x", "y")], []]
    assert table.values_of(f"n{count - 1}").to_pylist() == [f"b{count - 1}", None, None]
