"""Administration of consumer groups: make, delete, list, forbid, reset, clone (Java: AdminBrokerProcessor, as far as
groups go). What groups have consumed is told by `consume_stats`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from fusee.broker.handlers.admin_topics import QUEUES_MAX, known_version
from fusee.broker.send_checks import group_fault
from fusee.errors import ProtocolError
from fusee.wire.bodies.group import (
    GroupForbidden,
    QuerySubscriptionResponse,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
)
from fusee.wire.bodies.offsets import QueueOffsets
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroups,
    GetAllSubscriptionGroupsResponse,
    GetSubscriptionGroup,
    QuerySubscriptionByConsumer,
    UpdateGroupForbidden,
)
from fusee.wire.headers.offset import CloneGroupOffset, ResetOffset
from fusee.wire.lenient_json import decode_json, dumps_fastjson, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.broker.config import BrokerConfig
    from fusee.broker.consumers import ConsumerTable
    from fusee.broker.groups import GroupTable
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.store.engine import MessageStore
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.bodies.topic import TopicConfig
    from fusee.wire.command import Command

_log = logging.getLogger(__name__)


class GroupHandlers:
    """Codes 200, 201, 207, 222, 225, 314, 345, 352 and 353. `config` may be replaced at any time.

    `push_reset` answers code 222 by telling the consumers, when the broker is not to reset offsets by itself.
    `make_visible` brings the store's consume queues level with what was put.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        statistics: Statistics,
        store: MessageStore,
        make_visible: Callable[[], object],
        push_reset: Callable[[Command, Link], Command],
    ) -> None:
        self.config = config
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._statistics = statistics
        self._store = store
        self._make_visible = make_visible
        self._push_reset = push_reset

    def routes(self) -> dict[RequestCode, Handler]:
        """What is served here."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: partial(self._timed, self.create_group),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: partial(self._timed, self.create_groups),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.update_forbidden,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.query_subscription,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_offsets,
        }

    # Configuration

    def _timed(self, handler: Callable[[Command, Link], Command], command: Command, link: Link) -> Command:
        elapsed_ms = self._statistics.stopwatch()
        answer = handler(command, link)
        self._statistics.group_created(elapsed_ms(), is_done=answer.code == ResponseCode.SUCCESS)
        return answer

    def create_group(self, command: Command, link: Link) -> Command:
        """200: make a group, or change it."""
        if not command.body:
            return command.reply()
        try:
            group = decode_json(command.body, SubscriptionGroupConfig)
        except ProtocolError:
            said = loads(command.body)
            if isinstance(said, dict) and said.get("groupName") is None:
                return command.reply(ResponseCode.INVALID_PARAMETER, remark=group_fault(""))
            raise
        return self._put(command, link, [group])

    def create_groups(self, command: Command, link: Link) -> Command:
        """225: the same for several. None is changed when one is refused."""
        return self._put(command, link, decode_json(command.body, SubscriptionGroupList).group_config_list)

    def _put(self, command: Command, link: Link, groups: Sequence[SubscriptionGroupConfig]) -> Command:
        for group in groups:
            fault = group_fault(group.group_name)
            if fault is None and not 0 <= group.retry_queue_nums <= QUEUES_MAX:
                fault = f"group {group.group_name} with {group.retry_queue_nums} retry queues: it has 0 to {QUEUES_MAX}"
            if fault is not None:
                return command.reply(ResponseCode.INVALID_PARAMETER, remark=fault)
        self._groups.put_all(groups)
        _log.info("%s made or changed %s", link.remote_address, ", ".join(group.group_name for group in groups))
        return command.reply()

    def get_all_groups(self, command: Command, link: Link) -> Command:
        """201: the configuration of every group, whole or page by page."""
        header = command.read(GetAllSubscriptionGroups)
        table = self._groups.all()
        forbidden = dict(self._groups.forbidden_table)
        if header.data_version is None and header.group_seq is None and header.max_groups is None:
            page = dict(table)
        else:
            count = self.config.split_metadata_size
            if header.max_groups is not None:
                count = min(count, header.max_groups)
            page = self._groups.page(known_version(header.data_version), header.group_seq or 0, count)
            forbidden = {name: topics for name, topics in forbidden.items() if name in page}
        body = SubscriptionGroupTable(
            data_version=self._groups.version, forbidden_table=forbidden, subscription_group_table=page
        )
        header_out = GetAllSubscriptionGroupsResponse(total_groups=len(table))
        return command.reply(ResponseCode.SUCCESS, header_out, body=dumps_fastjson(body))

    def get_group(self, command: Command, link: Link) -> Command:
        """352: the configuration of one group, which is made where groups may be made by being used."""
        group = self._groups.find(command.read(GetSubscriptionGroup).group)
        if group is None:
            return command.reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="No group in this broker")
        return command.reply(body=dumps_fastjson(group))

    def delete_group(self, command: Command, link: Link) -> Command:
        """207: delete a group, on demand with its offsets."""
        header = command.read(DeleteSubscriptionGroup)
        self._groups.delete(header.group)
        if header.clean_offset:
            self._offsets.remove_group(header.group)
        self._statistics.group_deleted(header.group)
        _log.info("%s deleted group %s", link.remote_address, header.group)
        return command.reply()

    def update_forbidden(self, command: Command, link: Link) -> Command:
        """353: forbid or allow a group to read a topic, or only ask whether it may."""
        header = command.read(UpdateGroupForbidden)
        if header.readable is not None:
            self._groups.set_readable(header.group, header.topic, header.readable)
        answer = GroupForbidden(
            group=header.group, readable=self._groups.is_readable(header.group, header.topic), topic=header.topic
        )
        return command.reply(remark="", body=dumps_fastjson(answer))

    def query_subscription(self, command: Command, link: Link) -> Command:
        """345: what a group that is online wants of a topic."""
        header = command.read(QuerySubscriptionByConsumer)
        answer = QuerySubscriptionResponse(
            group=header.group,
            subscription_data=self._consumers.known_subscription(header.group, header.topic or ""),
            topic=header.topic,
        )
        return command.reply(body=dumps_fastjson(answer))

    # Offsets

    def reset_offset(self, command: Command, link: Link) -> Command:
        """222: let a group go on elsewhere: from a time or an offset, in one queue or in all."""
        if not self.config.use_server_side_reset_offset:
            return self._push_reset(command, link)
        header = command.read(ResetOffset)
        if self.config.broker_role == "SLAVE":
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="Can not reset offset in slave broker")
        topic = self._topics.get(header.topic)
        if topic is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"Topic {header.topic} does not exist")
        if self._groups.get(header.group) is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"Group {header.group} does not exist"
            )
        self._make_visible()
        targets = self._reset_targets(header, topic)
        if isinstance(targets, str):
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=targets)
        table: dict[QueueRef, int] = {}
        for queue_id, queue_offset in targets.items():
            self._offsets.set_reset(header.topic, header.group, queue_id, queue_offset)
            queue = QueueRef(broker_name=self.config.broker_name, queue_id=queue_id, topic=header.topic)
            table[queue] = queue_offset
        _log.info("%s reset group %s in %s to %s", link.remote_address, header.group, header.topic, targets)
        return command.reply(body=dumps_fastjson(QueueOffsets(offset_table=table)))

    def _reset_targets(self, header: ResetOffset, topic: TopicConfig) -> dict[int, int] | str:
        """Where to go on, by queue; or why there is no such place."""
        store, queue_id, queue_offset = self._store, header.queue_id, header.queue_offset
        if queue_id < 0:
            if topic.read_queue_nums < 1:
                return "No queues to reset."
            return {number: self._offset_at(header, number) for number in range(topic.read_queue_nums)}
        if queue_offset is None or queue_offset == -1:
            return {queue_id: self._offset_at(header, queue_id)}
        first, last = store.min_offset(header.topic, queue_id), store.max_offset(header.topic, queue_id)
        if not first <= queue_offset <= last + 1:
            return f"Target offset {queue_offset} not in consume queue range [{first}-{last}]"
        return {queue_id: queue_offset}

    def _offset_at(self, header: ResetOffset, queue_id: int) -> int:
        if header.timestamp_ms < 0:
            return self._store.max_offset(header.topic, queue_id)
        return self._store.offset_by_time(header.topic, queue_id, header.timestamp_ms)

    def clone_offsets(self, command: Command, link: Link) -> Command:
        """314: let a group be where another one is, in one topic or in all.

        Left out are topics that are gone, and those that the other group is online without subscribing to, unless it
        counts as offline. (The reference copies nothing when no topic is named.)
        """
        header = command.read(CloneGroupOffset)
        named = (header.topic or "").strip()
        online = self._consumers.group(header.source_group)
        for topic in [named] if named else sorted(self._offsets.topics_of(header.source_group)):
            if self._topics.get(topic) is None:
                continue
            is_subscribed = self._consumers.known_subscription(header.source_group, topic) is not None
            if not header.offline and online is not None and online.subscriptions and not is_subscribed:
                continue
            self._offsets.clone(header.source_group, header.target_group, topic)
        return command.reply()
