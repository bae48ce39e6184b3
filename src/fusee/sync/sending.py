"""Sending, blocking: what connections and producers have in common, and the producers themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from fusee.client.producer import Producer as AsyncProducer
from fusee.client.transaction import Transaction as AsyncTransaction
from fusee.client.transaction import TransactionProducer as AsyncTransactionProducer
from fusee.errors import ClientStateError
from fusee.sync.facade import Facade, Scoped, blocking, on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime, timedelta
    from types import TracebackType

    from fusee.client.results import SendResult
    from fusee.client.selection import Selector
    from fusee.client.transaction import TransactionResult, TransactionState
    from fusee.message.model import Message, MessageQueue
    from fusee.sync.portal import Portal

A = TypeVar("A")


class SendOptions(TypedDict, total=False):
    """The options of a send; `fusee.Producer.send` says what each means."""

    tag: str | None
    key: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    flag: int
    order_by: object
    queue: MessageQueue | None
    selector: Selector | None
    selector_argument: object
    delay_level: int
    deliver_in: float | timedelta | None
    deliver_at: datetime | None
    wait_stored: bool
    timeout_ms: int | None


class Sender(Facade[A]):
    """Something that sends messages."""

    send_batch = blocking(AsyncProducer.send_batch)

    def send(self, topic: str | Message, body: object = None, **options: Unpack[SendOptions]) -> SendResult:
        """Send a message and wait for its result. Options and errors are those of `fusee.Producer.send`."""
        send: Callable[..., Any] = self._target.send  # type: ignore[attr-defined]
        result: SendResult = self._portal.call(send, topic, body, **options)
        return result

    def send_soon(
        self, topic: str | Message, body: object = None, **options: Unpack[SendOptions]
    ) -> Future[SendResult]:
        """The same without waiting: a future of the result. Many of them may be under way, which is much faster."""
        send: Callable[..., Any] = self._target.send  # type: ignore[attr-defined]
        return self._portal.begin(send, topic, body, **options)

    def send_async(
        self,
        topic: str | Message,
        body: object = None,
        *,
        callback: Callable[[SendResult | None, Exception | None], object],
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message; `callback(result, error)` is called once, on the event loop, which it must not hold up."""
        send: Callable[..., None] = self._target.send_async  # type: ignore[attr-defined]
        self._portal.run(send, topic, body, callback=callback, **options)

    def send_oneway(self, topic: str | Message, body: object = None, **options: Unpack[SendOptions]) -> None:
        """Send a message and ask for no answer: it may be lost. See `fusee.Producer.send_oneway`."""
        send: Callable[..., Any] = self._target.send_oneway  # type: ignore[attr-defined]
        self._portal.call(send, topic, body, **options)


class Producer(Sender[AsyncProducer], Scoped[AsyncProducer]):
    """A producer with settings of its own, for `with`. See `fusee.Producer`."""

    start = blocking(AsyncProducer.start)
    close = blocking(AsyncProducer.close)
    queues = blocking(AsyncProducer.queues)
    recall = blocking(AsyncProducer.recall)
    add_hook = on_loop(AsyncProducer.add_hook)

    @property
    def group(self) -> str:
        return self._target.group


class Transaction:
    """One transaction as a block, for `with`: leaving commits, an exception rolls back.

    See `fusee.client.transaction`.
    """

    def __init__(self, portal: Portal, scope: AbstractAsyncContextManager[AsyncTransaction]) -> None:
        self._portal = portal
        self._scope = scope
        self._entered: AsyncTransaction | None = None

    def __enter__(self) -> Self:
        self._entered = self._portal.deliver(self._abandon, self._scope.__aenter__)
        return self

    async def _abandon(self, entered: AsyncTransaction) -> None:
        """The block is never entered, so nobody would leave it."""
        error = ClientStateError("the program was interrupted as the transaction began")
        with suppress(ClientStateError):
            await self._scope.__aexit__(ClientStateError, error, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._portal.call(self._scope.__aexit__, kind, error, trace)

    @property
    def _target(self) -> AsyncTransaction:
        if self._entered is None:
            raise ClientStateError("the transaction has not begun; use it inside its `with`")
        return self._entered

    def rollback(self) -> None:
        """Forget the message when the block is left."""
        self._portal.run(self._target.rollback)

    def leave_open(self) -> None:
        """Decide nothing when the block is left: the check will be asked."""
        self._portal.run(self._target.leave_open)

    @property
    def transaction_id(self) -> str:
        """The id of the transaction: the unique id of its message."""
        return self._target.transaction_id

    @property
    def message(self) -> Message:
        """The half message as it was sent."""
        return self._target.message

    @property
    def sent(self) -> SendResult | None:
        """The answer to the half message."""
        return self._target.sent

    @property
    def state(self) -> TransactionState:
        """What was decided; UNKNOWN while the block runs."""
        return self._target.state

    @property
    def is_confirmed(self) -> bool:
        """Whether the broker has taken the decision."""
        return self._target.is_confirmed


class TransactionProducer(Scoped[AsyncTransactionProducer]):
    """Sends messages in transactions, for `with`. See `fusee.client.transaction`."""

    start = blocking(AsyncTransactionProducer.start)
    close = blocking(AsyncTransactionProducer.close)

    @property
    def group(self) -> str:
        return self._target.group

    def transaction(self, topic: str | Message, body: object = None, **options: Any) -> Transaction:
        """A transaction with this message, for `with`; options as in `fusee.client.transaction`."""
        made = self._portal.run(self._target.transaction, topic, body, **options)
        return Transaction(self._portal, made)

    def send_in_transaction(
        self, topic: str | Message, body: object = None, argument: object = None, **options: Any
    ) -> TransactionResult:
        """Send a half message, run `execute(message, argument)` in a thread, and end as it says."""
        return self._portal.call(self._target.send_in_transaction, topic, body, argument, **options)
