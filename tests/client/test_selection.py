"""Which queue a message goes to."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.selection import java_hash, place_of_key, select_at_random, select_by_hash
from fusee.errors import MessageError
from fusee.message.model import Message, MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(8)]
MESSAGE = Message("orders", b"x")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # Values of Java's own hashCode().
        ("", 0),
        ("customer-7", -1_581_185_528),
        ("订单", 1_129_459),
        ("polygenelubricants", -(2**31)),
        (7, 7),
        (-7, -7),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (-(2**31) - 1, -(2**31)),
        (10_000_000_000, 1_410_065_410),
        (-10_000_000_000, 1_410_065_405),
        (2**63 - 1, -(2**31)),
    ],
)
def test_hash_is_that_of_java(key: object, expected: int) -> None:
    assert java_hash(key) == expected


def test_key_of_another_type_counts_as_its_text() -> None:
    assert java_hash(1.5) == java_hash("1.5")
    assert java_hash(True) == java_hash("True")


def test_number_beyond_a_long_is_refused() -> None:
    with pytest.raises(MessageError, match="more than 64 bits"):
        java_hash(2**63)


def test_smallest_hash_finds_a_place() -> None:
    assert place_of_key("polygenelubricants", 3) == 2**31 % 3


@given(st.text() | st.integers(-(2**63), 2**63 - 1), st.integers(1, 8))
def test_equal_keys_meet_in_one_queue_that_exists(key: object, count: int) -> None:
    queue = select_by_hash(QUEUES[:count], MESSAGE, key)
    assert queue in QUEUES[:count]
    assert select_by_hash(QUEUES[:count], Message("orders", b"y"), key) == queue


def test_random_selector_follows_its_seed_and_uses_all_queues() -> None:
    one, other = select_at_random(random.Random(3)), select_at_random(random.Random(3))
    chosen = [one(QUEUES, MESSAGE, None) for _ in range(200)]
    assert chosen == [other(QUEUES, MESSAGE, None) for _ in range(200)]
    assert set(chosen) == set(QUEUES)
