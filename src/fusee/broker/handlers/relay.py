"""Requests of administrators that only a client can answer: passed on to it, its answer passed back.

An administrator knows brokers; consumers connect to brokers and listen nowhere. So the broker asks over the consumer's
own connection, and waits: 10 seconds for what a consumer runs (307) and for a message it is told to consume (309), 5
for each consumer's offsets (223, asked as 221). Java asks the members of a group one after another and keeps a thread
for it; here all are asked at once.

The old way to reset offsets, by telling the consumers (222 with useServerSideResetOffset off, told as 220), is here
too: `reset_by_clients`. (Java: AdminBrokerProcessor.callConsumer, Broker2Client)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fusee.errors import MessageError, ProtocolError, RequestTimeoutError, TransportError
from fusee.message.ids import decode_offset_id
from fusee.transport.router import Reply
from fusee.wire.bodies.offsets import ConsumerStatus, QueueOffsetEntry, QueueOffsets, QueueOffsetsForCpp
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.codes import LanguageCode, RequestCode, ResponseCode
from fusee.wire.command import RESPONSE_FLAG, Command
from fusee.wire.headers.client import ConsumeMessageDirectly, GetConsumerRunningInfo
from fusee.wire.headers.offset import GetConsumerStatus, ResetOffset
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from fusee.broker.config import BrokerConfig
    from fusee.broker.consumers import ConsumerTable, Member
    from fusee.broker.groups import GroupTable
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.topics import TopicTable
    from fusee.transport.link import Link
    from fusee.transport.router import Handler

_log = logging.getLogger(__name__)

CALL_TIMEOUT: Final = 10.0
STATUS_TIMEOUT: Final = 5.0

# The first releases whose clients understand these requests: 3.0.7-SNAPSHOT and 3.1.8-SNAPSHOT.
RESET_VERSION_MIN: Final = 28
CALL_VERSION_MIN: Final = 62

_FIRST_VERSIONS: Final = (
    *("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5", "BETA6_SNAPSHOT", "BETA6"),
    *("BETA7_SNAPSHOT", "BETA7", "BETA8_SNAPSHOT", "BETA8", "BETA9_SNAPSHOT", "BETA9", "FINAL"),
)
_VERSIONS_OF_3_1: Final = 46


class RelayHandlers:
    """Codes 223, 307 and 309; and 222 for consumers that are to reset themselves. `config` may be replaced."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        consumers: ConsumerTable,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        writer: LogWriter,
    ) -> None:
        self.config = config
        self._consumers = consumers
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._writer = writer

    def routes(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
        }

    # One client is asked

    def get_running_info(self, request: Command, link: Link) -> Command | Reply:
        """307: what does this consumer do?"""
        header = request.read(GetConsumerRunningInfo)
        return self._call(request, link, header.consumer_group, header.client_id, request.all_fields(), request.body)

    def consume_directly(self, request: Command, link: Link) -> Command | Reply:
        """309: let this consumer have this message now, whatever its offsets say."""
        header = request.read(ConsumeMessageDirectly)
        fields = request.all_fields() | {"brokerName": self.config.broker_name}
        topic = self._topics.get(header.topic) if header.topic else None
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.find(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        try:
            place = decode_offset_id(header.msg_id or "")
        except MessageError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        self._writer.make_visible()
        record = self._writer.store.record_at(place.log_offset)
        if record is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                remark=f"this broker has no message with the offset id {header.msg_id}: it is stored at "
                f"{place.address}, has expired, or the id is the one its producer gave",
            )
        return self._call(request, link, header.consumer_group, header.client_id or "", fields, bytes(record))

    def _call(
        self, request: Command, link: Link, group: str, client_id: str, fields: dict[str, str], body: bytes
    ) -> Command | Reply:
        member = self._consumers.member(group, client_id)
        if member is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"The Consumer <{group}> <{client_id}> not online")
        if member.version < CALL_VERSION_MIN:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                remark=f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to finish, please "
                "upgrade it to V3_1_8_SNAPSHOT",
            )
        reply = Reply(request, link)

        def settle(answer: Command | TransportError) -> None:
            if isinstance(answer, RequestTimeoutError):
                remark = f"consumer <{group}> <{client_id}> Timeout: {answer}"
                reply.send(request.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark))
            elif isinstance(answer, TransportError):
                remark = f"invoke consumer <{group}> <{client_id}> Exception: {answer}"
                reply.send(request.reply(ResponseCode.SYSTEM_ERROR, remark=remark))
            else:
                reply.send(_passed_on(answer, request))

        question = Command(request.code, ext_fields=dict(fields) if fields else None, body=body)
        try:
            member.link.call(question, CALL_TIMEOUT, settle)
        except TransportError as error:
            settle(error)
        return reply

    # All clients of a group are asked

    def get_consumer_status(self, request: Command, link: Link) -> Command | Reply:
        """223: how far has each consumer of the group come, or the one named?"""
        header = request.read(GetConsumerStatus)
        group = self._consumers.group(header.group)
        if group is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, remark=f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        wanted = (header.client_address or "").strip()
        asked: list[Member] = []
        for member in group.members.values():
            if member.version < RESET_VERSION_MIN:
                return _too_old(request, member)
            if not wanted or member.client_id == wanted:
                asked.append(member)
                if wanted:
                    break
        return self._ask_all(request, link, header, asked)

    def _ask_all(self, request: Command, link: Link, header: GetConsumerStatus, asked: list[Member]) -> Reply:
        reply = Reply(request, link)
        question = Command.request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(topic=header.topic, group=header.group)
        )
        table: dict[str, dict[QueueRef, int]] = {}
        awaited = len(asked)

        def finish() -> None:
            if not awaited:
                reply.send(request.reply(body=dumps_fastjson(ConsumerStatus(consumer_table=table))))

        def ask(member: Member) -> None:
            def settle(answer: Command | TransportError) -> None:
                nonlocal awaited
                awaited -= 1
                offsets = _offsets_in(answer, member)
                if offsets is not None:
                    table[member.client_id] = offsets
                finish()

            try:
                member.link.call(question, STATUS_TIMEOUT, settle)
            except TransportError as error:
                settle(error)

        for member in asked:
            ask(member)
        finish()
        return reply

    def reset_by_clients(self, request: Command, link: Link) -> Command:
        """222 with useServerSideResetOffset off: tell the group's consumers where to go on."""
        header = request.read(ResetOffset)
        topic = self._topics.get(header.topic)
        if topic is None:
            return request.reply(
                ResponseCode.TOPIC_NOT_EXIST,
                remark=f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        self._writer.make_visible()
        store = self._writer.store
        table: dict[QueueRef, int] = {}
        for queue_id in range(topic.write_queue_nums):
            committed_offset = self._offsets.query(header.group, header.topic, queue_id)
            if committed_offset == -1:
                return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"THe consumer group <{header.group}> not exist")
            if header.timestamp_ms == -1:
                reset_offset = store.max_offset(header.topic, queue_id)
            else:
                reset_offset = store.offset_by_time(header.topic, queue_id, header.timestamp_ms)
            if not header.is_force:
                reset_offset = min(reset_offset, committed_offset)
            queue = QueueRef(broker_name=self.config.broker_name, queue_id=queue_id, topic=header.topic)
            table[queue] = max(reset_offset, 0)
        group = self._consumers.group(header.group)
        if group is None:
            return request.reply(
                ResponseCode.CONSUMER_NOT_ONLINE,
                remark=f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp_ms}",
            )
        body = dumps_fastjson(QueueOffsets(offset_table=table))
        for member in group.members.values():
            if member.version < RESET_VERSION_MIN:
                return _too_old(request, member)
            self._tell_offsets(member, header, table, body)
        return request.reply(body=body)

    def _tell_offsets(self, member: Member, header: ResetOffset, table: dict[QueueRef, int], body: bytes) -> None:
        if member.language is LanguageCode.CPP:
            # Java goes by the language of whoever asks; it is the consumer that must be able to read it.
            entries = [
                QueueOffsetEntry(
                    broker_name=queue.broker_name, queue_offset=reset_offset, queue_id=queue.queue_id, topic=queue.topic
                )
                for queue, reset_offset in table.items()
            ]
            body = dumps_fastjson(QueueOffsetsForCpp(offset_table=entries))
        told = ResetOffset(group=header.group, topic=header.topic, timestamp_ms=header.timestamp_ms, is_force=False)
        try:
            member.link.send_oneway(
                Command.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body=body, oneway=True)
            )
        except TransportError as error:
            _log.warning("%s is not told to reset its offsets: %s", member.client_id, error)


