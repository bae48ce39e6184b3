"""Functions that consume: a decorator says from where, an annotation what the body becomes.

    @mq.handler("orders", group="billing", tags="paid", concurrency=4)
    async def bill(order: Order, message: ReceivedMessage) -> None: ...

The annotation of a parameter decides what it gets: `ReceivedMessage`, or no annotation, the message itself; any other
type the body turned into it (`payloads`). A handler has one parameter, or two of which one is the message. A coroutine
function runs on the loop; a plain function in a thread, where it may block. Functions stay what they are and can be
called, and tested, without a queue.

What a handler raises has the message tried again as its RetryPolicy says. A body that cannot become the type will not
become it the next time either, so it goes to the dead letters at once, unless told otherwise.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import typing
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from fusee.client.closing import for_closer
from fusee.client.consumer.options import ConsumeResult, RetryLater
from fusee.client.consumer.runners import is_coroutine_function
from fusee.client.payloads import decoder
from fusee.client.received import ReceivedMessage
from fusee.errors import ClientStateError, ConfigError, MessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self, Unpack

    from fusee.client.consumer.options import ConsumerSettings
    from fusee.client.consumer.start_offset import ConsumeFrom
    from fusee.client.subscriptions import Topics

_log = logging.getLogger(__name__)

F = TypeVar("F", bound="Callable[..., Any]")

OnBadPayload: TypeAlias = Literal["dead_letter", "retry", "skip"]

DELAY_LEVEL_SECONDS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""The delays of levels 1 to 18 on brokers that keep RocketMQ's messageDelayLevel."""

