"""Giving a message back: the consumer could not handle it and wants it again later (Java: consumerSendMsgBack)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from fusee.broker.delay import level_count, schedule_record
from fusee.broker.retry import (
    DLQ_QUEUE_NUMS,
    FIRST_RETRY_LEVEL,
    READ_WRITE,
    retry_record,
    tries_max,
    unknown_group,
)
from fusee.broker.send_checks import REJECTED
from fusee.errors import MessageError, StoreBusyError, StoreError
from fusee.message import properties as names
from fusee.message.flags import TopicSysFlag
from fusee.message.properties import find_property
from fusee.message.record import decode_record
from fusee.message.topics import dlq_topic, retry_topic
from fusee.transport.router import Reply
from fusee.wire.bodies.topic import PERM_WRITE
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.send import ConsumerSendMessageBack

if TYPE_CHECKING:
    from random import Random

    from fusee.broker.ack_gate import PutStatus
    from fusee.broker.config import BrokerConfig
    from fusee.broker.groups import GroupTable
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.store.new_record import NewRecord
    from fusee.store.results import PutResult
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command

_RETRY_TOPIC: Final = names.RETRY_TOPIC.encode()


class SendBackHandlers:
    """Code 36."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        writer: LogWriter,
        groups: GroupTable,
        topics: TopicTable,
        store_host: bytes,
        random: Random,
        statistics: Statistics | None = None,
    ) -> None:
        self.config = config
        self._writer = writer
        self._groups = groups
        self._topics = topics
        self._store_host = store_host
        self._random = random
        self._statistics = statistics
        self._levels_max = level_count(writer.store.config.message_delay_level)

    def routes(self) -> dict[RequestCode, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, command: Command, link: Link) -> Command | Reply:
        """Store the next try of a message, or its dead letter, and answer when it is written."""
        header = command.read(ConsumerSendMessageBack)
        if not self.config.is_master:
            return command.reply(ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        group = self._groups.find(header.group)
        if group is None:
            return unknown_group(command, header.group)
        if not self.config.broker_permission & PERM_WRITE:
            return command.reply(
                ResponseCode.NO_PERMISSION, remark=f"the broker[{self.config.broker_ip1}] sending message is forbidden"
            )
        if group.retry_queue_nums <= 0:
            return command.reply()
        topic = retry_topic(header.group)
        topic_config = self._topics.create_for_send_back(
            topic,
            group.retry_queue_nums,
            READ_WRITE,
            topic_sys_flag=TopicSysFlag.UNIT_SUB if header.unit_mode else 0,
        )
        if not topic_config.perm & PERM_WRITE:
            return command.reply(ResponseCode.NO_PERMISSION, remark=f"the topic[{topic}] sending message is forbidden")
        data = self._writer.store.record_at(header.log_offset)
        if data is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, remark=f"look message by offset failed, {header.log_offset}"
            )
        message = decode_record(data)
        tries = message.reconsume_times
        is_dead = tries >= tries_max(command, group, header.max_reconsume_times) or header.delay_level < 0
        if is_dead:
            topic = dlq_topic(header.group)
            self._topics.create_for_send_back(topic, DLQ_QUEUE_NUMS, READ_WRITE)
            record = retry_record(message, topic, 0, 0, self._store_host)
        else:
            queue_id = self._random.randrange(group.retry_queue_nums)
            level = header.delay_level or FIRST_RETRY_LEVEL + tries
            record = retry_record(message, topic, queue_id, level, self._store_host)
            record = schedule_record(record, level, self._levels_max)
        try:
            result = self._writer.put(record)
        except MessageError:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="MESSAGE_ILLEGAL")
        except StoreBusyError:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="OS_PAGE_CACHE_BUSY")
        except StoreError:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="SERVICE_NOT_AVAILABLE")
        reply = Reply(command, link)
        done = partial(self._stored, reply, header, record, result, is_dead=is_dead)
        # A try is not waited for: the message it is made of is still there if this one is lost.
        self._writer.when_stored(result, done, wait=False)
        return reply

    def _stored(
        self,
        reply: Reply,
        header: ConsumerSendMessageBack,
        record: NewRecord,
        result: PutResult,
        status: PutStatus,
        *,
        is_dead: bool,
    ) -> None:
        if not status.is_stored:
            reply.send(reply.request.reply(ResponseCode.SYSTEM_ERROR, remark="SERVICE_NOT_AVAILABLE"))
            return
        if self._statistics is not None:
            if not is_dead:
                self._statistics.put(record.topic, record.queue_id, 1, result.end_offset - result.log_offset)
            topic = (find_property(record.properties, _RETRY_TOPIC) or b"").decode("utf-8", "replace")
            self._statistics.sent_back(header.group, topic)
            if is_dead:
                self._statistics.dead_letter(header.group, header.origin_topic or topic)
        reply.send(reply.request.reply())
