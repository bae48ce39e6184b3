"""Accounts of what was counted, and how much they grew in the last minute, hour and day (Java: StatsItem).

An account belongs to a topic, a group, a queue of them, or to nobody, and holds four numbers that only grow: messages,
bytes, milliseconds, and how many times something was added. Their past is kept in samples: every 10 seconds for the
minute, every 10 minutes for the hour, every hour for the day. A window is the difference between the newest sample and
the oldest, six or twenty-four steps before; its rate divides by the time that really passed between them. What was
added since the newest sample is not in the windows yet. An account that is younger than the window began one step
before its first sample.

The reference takes a sample of every item at every step. Here a step is numbered and has one time for all, and an
account marks only the steps in which it grew, so that thousands of idle queues cost nothing: what it was at a step is
what its last mark before or at it says. One that did not grow for a day is forgotten. (The reference measures by the
wall clock; this is the monotonic one, which nobody sets back.)
"""

from __future__ import annotations

import logging
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_log = logging.getLogger(__name__)

ACCOUNTS_MAX: Final = 200_000
# A timer that fires a little early must not cost a whole step.
_EARLY_SECONDS: Final = 0.5


class Column(IntEnum):
    """The numbers of an account."""

    COUNT = 0
    SIZE = 1
    ELAPSED = 2
    TIMES = 3


class Span(IntEnum):
    """The windows."""

    MINUTE = 0
    HOUR = 1
    DAY = 2


class Owner(NamedTuple):
    """What an account is of: what was done, and to which group, topic and queue, as far as that matters."""

    kind: str
    group: str = ""
    topic: str = ""
    queue_id: int = -1


class Window(NamedTuple):
    """Growth within a window: in all, per second, and per time that something was added (Java: StatsSnapshot)."""

    sum: int = 0
    per_second: float = 0.0
    average: float = 0.0


class _Account:
    """Four numbers, and per window the marks (step, numbers), oldest first, of the steps in which they grew."""

    __slots__ = ("amounts", "marks")

    def __init__(self) -> None:
        self.amounts = [0, 0, 0, 0]
        self.marks: tuple[list[tuple[int, list[int]]], ...] = ([], [], [])


class _Steps:
    """The steps of one window: how many, how far apart, and when the last ones were."""

    def __init__(self, seconds: float, steps: int) -> None:
        self.seconds = seconds
        self.steps = steps
        self.number = -1
        self.times: deque[float] = deque(maxlen=steps + 1)
        self.grown: set[_Account] = set()

    def is_due(self, now: float) -> bool:
        return not self.times or now - self.times[-1] >= self.seconds - _EARLY_SECONDS

    def time_of(self, number: int) -> float:
        return self.times[number - self.number - 1]


class SampledCounts:
    """All accounts of a broker."""

    def __init__(self, accounts_max: int = ACCOUNTS_MAX) -> None:
        self._accounts: dict[Owner, _Account] = {}
        self._by_topic: dict[str, set[Owner]] = {}
        self._by_group: dict[str, set[Owner]] = {}
        self._accounts_max = accounts_max
        self._is_full = False
        self._grown: set[_Account] = set()
        self._steps = (_Steps(10, 6), _Steps(600, 6), _Steps(3_600, 24))

    def __len__(self) -> int:
        return len(self._accounts)

    def is_due(self, now: float) -> bool:
        """Whether a sample is to be taken at this time (monotonic seconds)."""
        return self._steps[Span.MINUTE].is_due(now)

    def add(self, owner: Owner, amounts: Sequence[int]) -> None:
        """Add these four to an account."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._open(owner)
            if account is None:
                return
        total = account.amounts
        total[0] += amounts[0]
        total[1] += amounts[1]
        total[2] += amounts[2]
        total[3] += amounts[3]
        self._grown.add(account)

    def _open(self, owner: Owner) -> _Account | None:
        if len(self._accounts) >= self._accounts_max:
            if not self._is_full:
                _log.warning("statistics are kept of %d owners, the limit: not of %s", self._accounts_max, owner)
            self._is_full = True
            return None
        account = self._accounts[owner] = _Account()
        if owner.topic:
            self._by_topic.setdefault(owner.topic, set()).add(owner)
        if owner.group:
            self._by_group.setdefault(owner.group, set()).add(owner)
        return account

    def sample(self, now: float) -> None:
        """Take the samples that are due at this time (monotonic seconds)."""
        grown, self._grown = self._grown, set()
        for span, steps in zip(Span, self._steps, strict=True):
            steps.grown |= grown
            if not steps.is_due(now):
                continue
            steps.number += 1
            steps.times.append(now)
            number, oldest = steps.number, steps.number - steps.steps
            for account in steps.grown:
                marks = account.marks[span]
                marks.append((number, account.amounts.copy()))
                # One mark at or before the beginning of the window tells what there was at the beginning.
                while len(marks) > 1 and marks[1][0] <= oldest:
                    del marks[0]
            steps.grown = set()
            if span is Span.DAY:
                self._forget_idle(oldest)

    def window(self, owner: Owner, column: Column, span: Span) -> Window | None:
        """The growth of one number of an account; None when there is no such account."""
        account = self._accounts.get(owner)
        if account is None:
            return None
        marks = account.marks[span]
        if not marks:
            return Window()
        steps = self._steps[span]
        oldest = steps.number - steps.steps
        if marks[0][0] <= oldest:
            first = next(amounts for number, amounts in reversed(marks) if number <= oldest)
            began = steps.time_of(oldest)
        else:
            first = [0, 0, 0, 0]
            began = steps.time_of(marks[0][0]) - steps.seconds
        last = marks[-1][1]
        total = last[column] - first[column]
        times = last[Column.TIMES] - first[Column.TIMES]
        return Window(total, total / (steps.times[-1] - began), total / times if times else 0.0)

    def totals(self) -> Iterator[tuple[Owner, Sequence[int]]]:
        """Every account and what it holds."""
        for owner, account in self._accounts.items():
            yield owner, account.amounts

    def forget_topic(self, topic: str) -> None:
        """Forget the accounts of this topic."""
        for owner in list(self._by_topic.get(topic, ())):
            self._forget(owner)

    def forget_group(self, group: str) -> None:
        """Forget the accounts of this consumer group."""
        for owner in list(self._by_group.get(group, ())):
            self._forget(owner)

    def _forget_idle(self, oldest: int) -> None:
        for owner in [owner for owner, account in self._accounts.items() if account.marks[Span.DAY][-1][0] <= oldest]:
            self._forget(owner)

    def _forget(self, owner: Owner) -> None:
        account = self._accounts.pop(owner)
        self._grown.discard(account)
        for steps in self._steps:
            steps.grown.discard(account)
        for table, name in ((self._by_topic, owner.topic), (self._by_group, owner.group)):
            owners = table.get(name)
            if owners is not None:
                owners.discard(owner)
                if not owners:
                    del table[name]
        self._is_full = False