# What an orderly consumer may be told to rest, as in Java.
_SUSPEND_MS: Final = (10, 30_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how long after a failure, a message is tried again.

    `max_attempts` counts the first try too; a message that failed so often becomes a dead letter. `delays` are the
    seconds before the second try, the third and so on, the last of them for all that follow; without them brokers wait
    10 s, 30 s, 1 min and on to 2 h. Brokers know only the delays of their levels (`level_seconds`, unless they are
    set up otherwise), so a message waits until the next one of these. An ordered handler keeps its queue waiting
    instead, 30 s at most. Errors of the kinds in `give_up_on` make a dead letter at once.
    """

    max_attempts: int = 17
    delays: Sequence[float | timedelta] = ()
    give_up_on: tuple[type[Exception], ...] = ()
    level_seconds: Sequence[float] = DELAY_LEVEL_SECONDS

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigError(f"max_attempts is {self.max_attempts}; a message is tried once at least")
        if any(_seconds(delay) < 0 for delay in self.delays):
            raise ConfigError(f"delays are {self.delays!r}; none can be negative")
        if list(self.level_seconds) != sorted(self.level_seconds) or not self.level_seconds:
            raise ConfigError("level_seconds are the broker's messageDelayLevel in seconds, the shortest first")

    @classmethod
    def backoff(
        cls,
        first: float | timedelta,
        *,
        factor: float = 2.0,
        longest: float | timedelta = 7200,
        max_attempts: int = 17,
        give_up_on: tuple[type[Exception], ...] = (),
    ) -> RetryPolicy:
        """Delays that grow by a factor from the first to the longest."""
        if factor < 1 or _seconds(first) <= 0:
            raise ConfigError(
                f"a delay of {first} cannot grow by {factor}; give a positive delay and a factor from 1 on"
            )
        grown = accumulate(
            repeat(factor, max(max_attempts - 2, 0)), lambda delay, by: delay * by, initial=_seconds(first)
        )
        delays = tuple(min(delay, _seconds(longest)) for delay in grown)
        return cls(max_attempts=max_attempts, delays=delays, give_up_on=give_up_on)

    def delay_before(self, attempt: int) -> float | None:
        """The seconds before this attempt, the second being the first one that waits; None leaves it to the broker."""
        if not self.delays:
            return None
        return _seconds(self.delays[min(max(attempt - 2, 0), len(self.delays) - 1)])

    def delay_level(self, message: ReceivedMessage) -> int:
        """The delay level for the next try of a message that failed; 0 leaves it to the broker."""
        delay = self.delay_before(message.reconsume_times + 2)
        if delay is None:
            return 0
        levels = (level for level, seconds in enumerate(self.level_seconds, 1) if seconds >= delay)
        return next(levels, len(self.level_seconds))

    def suspend_ms(self, message: ReceivedMessage) -> int | None:
        """How long an orderly queue rests before the next try; None leaves it to the consumer."""
        delay = self.delay_before(message.reconsume_times + 2)
        return None if delay is None else min(max(round(delay * 1000), _SUSPEND_MS[0]), _SUSPEND_MS[1])


class _Consumer(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


class _Connection(Protocol):
    """What makes consumers: a `fusee.Connection`."""

    @property
    def consumer(self) -> Callable[..., _Consumer]: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """A function and what it consumes; `listener` is what the consumer calls."""

    function: Callable[..., Any]
    topics: Topics
    group: str
    listener: Callable[[ReceivedMessage], Any]
    options: dict[str, Any]


class HandlerTable:
    """The handlers of a program. Declared at any time, they consume from `start` to `close`."""

    def __init__(self, connection: _Connection | None = None) -> None:
        """Without a connection, `start` is given one: a module can declare handlers before there is any."""
        self._connection = connection
        self._handlers: dict[str, Handler] = {}
        self._running: dict[str, _Consumer] = {}
        self._closed = asyncio.Event()

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """All handlers, in the order of their declaration."""
        return tuple(self._handlers.values())

    def handler(
        self,
        topics: Topics,
        *,
        group: str,
        tags: str | Iterable[str] | None = None,
        sql: str | None = None,
        concurrency: int = 20,
        retry: RetryPolicy | None = None,
        ordered: bool = False,
        broadcast: bool = False,
        consume_from: ConsumeFrom = "last",
        on_bad_payload: OnBadPayload = "dead_letter",
        **settings: Unpack[ConsumerSettings],
    ) -> Callable[[F], F]:
        """Declare a function as the handler of topics, as a member of a group of its own.

        `concurrency` is how many messages it handles at a time; with `ordered` each queue's messages come one after
        another. A body that cannot be decoded becomes a dead letter, is tried again, or is skipped and logged.
        `settings` are those of `ConsumerOptions`. The decorator raises ConfigError when the function's parameters say
        too little or too much, PayloadError when no body can become the annotated type.
        """
        if group in self._handlers:
            raise ConfigError(
                f"group {group!r} has a handler already ({_name(self._handlers[group].function)}); members of a group "
                "must consume the same topics, so give this handler a group of its own"
            )
        if on_bad_payload not in ("dead_letter", "retry", "skip"):
            raise ConfigError(f'on_bad_payload is {on_bad_payload!r}; give "dead_letter", "retry" or "skip"')
        options: dict[str, Any] = {
            "tags": tags,
            "sql": sql,
            "ordered": ordered,
            "broadcast": broadcast,
            "consume_from": consume_from,
            "consume_thread_max": concurrency,
            **settings,
        }
        if retry is not None:
            options["max_reconsume_times"] = retry.max_attempts - 1
            if not ordered:
                options["delay_level_when_next_consume"] = retry.delay_level

        def declare(function: F) -> F:
            listener = _listener(function, on_bad_payload, retry, ordered=ordered)
            self._handlers[group] = Handler(function, topics, group, listener, options)
            return function

        return declare

    async def start(self, connection: _Connection | None = None) -> None:
        """Begin to consume with every handler that does not yet.

        When one of them cannot begin, those begun with it are closed and its error is raised.
        """
        connection = connection or self._connection
        if connection is None:
            raise ClientStateError("these handlers have no connection; start them with one: `await handlers.start(mq)`")
        if self._closed.is_set():
            raise ClientStateError("these handlers are closed; declare them in a new HandlerTable")
        self._connection = connection
        new: dict[str, _Consumer] = {}
        for group, each in self._handlers.items():
            if group not in self._running:
                new[group] = connection.consumer(each.topics, group=group, listener=each.listener, **each.options)
        try:
            outcomes = await asyncio.gather(*(each.start() for each in new.values()), return_exceptions=True)
            if self._closed.is_set():
                outcomes.append(ClientStateError("these handlers were closed while they started"))
            _raise_first(outcomes)
        except BaseException:
            await asyncio.gather(*(each.close() for each in new.values()), return_exceptions=True)
            raise
        self._running.update(new)

    async def run(self, connection: _Connection | None = None) -> None:
        """Consume until `close`, or until this call is cancelled, which closes too."""
        await self.start(connection)
        try:
            await self._closed.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Let running handlers finish, commit what they did and stop. May be called again."""
        self._closed.set()
        consumers = list(self._running.values())
        self._running.clear()
        with for_closer():
            closing = asyncio.gather(*(each.close() for each in consumers), return_exceptions=True)
        _raise_first(await closing)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


def _listener(
    function: Callable[..., Any], on_bad_payload: OnBadPayload, retry: RetryPolicy | None, *, ordered: bool
) -> Callable[[ReceivedMessage], Any]:
    """What a consumer calls with each message: arguments made of it, and what its errors mean."""
    arguments = _arguments(function)
    give_up_on = retry.give_up_on if retry is not None else ()

    def refuse(message: ReceivedMessage, error: MessageError) -> ConsumeResult:
        if on_bad_payload == "retry":
            raise error
        error.topic = message.topic
        outcome = "is a dead letter now" if on_bad_payload == "dead_letter" else "is skipped"
        _log.warning("handler %s: %s %s: %s", _name(function), message, outcome, error)
        return ConsumeResult.DEAD_LETTER if on_bad_payload == "dead_letter" else ConsumeResult.SUCCESS

    def judge(message: ReceivedMessage, error: Exception) -> ConsumeResult:
        if isinstance(error, give_up_on):
            _log.warning("handler %s: %s is a dead letter now", _name(function), message, exc_info=error)
            return ConsumeResult.DEAD_LETTER
        if ordered and retry is not None and not isinstance(error, RetryLater):
            raise RetryLater(str(error) or repr(error), suspend_ms=retry.suspend_ms(message)) from error
        raise error

    if is_coroutine_function(function):

        async def listen_async(message: ReceivedMessage) -> Any:
            try:
                given = arguments(message)
            except MessageError as error:
                return refuse(message, error)
            try:
                return await function(*given)
            except Exception as error:  # noqa: BLE001 - raised again, or turned into an answer
                return judge(message, error)

        return listen_async

    def listen(message: ReceivedMessage) -> Any:
        try:
            given = arguments(message)
        except MessageError as error:
            return refuse(message, error)
        try:
            return function(*given)
        except Exception as error:  # noqa: BLE001 - raised again, or turned into an answer
            return judge(message, error)

    return listen


def _arguments(function: Callable[..., Any]) -> Callable[[ReceivedMessage], tuple[Any, ...]]:
    """What makes the arguments of this handler from a message."""
    types = [_annotation(function, parameter) for parameter in _parameters(function)]
    payloads = [type_ for type_ in types if type_ is not ReceivedMessage]
    if not types or len(types) > 2 or len(payloads) > 1 or (len(types) == 2 and not payloads):
        raise ConfigError(
            f"handler {_name(function)} has {len(types)} parameters, {len(payloads)} of them for the body; it needs "
            "one parameter for the body, one annotated ReceivedMessage for the message, or both"
        )
    if not payloads:
        return lambda message: (message,)
    decode: Callable[[bytes], Any] = decoder(payloads[0])
    if len(types) == 1:
        return lambda message: (decode(message.body),)
    if types[0] is ReceivedMessage:
        return lambda message: (message, decode(message.body))
    return lambda message: (decode(message.body), message)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those that must be given, by position."""
    needed: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            raise ConfigError(
                f"parameter {parameter.name!r} of handler {_name(function)} cannot be given by position; make it a "
                "plain one, or give it a default"
            )
        needed.append(parameter)
    return needed


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ReceivedMessage
    if not isinstance(annotation, str):
        return annotation
    if annotation.rpartition(".")[2] == ReceivedMessage.__name__:
        return ReceivedMessage  # known even where it is only imported for type checkers
    inner = inspect.unwrap(getattr(function, "func", function))
    inner = inner if hasattr(inner, "__globals__") else type(inner).__call__
    try:
        return typing.get_type_hints(
            SimpleNamespace(__annotations__={"it": annotation}), inner.__globals__, include_extras=True
        )["it"]
    except NameError as error:
        raise ConfigError(
            f"the type {annotation!r} of parameter {parameter.name!r} of handler {_name(function)} is not known at run "
            f"time: {error}; define it in the module, and import it outside of `if TYPE_CHECKING`"
        ) from error


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


def _seconds(delay: float | timedelta) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else delay


def _raise_first(outcomes: Iterable[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
