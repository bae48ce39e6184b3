"""Pieces never overlap, what was used last is used again, and all of it comes back."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from fusee.pipeline.send_memory import Piece, SendMemory


def test_the_first_place_that_is_free_is_given_out() -> None:
    memory = SendMemory(memoryview(bytearray(100)), first=10)
    assert memory.size_max == 90
    assert memory.take(91) is None
    first, second = memory.take(40), memory.take(40)
    assert first is not None
    assert second is not None
    assert (first.start, first.end, second.start, second.end) == (10, 50, 50, 90)
    assert memory.take(20) is None
    memory.release(first)
    third = memory.take(40)
    assert third is not None
    assert (third.start, third.end) == (10, 50)
    memory.release(second)
    fourth = memory.take(50)
    assert fourth is not None
    assert (fourth.start, fourth.end) == (50, 100)
    memory.release(third)
    memory.release(fourth)
    assert memory.is_free


def test_what_a_piece_does_not_need_is_free_again() -> None:
    memory = SendMemory(memoryview(bytearray(100)))
    piece = memory.take(80)
    assert piece is not None
    assert memory.take(60) is None
    memory.trim(piece, 30)
    assert len(piece.view) == 30
    behind = memory.take(70)
    assert behind is not None
    assert (behind.start, behind.end) == (30, 100)
    memory.trim(behind, 90)
    assert behind.end == 100


@given(st.lists(st.tuples(st.integers(0, 70), st.booleans(), st.integers(0, 5)), max_size=60))
def test_no_two_pieces_have_a_byte_in_common(steps: list[tuple[int, bool, int]]) -> None:
    memory = SendMemory(memoryview(bytearray(100)), first=7)
    held: deque[Piece] = deque()
    for size, takes, which in steps:
        if takes:
            piece = memory.take(size + 1)
            if piece is not None:
                assert len(piece.view) == size + 1
                assert 7 <= piece.start < piece.end <= 100
                assert all(piece.end <= other.start or other.end <= piece.start for other in held)
                held.append(piece)
            else:
                assert held or size + 1 > memory.size_max
        elif held:
            held.rotate(-min(which, len(held) - 1))
            memory.release(held.popleft())
    while held:
        memory.release(held.pop())
    assert memory.is_free
    whole = memory.take(memory.size_max)
    assert whole is not None
    assert whole.start == 7
