"""Memory for arriving bytes: what was put there comes out, and never more than there was room for."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.wire.arrival import FIRST_SIZE, ArrivingBody, Scratch


def test_scratch_gives_what_was_put_into_its_room() -> None:
    scratch = Scratch(100)
    for data, limit in ((b"abc", 100), (b"xy", 10), (b"", 0)):
        with scratch.room(limit) as room:
            assert len(room) == limit
            room[: len(data)] = data
        assert scratch.taken(len(data)) == data
    assert len(scratch.room(1000)) == 100


@pytest.mark.parametrize("count", [-1, 101])
def test_scratch_gives_no_more_than_it_has(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} bytes were put into 100"):
        Scratch(100).taken(count)


def put(body: ArrivingBody, data: bytes) -> bool:
    """Put as much of the data as there is room for, again and again; whether the body is whole then."""
    is_whole = False
    while data:
        with body.room() as room:
            count = min(len(room), len(data))
            room[:count] = data[:count]
        is_whole = body.add(count)
        data = data[count:]
    return is_whole


@given(
    st.sampled_from([1, 100, FIRST_SIZE, FIRST_SIZE + 1, 3 * FIRST_SIZE + 17]),
    st.lists(st.floats(0, 1), max_size=6),
)
def test_body_is_what_arrived_whatever_the_pieces(size: int, cuts: list[float]) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    borders = [0, *sorted(int(cut * (size - 1)) for cut in cuts), size]
    begun, *pieces = (data[start:end] for start, end in pairwise(borders))
    body = ArrivingBody(size, begun)
    is_whole = False
    for piece in pieces:
        assert not is_whole
        is_whole = put(body, piece)
    if len(begun) < size:
        assert is_whole
    assert body.count == size
    assert body.taken() == data


def test_body_that_is_not_whole_is_not_given() -> None:
    body = ArrivingBody(10, b"abc")
    assert not put(body, b"defghi")
    with pytest.raises(ValueError, match="9 bytes of 10 have arrived"):
        body.taken()
    assert put(body, b"j")
    assert body.taken() == b"abcdefghij"


def test_body_takes_no_more_than_there_is_room_for() -> None:
    body = ArrivingBody(10, b"abc")
    for count in (8, -1):
        with pytest.raises(ValueError, match=f"{count} bytes were put into 7"):
            body.add(count)
    with pytest.raises(ValueError, match="3 bytes of 2 have arrived"):
        ArrivingBody(2, b"abc")


def test_announced_body_is_given_memory_as_it_arrives() -> None:
    tracemalloc.start()
    body = ArrivingBody(16 * 1024 * 1024, b"begun")
    with body.room():
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * FIRST_SIZE


def test_room_stays_while_somebody_holds_it() -> None:
    room = ArrivingBody(5, b"").room()
    room[:] = b"12345"
    assert bytes(room) == b"12345"
