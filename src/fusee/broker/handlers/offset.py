"""Offsets of consumers and of queues, one plain function per request code (Java: ConsumerManageProcessor and parts of
AdminBrokerProcessor).

Commits and queries of consumers come with every pull, so 14 and 15 answer from prepared formats and touch nothing
but dictionaries.

A consumer without a committed offset is told 0 while the first message of the queue is at hand, and "not found"
otherwise: then its own setting says where it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from fusee.broker.store_times import earliest_store_time
from fusee.errors import FieldError
from fusee.replication.metadata import ChangesTold, ChangesWanted, CommitMark
from fusee.store.consume_queue import Boundary
from fusee.store.results import GetStatus
from fusee.wire.bodies.offsets import CorrectionOffsets
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import ONEWAY_FLAG
from fusee.wire.fields import Header
from fusee.wire.headers.offset import (
    GetEarliestStoreTime,
    GetEarliestStoreTimeResponse,
    GetMaxOffset,
    GetMinOffset,
    GetMinOffsetResponse,
    QueryConsumerOffset,
    QueryCorrectionOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from fusee.wire.hot_encode import offset_response, response
from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.groups import GroupTable
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.topics import TopicTable
    from fusee.store.engine import MessageStore
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command

_INT64_MAX: Final = 2**63 - 1


class DelayOffsetsText(Protocol):
    """Gives the document of delayed messages; `is_exact` with the place of the log that it is true for."""

    def __call__(self, *, is_exact: bool) -> bytes: ...


class OffsetHandlers:
    """Codes 14, 15, 29 to 32, 43, 45 and 308.

    `make_visible` brings the store's consume queues level with what was put; `delay_offsets` gives the document of
    delayed messages that code 45 answers with.
    """

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        store: MessageStore,
        make_visible: Callable[[], object],
        delay_offsets: DelayOffsetsText,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._make_visible = make_visible
        self._delay_offsets = delay_offsets

    def routes(self) -> dict[RequestCode, Handler]:
        """What is served here."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_consumer_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_consumer_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_store_time,
            RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction_offset,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_all_delay_offsets,
        }

    # Of consumers

    def update_consumer_offset(self, command: Command, link: Link) -> Command | bytes | None:
        """15: a group is that far in a queue. Ignored while an administrator's reset of the queue is not taken up."""
        try:
            header = command.read(UpdateConsumerOffset)
        except FieldError:
            refusal = self._incomplete_update(command)
            if refusal is None:
                raise
            return refusal
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if self._groups.get(group) is None:
            return _no_group(command, group)
        if self._topics.get(topic) is None:
            return _no_topic(command, topic)
        if queue_id < 0 or header.commit_offset < 0:
            what = f"QueueId is {queue_id}" if queue_id < 0 else f"Offset is {header.commit_offset}"
            return command.reply(ResponseCode.INVALID_PARAMETER, Header(), remark=f"{what}, topic is {topic}")
        is_back = header.commit_offset < self._offsets.query(group, topic, queue_id)
        if is_back and command.read(CommitMark).is_aside:
            return response(command.opaque)
        if not self._offsets.commit(group, topic, queue_id, header.commit_offset, client_address=link.remote_address):
            return command.reply(ResponseCode.SUCCESS, Header(), remark="Offset has been previously reset")
        return None if command.flag & ONEWAY_FLAG else response(command.opaque)

    def _incomplete_update(self, command: Command) -> Command | None:
        """The answer to an update with a field missing or malformed; None when not even the topic is told."""
        fields = command.all_fields()
        group, topic = fields.get("consumerGroup"), fields.get("topic")
        if topic is None:
            return None
        if group is None or self._groups.get(group) is None:
            return _no_group(command, group)
        if self._topics.get(topic) is None:
            return _no_topic(command, topic)
        what = "Offset" if _is_int32(fields.get("queueId")) else "QueueId"
        return command.reply(ResponseCode.INVALID_PARAMETER, Header(), remark=f"{what} is null, topic is {topic}")

    def query_consumer_offset(self, command: Command, link: Link) -> Command | bytes:
        """14: how far a group is in a queue."""
        header = command.read(QueryConsumerOffset)
        topic, queue_id = header.topic, header.queue_id
        committed_offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if committed_offset >= 0:
            return offset_response(command.opaque, committed_offset)
        if header.set_zero_if_not_found is False:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                Header(),
                remark="Not found, do not set to zero, maybe this group boot first",
            )
        if self._is_first_at_hand(topic, queue_id):
            return offset_response(command.opaque, 0)
        return command.reply(
            ResponseCode.QUERY_NOT_FOUND,
            Header(),
            remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
        )

    def _is_first_at_hand(self, topic: str, queue_id: int) -> bool:
        """Whether message 0 is there, and near enough to the end of the log to be in memory."""
        self._make_visible()
        store = self._store
        if store.min_offset(topic, queue_id) > 0:
            return False
        found = store.get(topic, queue_id, 0, 1)
        return found.status is GetStatus.FOUND and not found.from_disk

    def query_correction_offset(self, command: Command, link: Link) -> Command:
        """308: the least offsets among groups, and no offset where the compared group is behind all of them.

        (The reference forgets the offsets of the groups that are to be left out.)
        """
        header = command.read(QueryCorrectionOffset)
        excluded = frozenset((header.filter_groups or "").split(","))
        topic, store = header.topic, self._store
        corrections = self._offsets.min_offsets_of(
            topic, excluded, queue_min=lambda queue_id: store.min_offset(topic, queue_id)
        )
        for queue_id, committed_offset in self._offsets.query_all(header.compare_group, topic).items():
            least = corrections.get(queue_id)
            if least is not None and least > committed_offset:
                corrections[queue_id] = _INT64_MAX
        return command.reply(body=dumps_fastjson(CorrectionOffsets(correction_offsets=corrections)))

    def get_all_consumer_offsets(self, command: Command, link: Link) -> Command:
        """43: every committed offset, for a slave; a slave of ours wants what has changed since it asked last."""
        if not _is_of_our_slave(command):
            return command.reply(body=self._offsets.encode())
        wanted = command.read(ChangesWanted)
        changes = self._offsets.changes_since(wanted.mark, wanted.cursor or 0)
        told = ChangesTold(mark=changes.mark, cursor=changes.cursor, is_whole=changes.is_whole)
        return command.reply(ResponseCode.SUCCESS, told, body=changes.body)

    def get_all_delay_offsets(self, command: Command, link: Link) -> Command:
        """45: how far delayed messages were delivered, for a slave."""
        return command.reply(body=self._delay_offsets(is_exact=_is_of_our_slave(command)))

    # Of queues

    def search_offset(self, command: Command, link: Link) -> bytes:
        """29: the message that was stored at a time."""
        header = command.read(SearchOffset)
        is_upper = (header.boundary_type or "").lower() == Boundary.UPPER.value
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        self._make_visible()
        queue_offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp_ms, boundary)
        return offset_response(command.opaque, queue_offset)

    def get_max_offset(self, command: Command, link: Link) -> bytes:
        """30: the offset that the next message gets."""
        header = command.read(GetMaxOffset)
        self._make_visible()
        return offset_response(command.opaque, self._store.max_offset(header.topic, header.queue_id))

    def get_min_offset(self, command: Command, link: Link) -> Command:
        """31: the first message that is still there."""
        header = command.read(GetMinOffset)
        queue_offset = self._store.min_offset(header.topic, header.queue_id)
        # An empty remark and not none: this answer takes another way through the reference than its like.
        return command.reply(ResponseCode.SUCCESS, GetMinOffsetResponse(queue_offset=queue_offset), remark="")

    def get_earliest_store_time(self, command: Command, link: Link) -> Command:
        """32: when the first message of a queue was stored."""
        header = command.read(GetEarliestStoreTime)
        self._make_visible()
        timestamp_ms = earliest_store_time(self._store, header.topic, header.queue_id)
        return command.reply(ResponseCode.SUCCESS, GetEarliestStoreTimeResponse(timestamp_ms=timestamp_ms))


def _no_group(command: Command, group: str | None) -> Command:
    remark = f"Group {'null' if group is None else group} not exist!"
    return command.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Header(), remark=remark)


def _no_topic(command: Command, topic: str) -> Command:
    return command.reply(ResponseCode.TOPIC_NOT_EXIST, Header(), remark=f"Topic {topic} not exist!")


def _is_of_our_slave(command: Command) -> bool:
    return "fuseeMark" in command.all_fields()


def _is_int32(text: str | None) -> bool:
    is_number = text is not None and len(text) <= 11 and text.removeprefix("-").isdecimal()
    return is_number and -(2**31) <= int(text or "") < 2**31
