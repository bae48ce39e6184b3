"""The end of a transaction as its producer wants it (Java: EndTransactionProcessor); a new life for one given up."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from fusee.broker.check_back import immunity_ms
from fusee.broker.rewrites import copy_of, with_property
from fusee.errors import FuseeError, MessageError, StoreBusyError, StoreError
from fusee.message import properties as names
from fusee.message.flags import TransactionType
from fusee.message.ids import decode_offset_id
from fusee.message.properties import find_property
from fusee.message.record import decode_record
from fusee.message.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from fusee.transport.router import Reply
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.transaction import EndTransaction, ResumeCheckHalfMessage

if TYPE_CHECKING:
    from fusee.broker.ack_gate import PutStatus
    from fusee.broker.config import BrokerConfig
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.transactions import Transactions
    from fusee.clock import Clock
    from fusee.message.model import StoredMessage
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)

_PRODUCER_GROUP: Final = names.PRODUCER_GROUP.encode()
_CHECK_TIMES: Final = names.TRANSACTION_CHECK_TIMES.encode()
_NOT_PUT_BACK: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
_NOT_FOUND_TO_PUT_BACK: Final = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."


class TransactionHandlers:
    """Codes 37 and 323."""

    def __init__(self, *, config: BrokerConfig, writer: LogWriter, transactions: Transactions, clock: Clock) -> None:
        self.config = config
        self._writer = writer
        self._transactions = transactions
        self._clock = clock

    def routes(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(self, command: Command, link: Link) -> Command | Reply | None:
        """Commit or roll back. A producer that does not know either gets no answer at all."""
        header = command.read(EndTransaction)
        if not self.config.is_master:
            return command.reply(ResponseCode.SLAVE_NOT_AVAILABLE)
        if header.commit_or_rollback == TransactionType.NOT:
            return None
        if header.commit_or_rollback not in (TransactionType.COMMIT, TransactionType.ROLLBACK):
            return command.reply(
                ResponseCode.SYSTEM_ERROR,
                remark=f"commitOrRollback={header.commit_or_rollback}: 8 commits, 12 rolls back, 0 leaves it open",
            )
        data = self._writer.store.record_at(header.log_offset)
        half = None if data is None else decode_record(data)
        if half is None or half.topic != HALF_TOPIC:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="Find prepared transaction message failed")
        if not header.from_transaction_check and self._is_too_late(half):
            _log.warning("%s decides about %s too late; it will be asked", link.remote_address, header.msg_id)
            return command.reply(ResponseCode.ILLEGAL_OPERATION)
        problem = _mismatch(half, header)
        if problem:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=problem)
        try:
            if header.commit_or_rollback == TransactionType.ROLLBACK:
                self._transactions.roll_back(half)
                return command.reply()
            reply = Reply(command, link)
            self._transactions.commit(half, partial(self._committed, reply))
        except (MessageError, StoreError) as error:
            return self._refusal(command, error)
        return reply

    def _is_too_late(self, half: StoredMessage) -> bool:
        """Whether the time is over in which the producer was not to be asked: from then on only its answers count."""
        timeout_ms = self.config.transaction_time_out
        immune_ms = immunity_ms(half, timeout_ms)
        return immune_ms is not None and self._clock.time_ms() - half.born_timestamp_ms > max(immune_ms, timeout_ms)

    def _committed(self, reply: Reply, status: PutStatus) -> None:
        command = reply.request
        if status.is_stored:
            reply.send(command.reply())
        else:
            reply.send(command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="Service not available now."))

    def _refusal(self, command: Command, error: MessageError | StoreError) -> Command:
        if isinstance(error, MessageError):
            return command.reply(
                ResponseCode.MESSAGE_ILLEGAL,
                remark="The message is illegal, maybe msg body or properties length not matched. msg body length limit "
                f"{self._writer.store.config.max_message_size}B, msg properties length limit 32KB.",
            )
        if isinstance(error, StoreBusyError):
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="OS page cache busy, please try another machine")
        return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark="Service not available now.")

    def resume(self, command: Command, link: Link) -> Command | Reply:
        """Put a half message that was given up back, its checks forgotten, so that its producer is asked again."""
        header = command.read(ResumeCheckHalfMessage)
        try:
            data = self._writer.store.record_at(decode_offset_id(header.msg_id or "").log_offset)
        except MessageError:
            data = None
        message = None if data is None else decode_record(data)
        if message is None or message.topic != CHECK_MAX_TIME_TOPIC:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=_NOT_FOUND_TO_PUT_BACK)
        record = copy_of(message, HALF_TOPIC, 0, with_property(message.properties_bytes, _CHECK_TIMES, 0))
        try:
            result = self._writer.put(record)
        except FuseeError:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=_NOT_PUT_BACK)
        reply = Reply(command, link)
        self._writer.when_stored(result, partial(self._resumed, reply), wait=False)
        return reply

    def _resumed(self, reply: Reply, status: PutStatus) -> None:
        command = reply.request
        if status.is_stored:
            reply.send(command.reply())
        else:
            reply.send(command.reply(ResponseCode.SYSTEM_ERROR, remark=_NOT_PUT_BACK))


def _mismatch(half: StoredMessage, header: EndTransaction) -> str | None:
    """What contradicts that this is the half message which the producer means."""
    group = find_property(half.properties_bytes, _PRODUCER_GROUP)
    if group is None or group.decode("utf-8", "replace") != header.producer_group:
        return "The producer group wrong"
    if half.queue_offset != header.half_queue_offset:
        return "The transaction state table offset wrong"
    if half.log_offset != header.log_offset:
        return "The commit log offset wrong"
    return None
