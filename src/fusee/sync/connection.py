"""`fusee.sync.connect`: one object for everything a blocking program does with a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Self

from fusee.client.config import ServiceState
from fusee.connection import Connection as AsyncConnection
from fusee.connection import connect as async_connect
from fusee.sync.admin import Admin
from fusee.sync.consuming import Consumer, PullConsumer
from fusee.sync.facade import blocking, making, on_loop
from fusee.sync.portal import portal
from fusee.sync.sending import Producer, Sender, Transaction, TransactionProducer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from fusee.client.received import ReceivedMessage
    from fusee.client.subscriptions import Topics
    from fusee.client.transaction import Check, Execute, TransactionResult
    from fusee.message.model import Message
    from fusee.sync.portal import Portal

P = ParamSpec("P")


class Connection(Sender[AsyncConnection]):
    """A cluster, as one program sees it; a context manager. Any number of threads may use it."""

    def __init__(self, portal: Portal, target: AsyncConnection) -> None:
        super().__init__(portal, target)
        self._consumers: list[Consumer] = []

    def _adopt(self, made: object) -> None:
        if isinstance(made, Consumer):
            self._consumers = [*filter(_is_needed, self._consumers), made]

    @classmethod
    def opened(cls, here: Portal, make: Callable[[], AsyncConnection]) -> Self:
        """The connection that `make` makes, started. Raises ConnectError when no name server answers."""
        target = here.run(make)
        here.deliver(AsyncConnection.close, target.start)
        here.keep(target, target.close)
        return cls(here, target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what was made through this connection and still runs, then the connection. May be called again."""
        for consumer in self._consumers:
            consumer._leave_loops()
        self._portal.call(self._target.close)
        self._portal.release(self._target)
        for consumer in self._consumers:
            consumer._release()

    @property
    def state(self) -> ServiceState:
        """Where in its life it is."""
        return self._target.state

    @property
    def client_id(self) -> str:
        """Who brokers think this is."""
        return self._target.client_id

    @property
    def admin(self) -> Admin:
        """Topics, groups, offsets, messages, brokers: one call for each operation."""
        return Admin(self._portal, self._portal.run(lambda: self._target.admin))

    # Sending

    reply = blocking(AsyncConnection.reply)

    def request(
        self, topic: str | Message, body: object = None, *, timeout_ms: int = 3_000, **options: Any
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it. See `fusee.Connection.request`."""
        return self._portal.call(self._target.request, topic, body, timeout_ms=timeout_ms, **options)

    producer = making(AsyncConnection.producer, Producer)

    # Transactions

    def transaction(
        self, topic: str | Message, body: object = None, *, check: Check, group: str = "", **options: Any
    ) -> Transaction:
        """Send a message in a transaction, for `with`: leaving the block commits, an exception rolls back.

        `check` runs in a thread. See `fusee.Connection.transaction`.
        """
        scope = self._portal.run(self._target.transaction, topic, body, check=check, group=group, **options)
        return Transaction(self._portal, scope)

    def send_in_transaction(
        self,
        topic: str | Message,
        body: object = None,
        argument: object = None,
        *,
        execute: Execute,
        check: Check,
        group: str = "",
        **options: Any,
    ) -> TransactionResult:
        """The same with a listener: `execute(message, argument)` is the local transaction and says how it ended."""
        return self._portal.call(
            self._target.send_in_transaction,
            topic,
            body,
            argument,
            execute=execute,
            check=check,
            group=group,
            **options,
        )

    transaction_producer = making(AsyncConnection.transaction_producer, TransactionProducer)

    # Consuming: a listener is called in threads, `consume_thread_max` at a time

    consumer = making(AsyncConnection.consumer, Consumer)

    def pull_consumer(self, topics: Topics | None = None, *, group: str, **options: Any) -> PullConsumer:
        """A consumer that polls, for `with`; without topics, `subscribe` or `assign` follow. See PullConsumer."""
        made = self._portal.run(self._target.pull_consumer, topics, group=group, **options)
        return PullConsumer(self._portal, made)

    # Handlers

    handler = on_loop(AsyncConnection.handler)
    start_handlers = blocking(AsyncConnection.start_handlers)
    run = blocking(AsyncConnection.run)


def _is_needed(consumer: Consumer) -> bool:
    """Whether this is to be closed some time; lets go of it otherwise."""
    if consumer.state is ServiceState.SHUTDOWN_ALREADY:
        consumer._release()
        return False
    return True


def _blocking_connect(make: Callable[P, AsyncConnection]) -> Callable[P, Connection]:
    def connect(*args: P.args, **kwargs: P.kwargs) -> Connection:
        """Connect to the cluster of these name servers; arguments and errors as of `fusee.connect`.

        The connection is open when this returns. Close it, or use it as `with`; what is open at the end of the
        program is closed then.
        """
        return Connection.opened(portal(), lambda: make(*args, **kwargs))

    return connect


connect = _blocking_connect(async_connect)
