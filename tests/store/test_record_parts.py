"""Parts copied, summed and searched, against slices of the same bytes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.properties import decode_properties
from fusee.store.record_parts import SIZE_MAX, checksums, copy_parts, find_values

PIECES = st.sampled_from(
    [b"a", b"bb", b"TAGS", b"KEYS", b"\x01", b"\x02", b"\x01v\x02", b"\xff", b"TAGS\x01x\x02", b"\x00", b"KEYS\x01k"]
)
STRINGS = st.lists(st.lists(PIECES, max_size=12).map(b"".join), max_size=8)
OPERATIONS: list[Callable[..., Any]] = [copy_parts, checksums, partial(find_values, name=b"TAGS")]


def bytes_and_places(parts: list[bytes], gap: bytes = b"") -> tuple[Any, Any, Any]:
    """The parts in one array, each behind a gap, and where each lies."""
    sizes = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes
    return np.frombuffer(gap + gap.join(parts), np.uint8), starts, starts + sizes


@given(st.lists(st.binary(max_size=40), max_size=12), st.binary(max_size=3))
def test_copies_and_sums_are_those_of_slices(parts: list[bytes], gap: bytes) -> None:
    view, starts, ends = bytes_and_places(parts, gap)
    offsets, copied = copy_parts(view, starts, ends)
    assert offsets.dtype == np.int32
    assert copied.tobytes() == b"".join(parts)
    assert [copied[offsets[row] : offsets[row + 1]].tobytes() for row in range(len(parts))] == parts
    assert checksums(view, starts, ends).tolist() == [zlib.crc32(part) & 0x7FFFFFFF for part in parts]


def test_checksums_are_those_of_zlib_whatever_the_size_and_the_place() -> None:
    data = random.Random(7).randbytes(5000)
    sizes = [*range(300), 1023, 1024, 1025, 4096]
    parts = [data[start : start + size] for size in sizes for start in (0, 1, 7, 13)]
    view, starts, ends = bytes_and_places(parts, b"x")
    assert checksums(view, starts, ends).tolist() == [zlib.crc32(part) & 0x7FFFFFFF for part in parts]


@given(STRINGS, st.binary(max_size=3), st.sampled_from([b"TAGS", b"KEYS", b"a", b"abb", b"v", b"absent", b"x" * 50]))
def test_values_are_those_of_decoded_properties(strings: list[bytes], gap: bytes, name: bytes) -> None:
    view, starts, ends = bytes_and_places(strings, gap)
    value_starts, value_ends = find_values(view, starts, ends, name)
    found = [
        None if start < 0 else view[start:end].tobytes().decode(errors="replace")
        for start, end in zip(value_starts.tolist(), value_ends.tolist(), strict=True)
    ]
    assert found == [decode_properties(string).get(name.decode()) for string in strings]
    assert ((value_starts < 0) == (value_ends < 0)).all()


@pytest.mark.parametrize("name", [b"", b"a\x01", b"\x02", b"a\x01b", b"a\x02b"])
def test_what_cannot_be_a_name_is_nowhere(name: bytes) -> None:
    view, starts, ends = bytes_and_places([b"a\x01b\x02", b"\x01b\x02", b"a\x02b\x01c\x02", b"a\x01\x01b\x02"])
    assert find_values(view, starts, ends, name)[0].tolist() == [-1] * 4


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("start", "end"), [(-1, 2), (3, 2), (0, 11), (11, 11), (11, 12), (-(1 << 62), 1 << 62)])
def test_parts_outside_of_the_bytes_are_refused(operation: Callable[..., Any], start: int, end: int) -> None:
    view = np.zeros(10, np.uint8)
    with pytest.raises(ValueError, match="does not lie in the 10 bytes"):
        operation(view, np.array([0, start]), np.array([10, end]))
    with pytest.raises(ValueError, match="1 parts begin and 2 end"):
        operation(view, np.array([0]), np.array([1, 2]))


def test_more_than_a_column_holds_is_refused() -> None:
    view = np.zeros(1 << 20, np.uint8)
    count = SIZE_MAX // len(view) + 1
    with pytest.raises(ValueError, match=f"larger than {SIZE_MAX}"):
        copy_parts(view, np.zeros(count, np.int64), np.full(count, len(view)))