def version_name(version: int) -> str:
    """The name that Java gives to a release before 3.2, by the number in its commands (Java: MQVersion)."""
    if version < len(_FIRST_VERSIONS):
        return f"V3_0_0_{_FIRST_VERSIONS[max(version, 0)]}"
    if version < _VERSIONS_OF_3_1:
        step = version - len(_FIRST_VERSIONS)
        release = f"V3_0_{step // 2 + 1}"
    else:
        step = version - _VERSIONS_OF_3_1
        release = f"V3_1_{step // 2}"
    return release if step % 2 else f"{release}_SNAPSHOT"


def _passed_on(answer: Command, request: Command) -> Command:
    """The client's answer as the answer to the administrator, who may want to know the client's language."""
    return Command(
        answer.code,
        request.opaque,
        RESPONSE_FLAG,
        answer.language,
        answer.version,
        answer.remark,
        answer.all_fields() or None,
        answer.body,
    )


def _too_old(request: Command, member: Member) -> Command:
    return request.reply(
        ResponseCode.SYSTEM_ERROR,
        remark=f"the client does not support this feature. version={version_name(member.version)}",
    )


def _offsets_in(answer: Command | TransportError, member: Member) -> dict[QueueRef, int] | None:
    if isinstance(answer, TransportError):
        _log.warning("%s did not tell its offsets: %s", member.client_id, answer)
        return None
    if answer.code != ResponseCode.SUCCESS or not answer.body:
        return None
    try:
        return decode_json(answer.body, ConsumerStatus).message_queue_table
    except ProtocolError as error:
        _log.warning("the offsets that %s told cannot be read: %s", member.client_id, error)
        return None
