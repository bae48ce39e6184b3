"""Which queue a message goes to: round robin, by key, at random, or as the application says.

Queues are given in the order of the topic's route, which every client of RocketMQ sees alike, so messages of equal key
meet in one queue even when producers in other languages send them too (Java: SelectMessageQueueByHash).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from fusee.errors import MessageError
from fusee.message.hashing import java_string_hash
from fusee.message.model import Message, MessageQueue

if TYPE_CHECKING:
    import random

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
"""Given the queues, the message and the caller's own argument, one of the queues."""


def java_hash(key: object) -> int:
    """`hashCode()` of the key as Java has it: of a text, of an Integer, of a Long; anything else as its text."""
    if isinstance(key, str):
        return java_string_hash(key)
    if type(key) is int:
        if -(1 << 31) <= key < 1 << 31:
            return key
        if not -(1 << 63) <= key < 1 << 63:
            raise MessageError(f"order key {key} has more than 64 bits; pass it as text")
        folded = (key ^ (key >> 32)) & 0xFFFFFFFF
        return folded - (1 << 32) if folded >= 1 << 31 else folded
    return java_string_hash(str(key))


def place_of_key(key: object, count: int) -> int:
    """The place among `count` queues that messages of this key belong to."""
    return abs(java_hash(key)) % count


def select_by_hash(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """The queue of the key given as argument; what `order_by` does (Java: SelectMessageQueueByHash)."""
    return queues[place_of_key(argument, len(queues))]


def select_at_random(chooser: random.Random) -> Selector:
    """A selector that takes any queue (Java: SelectMessageQueueByRandom)."""

    def select(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
        return queues[chooser.randrange(len(queues))]

    return select
