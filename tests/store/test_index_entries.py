"""Entries put in front of the chains of their slots, against a dictionary of chains."""

from __future__ import annotations

from struct import Struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.store.index_entries import enter, leave

ENTRY = Struct(">iqii")
KEYS = st.lists(
    st.tuples(st.integers(0, 2**31 - 1) | st.integers(0, 9), st.integers(0, 2**40), st.integers(-5000, 2**44)),
    max_size=60,
)


@given(st.lists(KEYS, max_size=4), st.integers(1, 7))
def test_every_entry_follows_the_one_before_it_in_its_slot(
    rounds: list[list[tuple[int, int, int]]], count: int
) -> None:
    slots = np.zeros(count, np.int32)
    newest: dict[int, int] = {}
    number = 1
    for keys in rounds:
        before = slots.copy()
        hashes, log_offsets, times = (np.array(each, np.int64) for each in zip(*keys, strict=True)) if keys else (
            np.empty(0, np.int64) for _ in range(3)
        )  # fmt: skip
        packed, places, previous, new_slots = enter(slots, hashes, log_offsets, times, 1000, number)
        expected = []
        emptied = len(newest)
        for hash_, log_offset, time in keys:
            seconds = min(max((time - 1000) // 1000, 0), 2**31 - 1)
            expected.append((hash_, log_offset, seconds, newest.get(hash_ % count, 0)))
            newest[hash_ % count] = number
            number += 1
        assert list(ENTRY.iter_unpack(packed)) == expected
        assert previous.tolist() == [entry[3] for entry in expected]
        assert places.tolist() == [entry[0] % count for entry in expected]
        assert new_slots == len(newest) - emptied
        assert slots.tolist() == [newest.get(slot, 0) for slot in range(count)]
        after = slots.copy()
        leave(slots, places, previous)
        assert (slots == before).all()
        slots[:] = after


def test_what_does_not_fit_is_refused() -> None:
    slots, one, two = np.zeros(3, np.int32), np.zeros(1, np.int64), np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="one place and one time"):
        enter(slots, two, one, two, 0, 1)
    with pytest.raises(ValueError, match="negative"):
        enter(slots, one - 1, one, one, 0, 1)
    with pytest.raises((IndexError, ValueError)):
        leave(slots, np.array([3], np.int64), np.zeros(1, np.int32))
    assert not slots.any()
