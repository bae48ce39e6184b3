"""Transactions seen from outside: those without a decision, ending one by hand, those that were given up.

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC. It is decided when an op record in RMQ_SYS_TRANS_OP_HALF_TOPIC names
its queue offset; brokers write those with a delay of some seconds, so what was decided just now may still be told as
pending. Everything before the offset that CID_RMQ_SYS_TRANS has committed is decided, or was copied to the end when
its producer was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from fusee.admin.browse import QueueCursor
from fusee.admin.fan_out import ask_all
from fusee.admin.redelivery import RedeliveryCalls
from fusee.admin.views import PendingTransaction, PendingTransactions
from fusee.errors import ConfigError, InvalidRequestError, NotFoundError, RemoteFailureError, TopicNotFoundError
from fusee.filter.subscription import parse_subscription
from fusee.message import properties as names
from fusee.message.flags import TransactionType
from fusee.message.model import MessageQueue
from fusee.message.topics import CHECK_MAX_TIME_TOPIC, HALF_OP_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.transaction import EndTransaction

if TYPE_CHECKING:
    from fusee.admin.views import BrokerAddress
    from fusee.client.received import ReceivedMessage

PENDING_MAX: Final = 1_000

_HALF_QUEUE: Final = 0
# Half messages are read from the oldest that may be open; a broker holds many of them only when it is in trouble.
_SCANNED_MAX: Final = 200_000


class TransactionCalls(RedeliveryCalls):
    """Half messages."""

    async def pending_transactions(
        self, *, cluster: str | None = None, broker: str | None = None, limit: int = PENDING_MAX
    ) -> PendingTransactions:
        """The transactions that wait for a decision, oldest first, of one broker or of every master."""
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await ask_all(brokers, lambda place: self._pending_at(place, limit))
        answers.some("tell the transactions")
        found = sorted(
            (each for pending, _ in answers.values for each in pending),
            key=lambda each: each.message.born_timestamp_ms,
        )
        is_all = all(complete for _, complete in answers.values) and len(found) <= limit
        return PendingTransactions(transactions=tuple(found[:limit]), is_all=is_all, failures=answers.failures)

    async def pending_transaction(self, transaction_id: str) -> PendingTransaction:
        """The transaction of this id, or of this unique id or offset id of its half message. Raises NotFoundError."""
        found = await self.pending_transactions(limit=_SCANNED_MAX)
        for each in found.transactions:
            if transaction_id in (each.transaction_id, each.message.message_id, each.message.offset_id):
                return each
        raise NotFoundError(
            f"no transaction {transaction_id} is pending: it was committed, rolled back or given up, or never began",
            code=ResponseCode.NO_MESSAGE,
        )

    async def end_transaction(self, pending: PendingTransaction, verdict: Literal["commit", "rollback"]) -> None:
        """Decide in place of the producer: deliver the message, or forget it.

        Raises NotFoundError when the half message is gone, InvalidRequestError with the broker's words when it does
        not take the decision. Whoever does this must know what the producer's own transaction came to.
        """
        if verdict not in ("commit", "rollback"):
            raise ConfigError(f"{verdict!r} is no verdict; give 'commit' or 'rollback'")
        half = pending.message
        header = EndTransaction(
            topic=pending.topic,
            producer_group=pending.producer_group,
            half_queue_offset=half.queue_offset,
            log_offset=half.log_offset,
            commit_or_rollback=TransactionType.COMMIT if verdict == "commit" else TransactionType.ROLLBACK,
            from_transaction_check=True,  # otherwise brokers refuse what comes later than they would have asked
            msg_id=half.message_id,
            transaction_id=pending.transaction_id or None,
        )
        place = await self._one_broker(half.broker_name)
        try:
            await self._ask(place.address, RequestCode.END_TRANSACTION, header)
        except RemoteFailureError as error:
            if "Find prepared transaction message failed" in str(error):
                raise NotFoundError(str(error), code=error.code, address=place.address) from error
            raise InvalidRequestError(str(error), code=error.code, address=place.address) from error

    async def abandoned_transactions(self, *, limit: int = PENDING_MAX) -> tuple[ReceivedMessage, ...]:
        """Half messages that were given up because their producer never decided, oldest first.

        `resume_half_message` lets the producer be asked again.
        """
        try:
            return await self.messages_between(CHECK_MAX_TIME_TOPIC, limit=limit)
        except TopicNotFoundError:
            return ()

    # Within

    async def _pending_at(self, place: BrokerAddress, limit: int) -> tuple[list[PendingTransaction], bool]:
        """What is open at a broker, and whether that is all."""
        halves = MessageQueue(HALF_TOPIC, place.broker_name, _HALF_QUEUE)
        calls = self._session.calls
        end = await calls.max_offset(place.address, HALF_TOPIC, _HALF_QUEUE)
        first = await self._first_open(place, halves)
        decided = await self._decided(place, first) if first < end else set()
        open_by_id: dict[str, PendingTransaction] = {}
        cursor = self._cursor(place, halves, first, end)
        scanned = 0
        while scanned < _SCANNED_MAX and (message := await cursor.next()) is not None:
            scanned += 1
            pending = _pending(message)
            if message.queue_offset in decided:
                open_by_id.pop(pending.transaction_id, None)  # an earlier copy of the same is decided with it
            else:
                open_by_id[pending.transaction_id] = pending
        found = list(open_by_id.values())
        return found[:limit], scanned < _SCANNED_MAX and len(found) <= limit

    async def _first_open(self, place: BrokerAddress, queue: MessageQueue) -> int:
        committed = await self._committed_at(place, TRANSACTION_GROUP, queue)
        first = await self._session.calls.min_offset(place.address, queue.topic, queue.queue_id)
        return max(committed or 0, first)

    async def _decided(self, place: BrokerAddress, first: int) -> set[int]:
        """Offsets of half messages, from `first` on, that op records name."""
        queue = MessageQueue(HALF_OP_TOPIC, place.broker_name, _HALF_QUEUE)
        end = await self._session.calls.max_offset(place.address, HALF_OP_TOPIC, _HALF_QUEUE)
        cursor = QueueCursor(
            self._session.calls,
            place.address,
            queue,
            start_offset=await self._first_open(place, queue),
            end_offset=end,
            subscription=parse_subscription(HALF_OP_TOPIC, "*"),
        )
        decided: set[int] = set()
        while (record := await cursor.next()) is not None:
            numbers = record.body.decode("ascii", "replace").split(",")
            decided.update(at for number in numbers if number.isdigit() and (at := int(number)) >= first)
        return decided


def _pending(message: ReceivedMessage) -> PendingTransaction:
    properties = message.properties
    times = properties.get(names.TRANSACTION_CHECK_TIMES, "0")
    return PendingTransaction(
        message=message,
        topic=properties.get(names.REAL_TOPIC, ""),
        producer_group=properties.get(names.PRODUCER_GROUP, ""),
        transaction_id=properties.get(names.TRANSACTION_ID) or message.message_id,
        check_times=int(times) if times.isdigit() else 0,
    )
