"""Hooks: what others may see of every send, consumption and end of a transaction, before and after.

A hook is an object with the methods of its protocol. It runs on the event loop, inside the call it watches, so it
must be quick and must not block. What it raises is logged and goes no further: a broken hook costs its own
observations, never a message. A context lives from the `before` to the `after` of one call and is shared by all
hooks; what a hook wants to remember in between goes into `notes`, under a key of its own. Contexts are only made when
there is a hook. (Java: SendMessageHook, ConsumeMessageHook, EndTransactionHook and their contexts.)
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fusee.client.received import ReceivedMessage
    from fusee.client.results import SendResult
    from fusee.message.model import Message, MessageQueue

_log = logging.getLogger(__name__)

C = TypeVar("C")

Communication = Literal["sync", "async", "oneway"]


class MessageType(IntEnum):
    """What kind of message is sent. The numbers are those of trace records."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeReturn(IntEnum):
    """How a listener came back (Java: ConsumeReturnType). The numbers are the context code of trace records."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class TransactionState(Enum):
    """What became of a local transaction. The values are RocketMQ's names (Java: LocalTransactionState)."""

    COMMIT = "COMMIT_MESSAGE"
    """It succeeded: the message is to be delivered."""

    ROLLBACK = "ROLLBACK_MESSAGE"
    """It failed: the message is to be forgotten."""

    UNKNOWN = "UNKNOW"
    """It is not decided yet: the broker will ask later."""


class AccessChannel(Enum):
    """Where traces go: LOCAL to the trace topic, CLOUD to one topic per region."""

    LOCAL = "LOCAL"
    CLOUD = "CLOUD"


@dataclass(slots=True)
class SendContext:
    """One try to send one message, or one batch.

    `result` and `error` are set before `after_send`; both stay None after a oneway send. `broker_address` is the
    broker of this try: a message that is sent again to another broker makes a context for each try, as in Java.
    """

    group: str
    topic: str
    message: Message
    queue: MessageQueue
    broker_address: str
    communication: Communication = "sync"
    message_type: MessageType = MessageType.NORMAL
    started_ms: int = 0
    cost_ms: int = 0
    result: SendResult | None = None
    error: Exception | None = None
    namespace: str = ""
    notes: dict[object, object] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    """Properties that a hook lets travel with the message, put here by `before_send`; a batch takes none."""


@dataclass(slots=True)
class ConsumeContext:
    """One call of a listener with one or more messages of one queue.

    `success`, `status`, `return_type` and `cost_ms` are set before `after_consume`. `status` is the listener's
    answer in RocketMQ's words: CONSUME_SUCCESS, RECONSUME_LATER, SUCCESS, SUSPEND_CURRENT_QUEUE_A_MOMENT.
    """

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    started_ms: int = 0
    success: bool = False
    status: str = ""
    return_type: ConsumeReturn = ConsumeReturn.SUCCESS
    cost_ms: int = 0
    access: AccessChannel = AccessChannel.LOCAL
    namespace: str = ""
    notes: dict[object, object] = field(default_factory=dict)


@dataclass(slots=True)
class EndTransactionContext:
    """The decision about one half message, just sent to the broker that has it."""

    group: str
    message: Message
    broker_address: str
    message_id: str
    transaction_id: str
    state: TransactionState
    from_check: bool = False
    namespace: str = ""


@runtime_checkable
class SendHook(Protocol):
    """Sees every try of a send."""

    def before_send(self, context: SendContext) -> None: ...

    def after_send(self, context: SendContext) -> None: ...


@runtime_checkable
class ConsumeHook(Protocol):
    """Sees every call of a listener."""

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


@runtime_checkable
class EndTransactionHook(Protocol):
    """Sees every end of a transaction, decided at once or by a check."""

    def end_transaction(self, context: EndTransactionContext) -> None: ...


def before_send(hooks: Iterable[SendHook], context: SendContext) -> None:
    """Tell every hook; what one raises is logged."""
    for hook in hooks:
        _tell(hook.before_send, context)


def after_send(hooks: Iterable[SendHook], context: SendContext) -> None:
    """Tell every hook; what one raises is logged."""
    for hook in hooks:
        _tell(hook.after_send, context)


def before_consume(hooks: Iterable[ConsumeHook], context: ConsumeContext) -> None:
    """Tell every hook; what one raises is logged."""
    for hook in hooks:
        _tell(hook.before_consume, context)


def after_consume(hooks: Iterable[ConsumeHook], context: ConsumeContext) -> None:
    """Tell every hook; what one raises is logged."""
    for hook in hooks:
        _tell(hook.after_consume, context)


def end_transaction(hooks: Iterable[EndTransactionHook], context: EndTransactionContext) -> None:
    """Tell every hook; what one raises is logged."""
    for hook in hooks:
        _tell(hook.end_transaction, context)


def _tell(method: Callable[[C], None], context: C) -> None:
    try:
        method(context)
    except Exception:  # noqa: BLE001 - the call of a user's listener
        _log.exception("hook %s failed; what it watches goes on", getattr(method, "__qualname__", method))
