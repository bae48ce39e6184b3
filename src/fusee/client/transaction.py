"""Transactions: a message that is delivered exactly if something else succeeded (Java: TransactionMQProducer).

    begin     the message is stored as a half message, which nobody gets to see
    work      the local transaction runs: whatever has to succeed together with the message
    end       COMMIT delivers the message, ROLLBACK forgets it, UNKNOWN leaves it open
    check     a half message that is not decided after a while (6 s, looked for every 30 s) is asked about: the broker
              sends code 39 to some living producer of the group, which answers what its `check` says

The check is what makes this safe, and therefore required. It must find out from durable state, the same that the local
transaction changed, whether that transaction took place; it may be asked in another process than the one that began,
after that one has died. When the end is lost, because the producer or the connection broke between work and end, the
check decides. When a broker has asked 15 times in vain it puts the message aside (TRANS_CHECK_MAX_TIME_TOPIC).

What a broker can notice is as in Java, with these exceptions:

- COMMIT and ROLLBACK wait for the broker's answer, so that the caller learns whether the end has arrived
  (`is_confirmed`). An end without an answer is not sent again: it may have arrived, and a second COMMIT would deliver
  the message twice. The check decides then.
- A broker asks about a copy: each question moves the half message to the end of the half queue. While a transaction is
  open here, a question about it is not put to the application. It only moves the place that the end will name, so that
  no copy is left to be committed a second time.
- A half message whose sending failed or was cancelled, and the copy that a retry left on another broker, are rolled
  back when they are asked about: the application never began that transaction.
- Several questions about one transaction become one call of the check; the newest is answered.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusee.client import hooks as telling
from fusee.client.content import message_of
from fusee.client.hooks import EndTransactionContext, EndTransactionHook, TransactionState
from fusee.client.received import ReceivedMessage
from fusee.client.results import SendResult, SendStatus
from fusee.errors import (
    ClientStateError,
    ConfigError,
    FuseeError,
    MessageError,
    TooManyRequestsError,
    UnavailableError,
)
from fusee.message import properties as names
from fusee.message.flags import TransactionType
from fusee.message.ids import decode_offset_id
from fusee.message.model import Message
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.transaction import EndTransaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from fusee.client.producer import Producer
    from fusee.client.selection import Selector
    from fusee.message.model import MessageQueue, StoredMessage
    from fusee.wire.headers.transaction import CheckTransactionState

    Verdict = TransactionState | bool | None
    """What became of a local transaction: True is COMMIT, False is ROLLBACK, None is UNKNOWN."""

    Check = Callable[[ReceivedMessage], Verdict | Awaitable[Verdict]]
    Execute = Callable[[Message, Any], Verdict | Awaitable[Verdict]]

__all__ = ["Transaction", "TransactionProducer", "TransactionResult", "TransactionState"]

_log = logging.getLogger(__name__)

OPEN_MAX: Final = 10_000
_REMEMBERED_MAX: Final = 10_000
_REMARK_SIZE_MAX: Final = 1_024

_COMMIT_OR_ROLLBACK: Final = {
    TransactionState.COMMIT: TransactionType.COMMIT,
    TransactionState.ROLLBACK: TransactionType.ROLLBACK,
    TransactionState.UNKNOWN: TransactionType.NOT,
}
_CODES: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


class TransactionResult(msgspec.Struct, frozen=True, gc=False):
    """How a transaction went.

    `sent` is the answer to the half message. `is_confirmed` says that the broker has taken `state`; if not, and if the
    state is UNKNOWN, the check will decide.
    """

    sent: SendResult
    state: TransactionState
    is_confirmed: bool

    @property
    def message_id(self) -> str:
        """The unique id of the message, which is also the id of the transaction."""
        return self.sent.message_id


class _Place(msgspec.Struct, frozen=True, gc=False):
    """Where the half message lies, or the copy of it that was asked about last."""

    half_queue_offset: int
    log_offset: int
    was_asked: bool = False


class _Question(msgspec.Struct, frozen=True, gc=False):
    """A broker wants to know."""

    address: str
    header: Any
    message: Any


class Transaction:
    """One transaction as a block: entering sends the half message, leaving ends it.

    An exception that leaves the block rolls back and goes on its way. `rollback()` and `leave_open()` say beforehand
    what leaving shall do, and hold even when an exception follows: whoever cannot tell whether the local transaction
    took place (a database that did not answer the commit) leaves it open, and the check decides.

    Entering raises what `Producer.send` raises, and UnavailableError when the half message is stored less safely than
    the broker promises; the message is rolled back then. Leaving does not raise when the end cannot be delivered:
    the local transaction is done, and the check decides. `is_confirmed` tells.
    """

    def __init__(self, producer: TransactionProducer, message: Message, options: dict[str, Any]) -> None:
        """Made by `TransactionProducer.transaction`."""
        self._producer = producer
        self._options = options
        self._wanted: TransactionState | None = None
        self.message = message
        """The half message as it is sent."""
        self.sent: SendResult | None = None
        """The answer to the half message, once it is there."""
        self.state = TransactionState.UNKNOWN
        """What was decided; UNKNOWN while the block runs."""
        self.is_confirmed = False
        """Whether the broker has taken the decision."""
        self.place: _Place | None = None
        self.is_ending = False
        self.question: _Question | None = None

    @property
    def transaction_id(self) -> str:
        """The id of the transaction: the unique id of its message."""
        return self.message.unique_id or ""

    def rollback(self) -> None:
        """Forget the message when the block is left."""
        self._wanted = TransactionState.ROLLBACK

    def leave_open(self) -> None:
        """Decide nothing when the block is left: the check will be asked."""
        self._wanted = TransactionState.UNKNOWN

    async def __aenter__(self) -> Transaction:
        sent = await self._producer.begin(self, self._options)
        if sent.status is not SendStatus.SEND_OK:
            await self._producer.end(self, TransactionState.ROLLBACK)
            raise UnavailableError(
                f"the half message {sent.message_id} is stored less safely than broker {sent.queue.broker_name!r} "
                f"promises ({sent.status.name}), so the transaction was not begun and the message is rolled back; "
                "see whether the broker's disk and replicas keep up, and try again",
                code=_CODES[sent.status],
                topic=self.message.topic,
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state = self._wanted
        if state is None:
            state = TransactionState.COMMIT if error is None else TransactionState.ROLLBACK
        await self._producer.end(self, state, error)

    def __repr__(self) -> str:
        return f"<Transaction {self.transaction_id} of {self.message.topic}, {self.state.name}>"


class TransactionProducer:
    """Sends messages in transactions, and answers for those of its group that are not decided.

    `check` gets the half message and says what became of its transaction: a TransactionState, or True (commit), False
    (roll back), None (not known yet). `execute`, for `send_in_transaction`, gets the message and the argument, runs the
    local transaction and says the same. Both may be coroutine functions; plain functions run in threads. What they
    raise counts as not known.

    `topics` are those whose transactions may be open when this process starts: their brokers are told at once that
    this producer lives. Otherwise a producer that took over after a crash would be asked only after its first send.
    `check_thread_pool_max_size` checks run at a time, `check_request_hold_max` wait; beyond that questions are
    dropped, and the broker asks again.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        check: Check,
        execute: Execute | None = None,
        topics: Iterable[str] = (),
        check_thread_pool_max_size: int = 4,
        check_request_hold_max: int = 2_000,
        hooks: Sequence[EndTransactionHook] = (),
    ) -> None:
        """`producer` is of a group of its own, and is started and closed with this object."""
        if not callable(check):
            raise ConfigError("a transaction producer needs check=, which says what became of a transaction")
        if check_thread_pool_max_size < 1 or check_request_hold_max < 1:
            raise ConfigError("check_thread_pool_max_size and check_request_hold_max must be positive")
        self.producer = producer
        self._session = producer.session
        self._check = check
        self._execute = execute
        self._topics = tuple(topics)
        self._hooks = tuple(hooks)
        self._checks_max = check_thread_pool_max_size
        self._questions_max = check_request_hold_max
        self._open: dict[str, Transaction] = {}
        self._decided: OrderedDict[str, tuple[TransactionState, str]] = OrderedDict()
        self._questions: dict[str, _Question] = {}
        self._being_checked: dict[str, _Question] = {}
        self._checkers: set[asyncio.Task[None]] = set()
        self._is_closed = False
        producer.transaction_checker = self.check_transaction

    @property
    def group(self) -> str:
        """The producer group whose members brokers ask how a transaction ended."""
        return self.producer.group

    async def start(self) -> None:
        """Start, and be known to the brokers of `topics`. Raises TopicNotFoundError, ConnectError."""
        await self.producer.start()
        try:
            for topic in self._topics:
                await self._session.publish_route(topic)
            await self._session.heartbeat_all()
        except BaseException:
            await self.producer.close()
            raise

    async def close(self) -> None:
        """Answer no more questions, and close the producer. Transactions still open are left to the check."""
        self._is_closed = True
        self._questions.clear()
        for task in self._checkers:
            task.cancel()
        await asyncio.gather(*self._checkers, return_exceptions=True)
        await self.producer.close()

    async def __aenter__(self) -> TransactionProducer:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # The application's side

    def transaction(
        self,
        topic: str | Message,
        body: object = None,
        *,
        tag: str | None = None,
        key: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        order_by: object = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        selector_argument: object = None,
        check_immunity_s: int | None = None,
        timeout_ms: int | None = None,
    ) -> Transaction:
        """A transaction with this message, for `async with`.

        `check_immunity_s` is how long the broker shall not ask, for work that takes longer than the 6 seconds it
        waits by itself. Raises MessageError: a message in a transaction cannot be delayed.
        """
        if not isinstance(topic, Message):
            topic = message_of(
                topic, body, tag=tag, key=key, keys=keys, properties=properties, flag=flag, order_by=order_by
            )
        if topic.is_delayed:
            raise MessageError(
                "a message in a transaction cannot be delayed: it is delivered when the transaction commits; leave "
                "out the delay, or send the delayed message after the commit"
            )
        more = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.group}
        if topic.unique_id is None:
            more[names.UNIQ_KEY] = self._session.unique_ids.next_id()
        if check_immunity_s is not None:
            more[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(check_immunity_s)
        options = {
            "order_by": order_by,
            "queue": queue,
            "selector": selector,
            "selector_argument": selector_argument,
            "timeout_ms": timeout_ms,
        }
        return Transaction(self, topic.with_properties(more), options)

    async def send_in_transaction(
        self,
        topic: str | Message,
        body: object = None,
        argument: object = None,
        *,
        execute: Execute | None = None,
        **options: Any,
    ) -> TransactionResult:
        """Send a half message, run `execute(message, argument)`, and end as it says.

        `options` are those of `transaction`. When `execute` raises, the transaction is left open, as the check must
        find out how far it came, and the exception goes on. As in Java, `execute` is not run and the message is
        rolled back when it is stored less safely than the broker promises; the result says so.
        """
        execute = execute or self._execute
        if execute is None:
            raise ConfigError("send_in_transaction needs execute=, here or when the producer is made")
        transaction = self.transaction(topic, body, **options)
        sent = await self.begin(transaction, transaction._options)
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            state = TransactionState.UNKNOWN
            try:
                state = _state(await _call(execute, transaction.message, argument))
            except BaseException as error:
                await self.end(transaction, TransactionState.UNKNOWN, error)
                error.add_note(f"the transaction of message {sent.message_id} is left open; the check will decide")
                raise
        await self.end(transaction, state)
        return TransactionResult(sent, transaction.state, transaction.is_confirmed)

    # Begin and end

    async def begin(self, transaction: Transaction, options: dict[str, Any]) -> SendResult:
        """Send the half message of this transaction."""
        if self._is_closed:
            raise ClientStateError(f"the transaction producer of group {self.group!r} is closed")
        transaction_id = transaction.transaction_id
        if len(self._open) >= OPEN_MAX:
            raise TooManyRequestsError(f"{len(self._open)} transactions are open, which is the limit; end some first")
        if transaction_id in self._open or transaction.sent is not None:
            raise ClientStateError(f"the transaction {transaction_id} has begun already; make another one")
        self._open[transaction_id] = transaction
        self._decided.pop(transaction_id, None)
        try:
            sent = await self.producer.send(transaction.message, **options)
            place = _Place(sent.queue_offset, decode_offset_id(sent.offset_id).log_offset)
        except BaseException:
            self._leave(transaction, TransactionState.ROLLBACK)
            raise
        transaction.sent = sent
        transaction.place = place
        return sent

    async def end(self, transaction: Transaction, state: TransactionState, error: BaseException | None = None) -> None:
        """Tell the broker what became of this transaction. Never raises for what the network or the broker does.

        Once begun it goes on even if the caller is cancelled: half an end would leave the broker to ask.
        """
        transaction.state = state
        transaction.is_ending = True
        await asyncio.shield(self._session.spawn(self._end(transaction, state, error)))

    async def _end(self, transaction: Transaction, state: TransactionState, error: BaseException | None) -> None:
        sent, place = transaction.sent, transaction.place
        assert sent is not None
        assert place is not None
        broker_name = sent.queue.broker_name
        address = self._session.master_address(broker_name)
        header = EndTransaction(
            topic=transaction.message.topic,
            producer_group=self.group,
            half_queue_offset=place.half_queue_offset,
            log_offset=place.log_offset,
            commit_or_rollback=_COMMIT_OR_ROLLBACK[state],
            from_transaction_check=place.was_asked,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id or None,
            broker_name=broker_name,
        )
        self._tell(transaction.message, address or "", sent.message_id, state, from_check=place.was_asked)
        try:
            if address is None:
                raise UnavailableError(
                    f"broker {broker_name!r} has no master now",
                    code=ResponseCode.SERVICE_NOT_AVAILABLE,
                )
            if state is TransactionState.UNKNOWN:
                remark = "" if error is None else f"executeLocalTransactionBranch exception: {_one_line(error)}"
                await self._session.calls.end_transaction(address, header, remark)
            else:
                await self._session.calls.request(
                    address, RequestCode.END_TRANSACTION, header, topic=transaction.message.topic
                )
                transaction.is_confirmed = True
        except FuseeError as failure:
            _log.warning(
                "transaction %s: %s is not confirmed, the check will decide: %s", sent.message_id, state.name, failure
            )
        finally:
            self._leave(transaction, state)

    def _leave(self, transaction: Transaction, state: TransactionState) -> None:
        """The transaction is no longer open here; remember what may be answered without asking the application."""
        self._open.pop(transaction.transaction_id, None)
        if state is TransactionState.ROLLBACK or transaction.is_confirmed:
            broker_name = transaction.sent.queue.broker_name if transaction.sent is not None else ""
            self._decided[transaction.transaction_id] = (state, broker_name)
            if len(self._decided) > _REMEMBERED_MAX:
                self._decided.popitem(last=False)
        question, transaction.question = transaction.question, None
        if question is not None:
            self._ask(transaction.transaction_id, question)

    # The broker's side

    def check_transaction(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        """A broker asks what became of the transaction of this half message (code 39)."""
        if self._is_closed:
            return
        question = _Question(address, header, message)
        transaction_id = message.unique_id or header.transaction_id or message.message_id
        transaction = self._open.get(transaction_id)
        if transaction is None:
            self._ask(transaction_id, question)
            return
        if transaction.sent is None:
            return  # not even begun; the broker will ask again
        is_there = self._comes_from(transaction.sent.queue.broker_name, question)
        if is_there is False:
            self._answer(question, TransactionState.ROLLBACK)
        elif transaction.is_ending:
            transaction.question = question
        elif is_there:
            transaction.place = _Place(header.half_queue_offset, header.log_offset, was_asked=True)

    def _comes_from(self, broker_name: str, question: _Question) -> bool | None:
        """Whether this broker asks; None when that cannot be told, as brokers before 5.0 do not say their name."""
        if question.header.broker_name:
            return bool(question.header.broker_name == broker_name)
        return True if self._session.master_address(broker_name) == question.address else None

    def _ask(self, transaction_id: str, question: _Question) -> None:
        decided = self._decided.get(transaction_id)
        if decided is not None:
            state, broker_name = decided
            if state is TransactionState.ROLLBACK or self._comes_from(broker_name, question) is False:
                self._answer(question, TransactionState.ROLLBACK)
                return
            # Committed, and asked all the same: the broker has lost the commit, or this is the copy of a retry. A
            # message too many is better than one too few, so the application says it once more.
        if transaction_id in self._being_checked:
            # The newest question is about the copy that counts.
            self._being_checked[transaction_id] = question
            return
        if transaction_id not in self._questions and len(self._questions) >= self._questions_max:
            _log.warning(
                "group %s: %d questions about transactions wait, which is the limit; the broker will ask again",
                self.group,
                len(self._questions),
            )
            return
        self._questions[transaction_id] = question
        if len(self._checkers) < self._checks_max:
            task = self._session.spawn(self._check_all())
            self._checkers.add(task)
            task.add_done_callback(self._checkers.discard)

    async def _check_all(self) -> None:
        """Put questions to the application, one after the other, until there are none."""
        while self._questions:
            transaction_id = next(iter(self._questions))
            self._being_checked[transaction_id] = question = self._questions.pop(transaction_id)
            try:
                state, remark = await self._verdict(question)
            finally:
                question = self._being_checked.pop(transaction_id)
            self._answer(question, state, remark)

    async def _verdict(self, question: _Question) -> tuple[TransactionState, str]:
        name = question.header.broker_name or ""
        try:
            return _state(await _call(self._check, ReceivedMessage.of(question.message, name))), ""
        except Exception as error:  # noqa: BLE001 - the call of a user's listener
            _log.exception("group %s: the check of transaction %s failed", self.group, question.message.message_id)
            return TransactionState.UNKNOWN, f"checkLocalTransactionState Exception: {_one_line(error)}"

    def _answer(self, question: _Question, state: TransactionState, remark: str = "") -> None:
        message, asked = question.message, question.header
        header = EndTransaction(
            topic=asked.topic or message.topic,
            producer_group=self.group,
            half_queue_offset=asked.half_queue_offset,
            log_offset=asked.log_offset,
            commit_or_rollback=_COMMIT_OR_ROLLBACK[state],
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=asked.transaction_id,
            broker_name=asked.broker_name,
        )
        if self._hooks:
            half = Message(message.topic, message.body, message.properties, message.flag)
            self._tell(half, question.address, message.message_id, state, from_check=True)
        self._session.spawn(self._session.calls.end_transaction(question.address, header, remark))

    def _tell(
        self, message: Message, address: str, message_id: str, state: TransactionState, *, from_check: bool
    ) -> None:
        if self._hooks:
            telling.end_transaction(
                self._hooks,
                EndTransactionContext(
                    group=self.group,
                    message=message,
                    broker_address=address,
                    message_id=message_id,
                    transaction_id=message.unique_id or "",
                    state=state,
                    from_check=from_check,
                ),
            )


async def _call(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function of the application returns; a plain one runs in a thread, as it may block."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(*arguments)
    answer = await asyncio.to_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer


def _state(verdict: object) -> TransactionState:
    if isinstance(verdict, TransactionState):
        return verdict
    if verdict is None:
        return TransactionState.UNKNOWN
    if isinstance(verdict, bool):
        return TransactionState.COMMIT if verdict else TransactionState.ROLLBACK
    raise TypeError(f"what became of a transaction is a TransactionState, True, False or None, not {verdict!r}")


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_REMARK_SIZE_MAX]
