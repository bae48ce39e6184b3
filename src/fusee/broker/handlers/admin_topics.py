"""Administration of topics: make, delete, list, count, clean (Java: AdminBrokerProcessor, as far as topics go).

Names, perms and attributes are checked in the reference's order and refused in its words, because its tools show
them. Numbers of queues are bounded here, which the reference does not do.

Deleting a topic takes its configuration first, then the offsets of its consumers, then its queues: a crash in between
leaves queues that no client can reach, and CLEAN_UNUSED_TOPIC removes them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.attributes import parse_alterations
from fusee.broker.send_checks import topic_fault
from fusee.broker.store_times import store_time_of
from fusee.errors import FuseeError
from fusee.message.topics import SYSTEM_TOPICS, pop_retry_topic
from fusee.wire.bodies.group import GroupList
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.stats import TopicOffset, TopicStats
from fusee.wire.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    decode_data_version,
    encode_topic_list,
)
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import (
    CreateTopic,
    DeleteTopic,
    GetAllTopicConfig,
    GetAllTopicConfigResponse,
    GetTopicConfig,
    GetTopicStats,
    QueryTopicConsumers,
    QueryTopicsByConsumer,
)
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.config import BrokerConfig
    from fusee.broker.consumers import ConsumerTable
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.store.engine import MessageStore
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)

QUEUES_MAX: Final = 65_536
"""Queues of one topic."""

FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_MESSAGE_TYPE: Final = "+message.type"
_MIXED: Final = "MIXED"


class _TopicConfigs(msgspec.Struct, rename="camel", kw_only=True):
    """The body of code 18 (Java: CreateTopicListRequestBody)."""

    topic_config_list: list[TopicConfig]


class TopicHandlers:
    """Codes 17, 18, 21, 202, 215, 300, 305, 306, 316, 329, 343, 351 and 513. `config` may be replaced at any time.

    `address` gives the address that this broker tells to clients; `make_visible` brings the store's consume queues
    level with what was put.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        statistics: Statistics,
        store: MessageStore,
        make_visible: Callable[[], object],
        address: Callable[[], str],
    ) -> None:
        self.config = config
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._statistics = statistics
        self._store = store
        self._make_visible = make_visible
        self._address = address

    def routes(self) -> dict[RequestCode, Handler]:
        """What is served here."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: partial(self._timed, self.create_topic),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: partial(self._timed, self.create_topics),
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.create_static_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic,
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.query_consumers,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.query_topics_of_group,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_log,
        }

    # Making and deleting

    def _timed(self, handler: Callable[[Command, Link], Command], command: Command, link: Link) -> Command:
        elapsed_ms = self._statistics.stopwatch()
        answer = handler(command, link)
        is_one = command.code == RequestCode.UPDATE_AND_CREATE_TOPIC
        self._statistics.topic_created(
            elapsed_ms(),
            is_done=answer.code == ResponseCode.SUCCESS,
            is_system=is_one and self._topics.is_system(command.read(CreateTopic).topic),
        )
        return answer

    def create_topic(self, command: Command, link: Link) -> Command:
        """17: make a topic, or change it."""
        header = command.read(CreateTopic)
        if header.topic_filter_type not in FILTER_TYPES:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, remark=f"topicFilterType = [{header.topic_filter_type}] value invalid"
            )
        fault = self._name_fault(header.topic)
        if fault is not None:
            return command.reply(ResponseCode.INVALID_PARAMETER, remark=fault)
        try:
            attributes = parse_alterations(header.attributes)
        except FuseeError as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        topic = TopicConfig(
            attributes=attributes,
            order=header.order,
            perm=header.perm,
            read_queue_nums=header.read_queue_nums,
            topic_filter_type=header.topic_filter_type,
            topic_name=header.topic,
            topic_sys_flag=header.topic_sys_flag or 0,
            write_queue_nums=header.write_queue_nums,
        )
        return self._put(command, link, [topic])

    def create_topics(self, command: Command, link: Link) -> Command:
        """18: the same for several. None is changed when one is refused.

        (The reference stops at the first that is as it should be, and answers that all is well.)
        """
        wanted = decode_json(command.body, _TopicConfigs).topic_config_list
        for topic in wanted:
            fault = self._name_fault(topic.topic_name)
            if fault is not None:
                return command.reply(ResponseCode.INVALID_PARAMETER, remark=fault)
        return self._put(command, link, wanted)

    def create_static_topic(self, command: Command, link: Link) -> Command:
        """513: topics whose queues move between brokers are not served."""
        header = command.read(CreateTopic)
        return command.reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f"topic {header.topic} is not made: this broker does not serve static topics (logical queues); make "
            "it with updateTopic",
        )

    def _name_fault(self, topic: str) -> str | None:
        fault = topic_fault(topic)
        if fault is None and self.config.validate_system_topic_when_update_topic and self._topics.is_system(topic):
            fault = f"The topic[{topic}] is conflict with system topic."
        return fault

    def _put(self, command: Command, link: Link, wanted: list[TopicConfig]) -> Command:
        for topic in wanted:
            if topic.attributes.get(_MESSAGE_TYPE) == _MIXED:
                return command.reply(ResponseCode.INVALID_PARAMETER, remark="MIXED message type is not supported.")
            for queues in (topic.read_queue_nums, topic.write_queue_nums):
                if not 0 <= queues <= QUEUES_MAX:
                    return command.reply(
                        ResponseCode.INVALID_PARAMETER,
                        remark=f"topic {topic.topic_name} with {queues} queues: a topic has 0 to {QUEUES_MAX}",
                    )
        changed = [topic for topic in wanted if topic != self._topics.get(topic.topic_name)]
        try:
            self._topics.put_all(changed)
        except FuseeError as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
        if changed:
            _log.info("%s made or changed %s", link.remote_address, ", ".join(topic.topic_name for topic in changed))
        return command.reply()

    def delete_topic(self, command: Command, link: Link) -> Command:
        """215: delete a topic with its queues, its consumers' offsets, and its retry topics of POP consumption."""
        topic = command.read(DeleteTopic).topic
        if not topic.strip():
            return command.reply(ResponseCode.INVALID_PARAMETER, remark="The specified topic is blank.")
        config = self.config
        if config.validate_system_topic_when_update_topic and self._topics.is_system(topic):
            return command.reply(
                ResponseCode.INVALID_PARAMETER, remark=f"The topic[{topic}] is conflict with system topic."
            )
        doomed = [topic]
        if config.clear_retry_topic_when_delete_topic:
            names = (
                pop_retry_topic(topic, group, form=form) for group in self._offsets.groups_of(topic) for form in (2, 1)
            )
            doomed += [name for name in names if self._topics.get(name) is not None]
        self._make_visible()
        for name in doomed:
            self._topics.delete(name)
            self._offsets.remove_topic(name)
            self._store.delete_topic(name)
            self._statistics.topic_deleted(name)
        _log.info("%s deleted %s", link.remote_address, ", ".join(doomed))
        return command.reply()

    # Telling

    def get_all_topics(self, command: Command, link: Link) -> Command:
        """21: the configuration of every topic, whole or page by page."""
        header = command.read(GetAllTopicConfig)
        table, version = self._topics.all(), self._topics.version
        if header.data_version is None and header.topic_seq is None and header.max_topics is None:
            page = dict(table)
        else:
            count = self.config.split_metadata_size
            if header.max_topics is not None:
                count = min(count, header.max_topics)
            page = self._topics.page(known_version(header.data_version), header.topic_seq or 0, count)
        return command.reply(
            ResponseCode.SUCCESS,
            GetAllTopicConfigResponse(total_topics=len(table)),
            body=dumps_fastjson(TopicConfigTable(data_version=version, topic_config_table=page)),
        )

    def get_topic(self, command: Command, link: Link) -> Command:
        """351: the configuration of one topic."""
        name = command.read(GetTopicConfig).topic
        topic = self._topics.get(name)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic in this broker. topic: {name}")
        return command.reply(body=dumps_fastjson(topic))

    def get_topic_stats(self, command: Command, link: Link) -> Command:
        """202: first and next offset of every queue of a topic, and when it was last written."""
        name = command.read(GetTopicStats).topic
        topic = self._topics.get(name)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{name}] not exist")
        self._make_visible()
        store = self._store
        table: dict[QueueRef, TopicOffset] = {}
        for queue_id in range(max(topic.write_queue_nums, topic.read_queue_nums)):
            max_offset = store.max_offset(name, queue_id)
            queue = QueueRef(broker_name=self.config.broker_name, queue_id=queue_id, topic=name)
            table[queue] = TopicOffset(
                last_update_timestamp=store_time_of(store, name, queue_id, max_offset - 1) if max_offset > 0 else 0,
                max_offset=max_offset,
                min_offset=store.min_offset(name, queue_id),
            )
        stats = TopicStats(offset_table=table, topic_put_tps=self._statistics.topic_put_tps(name))
        return command.reply(body=dumps_fastjson(stats))

    def query_consumers(self, command: Command, link: Link) -> Command:
        """300: groups that consume a topic, online or by their offsets."""
        topic = command.read(QueryTopicConsumers).topic
        groups = self._consumers.groups_of_topic(topic) | set(self._offsets.groups_of(topic))
        return command.reply(body=dumps_fastjson(GroupList(group_list=sorted(groups))))

    def query_topics_of_group(self, command: Command, link: Link) -> Command:
        """343: topics of which a group has offsets."""
        topics = sorted(self._offsets.topics_of(command.read(QueryTopicsByConsumer).group))
        return command.reply(body=encode_topic_list(TopicList(broker_addr=self._address(), topic_list=topics)))

    def get_system_topics(self, command: Command, link: Link) -> Command:
        """305: topics that belong to the system."""
        names = SYSTEM_TOPICS.union(name for name in self._topics.all() if self._topics.is_system(name))
        return command.reply(body=encode_topic_list(TopicList(topic_list=sorted(names))))

    # Cleaning

    def clean_unused_topics(self, command: Command, link: Link) -> Command:
        """316: remove the queues of topics that are not configured."""
        self._make_visible()
        removed = self._store.delete_unused_topics(self._topics.all().keys())
        if removed:
            _log.warning("%s had the queues of %s removed", link.remote_address, ", ".join(removed))
        return command.reply()

    def clean_expired_queues(self, command: Command, link: Link) -> Command:
        """306: remove what consume queues hold of messages that have expired."""
        self._make_visible()
        removed = self._store.delete_expired_queues(self._topics.all().keys())
        if removed:
            names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in removed)
            _log.warning("%s had expired queues removed: %s", link.remote_address, names)
        return command.reply()

    def delete_expired_log(self, command: Command, link: Link) -> Command:
        """329: delete expired segments of the log in the next rounds, whatever the hour."""
        self._store.retention.delete_by_hand()
        return command.reply()


def known_version(text: str | None) -> DataVersion | None:
    """The version of which somebody who copies a table has had pages; None at the beginning. Raises ProtocolError."""
    return decode_data_version(text.encode()) if text is not None and text.strip() else None
