"""Repetitions in turn - ours, peer, ours, peer - so that a slow minute of the machine hurts all alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def interleaved(contenders: Mapping[str, Callable[[], T]], repetitions: int) -> dict[str, list[T]]:
    """Calls each contender once per repetition, every second round in reverse: nobody is always first."""
    outcomes: dict[str, list[T]] = {name: [] for name in contenders}
    for repetition in range(repetitions):
        names = list(contenders)
        if repetition % 2:
            names.reverse()
        for name in names:
            outcomes[name].append(contenders[name]())
    return outcomes
