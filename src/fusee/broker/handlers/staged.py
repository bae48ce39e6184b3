"""Requests of staged batches: stage, commit, drop, and how far an application is (codes 60001 to 60004)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.ack_gate import UNAVAILABLE, PutStatus
from fusee.broker.rewrites import delay_level_of
from fusee.broker.send_checks import remote_host
from fusee.broker.staged_records import Part, part_record
from fusee.errors import InvalidRequestError, MessageError, StoreBusyError, StoreError
from fusee.message import properties as names
from fusee.message.flags import SysFlag
from fusee.message.properties import find_property
from fusee.message.topics import RETRY_PREFIX
from fusee.store.batch_body import BatchBody
from fusee.transport.router import Reply
from fusee.wire.bodies.staged import StagedParts, StagedTransactions
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.send import SendMessageV2
from fusee.wire.headers.staged import (
    CommitStagedBatch,
    CommitStagedBatchResponse,
    DropStagedBatch,
    DropStagedBatchResponse,
    GetStagedBatch,
    GetStagedBatchResponse,
    StageMessages,
    StageMessagesResponse,
)
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from fusee.broker.config import BrokerConfig
    from fusee.broker.handovers import Handovers
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.send_checks import SendChecks
    from fusee.broker.staged_batches import StagedBatches
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.bodies.topic import TopicConfig

APPLICATION_SIZE_MAX: Final = 255
TRANSACTION_SIZE_MAX: Final = 255
_TIMER_NAMES: Final = tuple(
    name.encode() for name in (names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS)
)
_MARK: Final = b"DEL"
"""What DELAY and all names of timers have in common."""


class StagedHandlers:
    """Codes 60001 to 60004."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        writer: LogWriter,
        checks: SendChecks,
        staged: StagedBatches,
        store_host: bytes,
        handovers: Handovers,
    ) -> None:
        self.config = config
        self._writer = writer
        self._checks = checks
        self._staged = staged
        self._store_host = store_host
        self._handovers = handovers

    def routes(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.STAGE_MESSAGES: self.stage,
            RequestCode.COMMIT_STAGED_BATCH: self.commit,
            RequestCode.DROP_STAGED_BATCH: self.drop,
            RequestCode.GET_STAGED_BATCH: self.get,
        }

    def stage(self, command: Command, link: Link) -> Command | Reply:
        """Put messages aside."""
        header = command.read(StageMessages)
        _check_name("application", header.application, APPLICATION_SIZE_MAX)
        _check_name("transaction", header.transaction, TRANSACTION_SIZE_MAX)
        if header.batch_id < 0 or header.sequence < 0 or header.queue_id < 0:
            raise _invalid("batchId, sequence and queueId count from 0")
        if not self.config.is_master:
            return self._not_master(command)
        if header.batch_id <= self._staged.state.last_batch_id(header.application):
            return command.reply(header=StageMessagesResponse(already_committed=True))
        send = SendMessageV2(
            producer_group="",
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=0,
            born_timestamp_ms=header.born_timestamp_ms,
            flag=0,
        )
        topic_config = self._checks.check(command, send, link)
        if isinstance(topic_config, Command):
            return topic_config
        if header.handed_at is not None:
            command.body = bytes(self._handovers.view(link, header.handed_at, header.handed_size or 0))
        try:
            count = self._count(command.body, topic_config)
        except MessageError as error:
            return command.reply(ResponseCode.MESSAGE_ILLEGAL, remark=f"the staged messages are illegal: {error}")
        sys_flag = SysFlag.MULTI_TAGS if topic_config.topic_filter_type == "MULTI_TAG" else 0
        fields = {
            "application": header.application,
            "batch_id": header.batch_id,
            "transaction": header.transaction,
            "sequence": header.sequence,
            "count": count,
            "topic": header.topic,
            "queue_id": header.queue_id,
        }
        record = part_record(
            **fields,  # type: ignore[arg-type]
            body=command.body,
            sys_flag=sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=remote_host(link),
            store_host=self._store_host,
        )
        part = Part(**fields, log_offset=-1, queue_offset=-1, size=0, time_ms=0)  # type: ignore[arg-type]
        reply = Reply(command, link)
        try:
            self._staged.stage(record, part, partial(self._stage_done, reply))
        except (MessageError, StoreError) as error:
            return _refusal(command, error)
        return reply

    def _count(self, body: bytes, topic_config: TopicConfig) -> int:
        """How many messages a part has. Raises MessageError when they could not be published as they are."""
        topic = topic_config.topic_name
        if topic.startswith(RETRY_PREFIX):
            raise MessageError(f"a batch cannot go to the retry topic {topic}")
        if topic_config.attributes.get("queue.type") == "BatchCQ":
            raise MessageError(f"{topic} has queues of batches (queue.type=BatchCQ), which take no staged messages")
        size_max = self._writer.store.config.max_message_size
        if len(body) > size_max:
            raise MessageError(f"{len(body)} bytes in one part, limit {size_max} (maxMessageSize)")
        batch = BatchBody(body)
        if not batch.count:
            raise MessageError("a part without messages")
        if batch.has_in_properties(_MARK):
            for number, element in enumerate(batch.elements):
                properties = element.properties_bytes
                if delay_level_of(properties) is None:
                    raise MessageError(f"DELAY of message {number} is no number")
                for name in _TIMER_NAMES:
                    if find_property(properties, name) is not None:
                        raise MessageError(
                            f"{name.decode()} of message {number}: accurate timer message is not enabled, "
                            "timerWheelEnable is false"
                        )
        return batch.count

    def _stage_done(self, reply: Reply, status: PutStatus) -> None:
        command = reply.request
        if status.is_stored:
            reply.send(command.reply(header=StageMessagesResponse()))
        else:
            reply.send(command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=UNAVAILABLE))

    def commit(self, command: Command, link: Link) -> Command | Reply:
        """Publish a batch."""
        header = command.read(CommitStagedBatch)
        _check_name("application", header.application, APPLICATION_SIZE_MAX)
        if header.batch_id < 0:
            raise _invalid("batchId counts from 0")
        if not self.config.is_master:
            return self._not_master(command)
        parts = decode_json(command.body, StagedParts)
        reply = Reply(command, link)
        try:
            self._staged.commit(
                header.application,
                header.batch_id,
                parts,
                partial(self._commit_done, reply, header),
                one_shot=header.one_shot,
            )
        except (MessageError, StoreError) as error:
            return _refusal(command, error)
        return reply

    def _commit_done(
        self, reply: Reply, header: CommitStagedBatch, status: PutStatus, already: bool, messages: int
    ) -> None:
        command = reply.request
        if not status.is_stored:
            reply.send(command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=UNAVAILABLE))
            return
        answer = CommitStagedBatchResponse(
            already_committed=already,
            last_batch_id=self._staged.state.last_batch_id(header.application),
            messages=messages,
        )
        reply.send(command.reply(status.code, answer))

    def drop(self, command: Command, link: Link) -> Command | Reply:
        """Forget what an attempt has staged."""
        header = command.read(DropStagedBatch)
        if not self.config.is_master:
            return self._not_master(command)
        wanted = decode_json(command.body, StagedTransactions)
        reply = Reply(command, link)
        try:
            self._staged.drop(header.application, wanted.transactions, partial(self._drop_done, reply))
        except (MessageError, StoreError) as error:
            return _refusal(command, error)
        return reply

    def _drop_done(self, reply: Reply, status: PutStatus, count: int) -> None:
        command = reply.request
        if status.is_stored:
            reply.send(command.reply(header=DropStagedBatchResponse(dropped=count)))
        else:
            reply.send(command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=UNAVAILABLE))

    def get(self, command: Command, link: Link) -> Command:
        """How far an application is."""
        header = command.read(GetStagedBatch)
        if not self.config.is_master:
            return self._not_master(command)
        found = self._staged.state.get(header.application)
        decision = self._staged.decision(header.application)
        answer = GetStagedBatchResponse(
            last_batch_id=self._staged.state.last_batch_id(header.application),
            transactions=0 if found is None else len(found.transactions),
            staged_bytes=0 if found is None else sum(each.size for each in found.transactions.values()),
        )
        parts = StagedParts()
        if decision is not None:
            parts = StagedParts(transactions=decision.transactions, others=decision.others)
        return command.reply(header=answer, body=msgspec.json.encode(parts))

    def _not_master(self, command: Command) -> Command:
        return command.reply(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            remark=f"broker {self.config.broker_name} with id {self.config.broker_id} is a slave: ask its master",
        )


def _check_name(kind: str, name: str, size_max: int) -> None:
    if not name or not name.isprintable() or len(name.encode()) > size_max:
        raise _invalid(f"{kind} {name[:40]!r}: 1 to {size_max} bytes of printable text")


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code=ResponseCode.INVALID_PARAMETER)


def _refusal(command: Command, error: MessageError | StoreError) -> Command:
    if isinstance(error, MessageError):
        return command.reply(ResponseCode.MESSAGE_ILLEGAL, remark=str(error)[:1024])
    if isinstance(error, StoreBusyError):
        return command.reply(ResponseCode.SYSTEM_BUSY, remark=str(error)[:1024])
    return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"{UNAVAILABLE} {error}"[:1024])
