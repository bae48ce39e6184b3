"""Both forms of the joining of rows give the same messages, or the same refusal."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.batch import BatchElement, split_batch
from fusee.pipeline import row_messages
from fusee.pipeline.byte_columns import MapEntries
from fusee.pipeline.row_messages import join_messages

_WRITTEN = Path(__file__).parents[2] / "src" / "fusee" / "pipeline" / "row_messages.py"


def as_written() -> ModuleType:
    """The interpreted form, whichever runs."""
    spec = importlib.util.spec_from_file_location("row_messages_as_written", _WRITTEN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = as_written()

# The two bytes that divide properties come often enough to meet each refusal.
_VALUE = st.none() | st.text("aB\x01\x02", max_size=3).map(str.encode) | st.binary(max_size=12)
_MAP = st.none() | st.lists(
    st.tuples(st.sampled_from([b"", b"a", b"DELAY", b"TAGS", b"b\x02"]) | st.binary(max_size=6), _VALUE), max_size=3
)
_ROW = st.tuples(
    st.none() | st.binary(max_size=30),
    _VALUE,
    _VALUE,
    _MAP,
    st.integers(-(2**31), 2**31 - 1),
)


def binary(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def map_entries(maps: list[Any], skipped: int, left_out: frozenset[bytes]) -> MapEntries:
    """The entries of these maps; a null map has an entry that must not be seen."""
    entries = [[(b"hidden", b"\x01")] if each is None else each for each in maps]
    bounds = np.cumsum([0, *(len(each) for each in entries)])[skipped:]
    return MapEntries(
        binary([name for each in entries for name, _ in each]),
        binary([value for each in entries for _, value in each]),
        bounds,
        np.array([each is not None for each in maps[skipped:]], dtype=np.bool_),
        left_out,
    )


def outcome(module: Any, *given: Any) -> Any:
    try:
        messages = module.join_messages(*given)
    except MessageError as error:
        return str(error)
    return filled(messages, np.arange(len(messages.offsets) - 1)), messages.offsets.tolist()


def filled(messages: Any, rows: Any) -> bytes:
    """The messages of these rows end to end."""
    rows = np.asarray(rows, np.int64)
    memory = bytearray(int(np.diff(messages.offsets)[rows].sum()))
    messages.fill(memoryview(memory), rows)
    for first in range(len(messages.offsets)):
        if rows.tolist() == list(range(first, first + len(rows))):
            run = bytearray(len(memory))
            messages.fill_run(memoryview(run), first, first + len(rows))
            assert run == memory
    return bytes(memory)


@given(
    st.lists(_ROW, max_size=12),
    st.integers(0, 3),
    st.sampled_from([0, 7, 95, 99_998, 10**12]),
    st.none() | st.binary(max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_both_forms_give_the_same(
    rows: list[Any], skipped: int, first_row: int, key_head: bytes | None, has_map: bool, has_flags: bool
) -> None:
    whole = [(b"?", b"\x01", b"?", None, 0)] * skipped + rows
    flags = np.array([row[4] for row in rows], dtype=np.int32) if has_flags else None
    maps = map_entries([row[3] for row in whole], skipped, frozenset({b"DELAY", b"TAGS"})) if has_map else None
    texts = [
        (b"KEYS", binary([row[1] for row in whole]).slice(skipped)),
        (b"TAGS", binary([row[2] for row in whole]).slice(skipped)),
    ]
    given_columns = (binary([row[0] for row in whole]).slice(skipped), flags, texts, maps, key_head, first_row)
    assert outcome(row_messages, *given_columns) == outcome(PLAIN, *given_columns)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=120))
def test_messages_are_those_of_the_rows(rows: list[tuple[bytes | None, bytes | None]]) -> None:
    kept = [(body, key and key.replace(b"\x01", b"1").replace(b"\x02", b"2")) for body, key in rows]
    columns = binary([body for body, _ in kept]), None, [(b"KEYS", binary([key for _, key in kept]))]
    messages = join_messages(*columns, None, b"ID\x01q/", 5)
    assert split_batch(filled(messages, range(len(rows)))) == [
        BatchElement(0, body or b"", (b"KEYS\x01%b\x02" % key if key else b"") + b"ID\x01q/%d\x02" % (5 + number))
        for number, (body, key) in enumerate(kept)
    ]


def test_properties_have_a_limit_and_the_worst_row_is_named() -> None:
    keys = binary([b"x" * 40_000, b"y" * 50_000, b"z" * 32_761])
    for module in (row_messages, PLAIN):
        with pytest.raises(MessageError, match="row 8 has 50006 bytes"):
            module.join_messages(binary([b"a", b"b", b"c"]), None, [(b"KEYS", keys)], None, None, 7)
        messages = module.join_messages(binary([b"a"]), None, [(b"KEYS", keys.slice(2))], None, None, 7)
        assert len(split_batch(filled(messages, [0]))[0].properties_bytes) == 32_767


@pytest.mark.parametrize("module", [row_messages, PLAIN], ids=["running", "as written"])
def test_rows_are_written_in_any_order_into_memory_of_their_size(module: Any) -> None:
    keys = binary([b"k0", None, b"k2"])
    messages = module.join_messages(binary([b"a", b"bb", b"ccc"]), None, [(b"KEYS", keys)], None, b"ID\x01", 9)
    found = split_batch(filled(messages, [2, 0, 2]))
    assert [(each.body, each.properties_bytes) for each in found] == [
        (b"ccc", b"KEYS\x01k2\x02ID\x0111\x02"),
        (b"a", b"KEYS\x01k0\x02ID\x019\x02"),
        (b"ccc", b"KEYS\x01k2\x02ID\x0111\x02"),
    ]
    assert filled(messages, []) == b""
    size = int(messages.offsets[1])
    for room in (size - 1, size + 1, 0):
        with pytest.raises(ValueError, match=f"{size} bytes of messages, and room for {room}"):
            messages.fill(memoryview(bytearray(room)), np.array([0]))
        with pytest.raises(ValueError, match=f"{size} bytes of messages, and room for {room}"):
            messages.fill_run(memoryview(bytearray(room)), 0, 1)
    assert filled(messages, [1, 2]) == filled(messages, [1]) + filled(messages, [2])
    for first, end in ((-1, 1), (0, 4), (2, 1)):
        with pytest.raises(ValueError, match="a row that the table does not have"):
            messages.fill_run(memoryview(bytearray(size)), first, end)
    with pytest.raises(ValueError, match="read-only"):
        messages.offsets[1] = 0
    for row in (-1, 3):
        with pytest.raises(ValueError, match="a row that the table does not have"):
            messages.fill(memoryview(bytearray(size)), np.array([row]))


def broken(offsets: list[int]) -> pa.Array:
    """A column of two values whose places were right when Arrow looked at them."""
    places = np.zeros(3, dtype=np.int32)
    column = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(places), pa.py_buffer(b"abc")])
    places[:] = offsets
    return column


@pytest.mark.parametrize("module", [row_messages, PLAIN], ids=["running", "as written"])
@pytest.mark.parametrize(
    "column",
    [broken([0, 1, 9]), broken([0, 3, 1]), broken([-1, 1, 2])],
    ids=["behind the end", "backwards", "before the beginning"],
)
def test_columns_that_contradict_themselves_are_refused(module: Any, column: pa.Array) -> None:
    good = binary([b"a", b"b"])
    with pytest.raises(ValueError, match=r"."):
        module.join_messages(column, None, [], None, None, 0)
    with pytest.raises(ValueError, match=r"."):
        module.join_messages(good, None, [(b"KEYS", column)], None, None, 0)
    for names, values in ((column, good), (good, column)):
        entries = MapEntries(names, values, np.array([0, 1, 2]), None, frozenset())
        with pytest.raises(ValueError, match=r"."):
            module.join_messages(good, None, [], entries, None, 0)


@pytest.mark.parametrize("module", [row_messages, PLAIN], ids=["running", "as written"])
def test_columns_that_do_not_go_together_are_refused(module: Any) -> None:
    two, one = binary([b"a", b"b"]), binary([b"a"])
    with pytest.raises(ValueError, match="one length"):
        module.join_messages(two, None, [(b"KEYS", one)], None, None, 0)
    with pytest.raises(ValueError, match="one length"):
        module.join_messages(two, np.zeros(1, np.int32), [], None, None, 0)
    for bounds in ([0, 1], [0, 1, 3], [0, 2, 1], [-1, 0, 1]):
        entries = MapEntries(two, two, np.array(bounds), None, frozenset())
        with pytest.raises(ValueError, match="the map has"):
            module.join_messages(two, None, [], entries, None, 0)
    with pytest.raises(ValueError, match="row -1"):
        module.join_messages(two, None, [], None, None, -1)


def test_the_form_that_runs_is_looked_at() -> None:
    assert PLAIN.__name__ not in sys.modules
    assert PLAIN.join_messages is not join_messages
