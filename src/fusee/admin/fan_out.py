"""One question to many servers at once: what each answered, who failed, and when that is an error.

Everybody is asked, a bounded number at a time; a failure of one does not stop the others. What follows is one rule
for all of administration:

* An operation that changes something raises `AdminError` when anybody failed: it names each server with its cause,
  and those where the change was made.
* A question is answered from those that told; the others are the `failures` of the view. It raises when nobody told.
* Where all failed alike (no such group anywhere), or only one was asked, its own error is raised: TopicNotFoundError
  says more than an error about errors.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from fusee.admin.views import BrokerAddress, Failure
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")

AT_ONCE_MAX: Final = 16
"""Servers asked at the same time by one call."""

_SHOWN_MAX: Final = 10


class AdminError(FuseeError):
    """An operation failed at some servers: `failures` says where and why, `done` where it was carried out.

    It is retryable when every cause is; what was done can be done again.
    """

    def __init__(
        self,
        message: str,
        *,
        done: tuple[BrokerAddress, ...] = (),
        failures: tuple[Failure, ...] = (),
        errors: tuple[FuseeError, ...] = (),
        topic: str = "",
    ) -> None:
        super().__init__(message)
        self.done = done
        self.failures = failures
        self.errors = errors
        self.topic = topic
        self.retryable = bool(errors) and all(error.retryable for error in errors)
        if errors:
            self.code = errors[0].code
            self.address = failures[0].address if failures else errors[0].address


@dataclass(frozen=True, slots=True)
class FanOut(Generic[T]):
    """What came of asking: answers in the order of the servers asked, and failures likewise."""

    answers: tuple[tuple[BrokerAddress, T], ...]
    failures: tuple[Failure, ...]
    errors: tuple[FuseeError, ...]

    @property
    def values(self) -> list[T]:
        """The answers alone."""
        return [answer for _, answer in self.answers]

    @property
    def done(self) -> tuple[BrokerAddress, ...]:
        """Who answered."""
        return tuple(broker for broker, _ in self.answers)

    def complete(self, what: str, *, topic: str = "") -> tuple[BrokerAddress, ...]:
        """For a change: everybody, or an error that says where it was not made."""
        if self.errors:
            raise self._error(f"could not {what} at", topic)
        return self.done

    def some(self, what: str, *, topic: str = "") -> FanOut[T]:
        """For a question: itself, or an error when nobody answered."""
        if self.errors and not self.answers:
            raise self._error(f"nobody could {what}:", topic)
        return self

    def without(self, *kinds: type[FuseeError]) -> FanOut[T]:
        """The same, where an error of these kinds only means that there is nothing to tell.

        When nobody has anything to tell, the errors stay: then they are the answer.
        """
        if not self.answers:
            return self
        kept = [
            (failure, error)
            for failure, error in zip(self.failures, self.errors, strict=True)
            if not isinstance(error, kinds)
        ]
        return FanOut(self.answers, tuple(failure for failure, _ in kept), tuple(error for _, error in kept))

    def _error(self, what: str, topic: str) -> FuseeError:
        if not self.answers and len({type(error) for error in self.errors}) == 1:
            return self.errors[0]
        shown = [f"{failure.broker_name or failure.address}: {failure.cause}" for failure in self.failures]
        if len(shown) > _SHOWN_MAX:
            shown[_SHOWN_MAX:] = [f"and {len(shown) - _SHOWN_MAX} more"]
        asked = len(self.failures) + len(self.answers)
        return AdminError(
            f"{what} {len(self.failures)} of {asked} servers; " + "; ".join(shown),
            done=self.done,
            failures=self.failures,
            errors=self.errors,
            topic=topic,
        )


async def ask_all(
    brokers: Iterable[BrokerAddress], ask: Callable[[BrokerAddress], Awaitable[T]], *, at_once: int = AT_ONCE_MAX
) -> FanOut[T]:
    """Ask each of them; errors of this package are failures of the one asked, any other ends the call."""
    asked = list(brokers)
    turns = asyncio.Semaphore(at_once)

    async def one(broker: BrokerAddress) -> T | FuseeError:
        async with turns:
            try:
                return await ask(broker)
            except FuseeError as error:
                return error

    if len(asked) == 1:
        outcomes = [await one(asked[0])]
    else:
        tasks = [asyncio.ensure_future(one(broker)) for broker in asked]
        try:
            outcomes = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
    answers: list[tuple[BrokerAddress, T]] = []
    failures: list[Failure] = []
    errors: list[FuseeError] = []
    for broker, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, FuseeError):
            failures.append(failure_of(broker, outcome))
            errors.append(outcome)
        else:
            answers.append((broker, outcome))
    return FanOut(tuple(answers), tuple(failures), tuple(errors))


def failure_of(broker: BrokerAddress, error: FuseeError) -> Failure:
    """A server's error as data."""
    return Failure(
        address=broker.address,
        broker_name=broker.broker_name,
        cause=str(error),
        code=error.code,
        retryable=error.retryable,
    )
