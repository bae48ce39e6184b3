"""Pulling: find the subscription, get the messages, answer with slices of the log or hold (PullMessageProcessor).

The order of checks, codes and remarks is the reference's. What a pull finds leaves as it lies in the log: the answer
is a head and the memory of the mapped segments. A pull that finds nothing at the end of its queue is held
(`broker.holds`) when its client allows that, and tried again when something arrives.

A slave never corrects an offset, since its master may have what it has not. While the master is there (`standing`) a
pull that finds nothing, or reads what is in the master's memory, is sent on to it. While the master is away, a pull
outside of what this slave has is held like one at the end of its queue, and all that are held are answered when the
master is back. (The reference answers them at once, again and again.)

Where the reference delivers everything to a subscription in the request that it cannot parse, this answers code 23.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fusee.broker.send_checks import FAQ, REJECTED
from fusee.broker.standing import Standing
from fusee.errors import FilterError, StoreError
from fusee.filter import Subscription, parse_subscription
from fusee.message.flags import PullSysFlag
from fusee.message.topics import RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from fusee.store.results import GetResult, GetStatus
from fusee.wire.bodies.topic import PERM_READ
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from fusee.wire.hot_encode import found_response

if TYPE_CHECKING:
    from fusee.broker.config import BrokerConfig
    from fusee.broker.consumers import ConsumerTable
    from fusee.broker.groups import GroupTable
    from fusee.broker.holds import Holds
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.bodies.group import SubscriptionGroupConfig
    from fusee.wire.bodies.topic import TopicConfig
    from fusee.wire.command import Command

_NOTHING: Final = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)
_NOT_FOUND: Final = (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.OFFSET_FOUND_NULL)
_RETRY: Final = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)
# Where the reference puts an offset right, on a master.
_OUTSIDE: Final = (*_NOTHING, GetStatus.OFFSET_FOUND_NULL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL)
_AT_END: Final = (*_NOTHING, GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.OFFSET_OVERFLOW_BADLY)

# Why a pull is forbidden (Java: ForbiddenType).
_BROKER_FORBIDDEN: Final = 1
_GROUP_FORBIDDEN: Final = 2
_TOPIC_FORBIDDEN: Final = 3
_BROADCAST_FORBIDDEN: Final = 4
_SUBSCRIPTION_FORBIDDEN: Final = 5


@lru_cache(maxsize=4096)
def _parsed(topic: str, expression: str, expression_type: str) -> Subscription:
    return parse_subscription(topic, expression, expression_type)


class PullHandlers:
    """Codes 11 and 361."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        writer: LogWriter,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        holds: Holds,
        statistics: Statistics,
        clock: Clock,
        standing: Standing | None = None,
    ) -> None:
        self.config = config
        self._standing = standing or Standing(config=config)
        self._writer = writer
        self._store = writer.store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._holds = holds
        self._statistics = statistics
        self._clock = clock

    def routes(self) -> dict[RequestCode, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}  # type: ignore[dict-item]

    def pull(self, command: Command, link: Link) -> Command | list[bytes | memoryview] | None:
        header = command.read(PullMessage)
        config = self.config
        if self._standing.refuses_reads:
            return command.reply(ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        if not config.broker_permission & PERM_READ:
            return _forbidden(
                command, _BROKER_FORBIDDEN, f"the broker[{config.broker_ip1}] pulling message is forbidden"
            )
        if command.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            return _forbidden(
                command, _BROKER_FORBIDDEN, f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden"
            )
        group_name, topic = header.consumer_group, header.topic
        group = self._groups.find(group_name)
        if group is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"subscription group [{group_name}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            return _forbidden(command, _GROUP_FORBIDDEN, f"subscription group no permission, {group_name}")
        topic_config = self._topics.get(topic)
        if topic_config is None:
            return command.reply(
                ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist, apply first please! {FAQ}"
            )
        if not topic_config.perm & PERM_READ:
            return _forbidden(command, _TOPIC_FORBIDDEN, f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic_config.read_queue_nums:
            return command.reply(
                ResponseCode.INVALID_PARAMETER,
                remark=f"queueId[{header.queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{topic_config.read_queue_nums}] consumer:[/{link.remote_address}]",
            )
        subscription = self._subscription(command, header, group)
        if not isinstance(subscription, Subscription):
            return subscription
        if subscription.predicate is not None and not config.enable_property_filter:
            return command.reply(
                ResponseCode.SYSTEM_ERROR,
                remark=f"The broker does not support consumer to filter message by {subscription.expression_type}",
            )
        if config.reject_pull_consumer_enable and not self._is_heard_of(group_name, link):
            return command.reply(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                remark=f"the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}",
            )
        pull = _Pull(self, command, header, link, group, topic_config, subscription)
        return pull.first()

    def _subscription(
        self, command: Command, header: PullMessage, group: SubscriptionGroupConfig
    ) -> Subscription | Command:
        group_name, topic = header.consumer_group, header.topic
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            try:
                asked = _parsed(topic, header.subscription or "*", header.expression_type or "TAG")
                self._consumers.note_pull(group_name, topic, asked, self._clock.time_ms())
                return asked
            except FilterError:
                return command.reply(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="parse the consumer's subscription failed"
                )
        members = self._consumers.group(group_name)
        if members is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=f"the consumer's group info not exist{FAQ}"
            )
        if not group.consume_broadcast_enable and members.message_model == "BROADCASTING":
            return _forbidden(
                command, _BROADCAST_FORBIDDEN, f"the consumer group[{group_name}] can not consume by broadcast way"
            )
        if self._groups.forbidden(group_name, topic) & PERM_READ:
            return _forbidden(
                command,
                _SUBSCRIPTION_FORBIDDEN,
                f"the consumer group[{group_name}] is forbidden for topic[{topic}]",
            )
        subscription = self._consumers.subscription(group_name, topic)
        if subscription is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=f"the consumer's subscription not exist{FAQ}"
            )
        if subscription.version < header.sub_version:
            return command.reply(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark="the consumer's subscription not latest")
        if subscription.expression_type != "TAG" and subscription.predicate is None:
            return command.reply(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                remark="The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        return subscription

    def _is_heard_of(self, group_name: str, link: Link) -> bool:
        members = self._consumers.group(group_name)
        if members is not None and members.consume_type != "CONSUME_ACTIVELY":
            return True
        return (members is not None and link in members.members) or group_name.startswith(SYSTEM_GROUP_PREFIX)


class _Pull:
    """One pull, which may be tried several times."""

    __slots__ = (
        "_command",
        "_group",
        "_handlers",
        "_header",
        "_link",
        "_seen_offset",
        "_subscription",
        "_topic_config",
    )

    def __init__(
        self,
        handlers: PullHandlers,
        command: Command,
        header: PullMessage,
        link: Link,
        group: SubscriptionGroupConfig,
        topic_config: TopicConfig,
        subscription: Subscription,
    ) -> None:
        self._handlers = handlers
        self._command = command
        self._header = header
        self._link = link
        self._group = group
        self._topic_config = topic_config
        self._subscription = subscription
        self._seen_offset = header.queue_offset

    def first(self) -> Command | list[bytes | memoryview] | None:
        """The answer; None when the pull is held."""
        header, handlers = self._header, self._handlers
        offsets = handlers._offsets
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        if handlers.config.use_server_side_reset_offset:
            reset_offset = offsets.take_reset(topic, group, queue_id)
            if reset_offset is not None:
                offsets.set_pull_offset(group, topic, queue_id, reset_offset)
                return self._moved(reset_offset)
        result = self._get(header.queue_offset)
        offsets.set_pull_offset(group, topic, queue_id, result.next_offset)
        if header.sys_flag & PullSysFlag.COMMIT_OFFSET:
            offsets.commit(
                group,
                topic,
                queue_id,
                header.commit_offset,
                client_address=self._link.remote_address,
                only_forward=True,
            )
        status = result.status
        if status is GetStatus.FOUND:
            return self._found(result)
        if header.sys_flag & PullSysFlag.SUSPEND and self._may_wait(status):
            config = handlers.config
            held_ms = header.suspend_timeout_ms if config.long_polling_enable else config.short_polling_time_mills
            if self._command.is_oneway:
                return None
            held_ms = min(max(held_ms, 0), config.suspend_timeout_max)
            handlers._holds.add(topic, queue_id, self._link, held_ms / 1000, self.again)
            return None
        handlers._statistics.missed()
        return self._not_found(result)

    def _may_wait(self, status: GetStatus) -> bool:
        """Whether a pull that ended so is held, when its client allows that."""
        standing = self._handlers._standing
        if standing.is_slave:
            return not standing.has_master and status not in _RETRY
        return status in _NOT_FOUND or (status in _NOTHING and self._header.queue_offset == 0)

    def _may_go_on_waiting(self, status: GetStatus) -> bool:
        if self._handlers._standing.is_slave:
            return self._may_wait(status)
        return status in _NOT_FOUND or status in _NOTHING

    def again(self, last: bool) -> bool:
        """Try once more, and answer when there is something or this is the last time."""
        try:
            return self._again(last)
        except StoreError as error:
            # Told to the one who asked: whoever woke this pull has others to wake.
            self._link.send(self._command.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}"))
            return True

    def _again(self, last: bool) -> bool:
        if last:
            result = self._get(self._header.queue_offset)
        else:
            # Dispatch is what calls here, and has told the queue already: it must not be asked for more from within.
            result = self._get(self._seen_offset, is_level=True)
            if result.status is not GetStatus.FOUND:
                if result.status is GetStatus.NO_MATCHED_MESSAGE:
                    self._seen_offset = result.next_offset
                    return False
                if self._may_go_on_waiting(result.status):
                    return False
        header = self._header
        self._handlers._offsets.set_pull_offset(
            header.consumer_group, header.topic, header.queue_id, result.next_offset
        )
        answer = self._found(result) if result.status is GetStatus.FOUND else self._not_found(result)
        self._link.send(answer)
        return True

    def _get(self, queue_offset: int, *, is_level: bool = False) -> GetResult:
        header, handlers, subscription = self._header, self._handlers, self._subscription
        store = handlers._store
        predicate = subscription.predicate
        # Messages that are tried again were filtered the first time.
        if predicate is not None and header.topic.startswith(RETRY_PREFIX) and not handlers.config.filter_support_retry:
            predicate = None
        result = store.get(
            header.topic,
            header.queue_id,
            queue_offset,
            header.max_messages,
            header.max_bytes,
            subscription.tags_codes,
            predicate,
        )
        if result.status in _AT_END and not is_level:
            writer = handlers._writer
            if writer.has_unseen:
                writer.make_visible()
                return self._get(queue_offset, is_level=True)
        if handlers._standing.is_slave and result.status in _OUTSIDE:
            result.next_offset = queue_offset
        return result

    def _found(self, result: GetResult) -> list[bytes | memoryview]:
        header = self._header
        self._handlers._statistics.got(
            header.consumer_group, header.topic, header.queue_id, result.count, result.size, result.from_disk
        )
        head = found_response(
            self._command.opaque,
            result.size,
            self._suggested(result),
            result.next_offset,
            result.min_offset,
            result.max_offset,
            self._group.group_sys_flag,
            self._topic_config.topic_sys_flag,
        )
        return [head, *result.slices]

    def _not_found(self, result: GetResult) -> Command:
        status = result.status
        if status in _RETRY:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif status in _NOT_FOUND or (status in _NOTHING and self._header.queue_offset == 0):
            code = ResponseCode.PULL_NOT_FOUND
        else:
            code = ResponseCode.PULL_OFFSET_MOVED
        suggested = self._suggested(result)
        standing = self._handlers._standing
        if standing.has_master and not result.from_disk:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif code is ResponseCode.PULL_OFFSET_MOVED and standing.is_slave:
            code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, self._group.broker_id
        return self._answer(code, status.value, result, suggested)

    def _moved(self, reset_offset: int) -> Command:
        store, header = self._handlers._store, self._header
        result = GetResult(
            GetStatus.OFFSET_TOO_SMALL,
            reset_offset,
            store.min_offset(header.topic, header.queue_id),
            store.max_offset(header.topic, header.queue_id),
        )
        return self._answer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", result, self._suggested(result))

    def _answer(self, code: ResponseCode, remark: str, result: GetResult, suggested: int) -> Command:
        return self._command.reply(
            code,
            PullMessageResponse(
                suggested_broker_id=suggested,
                next_offset=result.next_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
                topic_sys_flag=self._topic_config.topic_sys_flag,
                group_sys_flag=self._group.group_sys_flag,
            ),
            remark=remark,
        )

    def _suggested(self, result: GetResult) -> int:
        handlers = self._handlers
        if not handlers.config.slave_read_enable or (handlers._standing.has_master and not result.from_disk):
            return 0
        group = self._group
        return group.which_broker_when_consume_slowly if result.from_disk else group.broker_id


def _forbidden(command: Command, forbidden_type: int, remark: str) -> Command:
    answer = command.reply(ResponseCode.NO_PERMISSION, remark=remark)
    answer.ext_fields = {"forbiddenType": str(forbidden_type)}
    return answer
