"""Clients make themselves known: heartbeats, farewells, members, locks of queues (Java: ClientManageProcessor).

Heartbeats come from every client every 30 seconds and nearly always say what the last one said. Such a one is
recognised by its bytes and answered with bytes made before; only the time of its memberships is renewed. What makes
it worth reading again is looked up each time: memberships that ended, groups whose subscriptions another member
changed (`ConsumerGroup.revision`), groups and retry topics that an administrator removed. Java writes the sets of a
heartbeat in any order, so a few forms of the same are kept per connection.

Members are told of changes in their group after the turn in which they happened, and a group is told again only after
a rest in proportion to its size: when a thousand members come at once, each hears a few times and not a thousand.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.broker.documents import TableFullError
from fusee.errors import FilterError, InvalidRequestError, RemoteError, TransportError
from fusee.filter import TAG, parse_subscription
from fusee.message.topics import retry_topic
from fusee.wire.bodies.group import Connection, ConsumerConnection, ProducerConnection, ProducerInfo
from fusee.wire.bodies.group import ProducerTable as ProducerTableBody
from fusee.wire.bodies.heartbeat import CheckClientRequest, ConsumerIds, HeartbeatData, decode_heartbeat
from fusee.wire.bodies.locks import LockBatchRequest, LockBatchResponse
from fusee.wire.bodies.topic import PERM_READ, PERM_WRITE, UNIT_SUBSCRIPTION_FLAG
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.fields import Header
from fusee.wire.headers.admin import GetConsumerConnections, GetProducerConnections
from fusee.wire.headers.client import (
    GetConsumerListByGroup,
    HeartbeatResponse,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from fusee.wire.hot_encode import PreparedAnswer
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.broker.config import BrokerConfig
    from fusee.broker.consumers import ConsumerGroup, ConsumerTable, Member, Registered
    from fusee.broker.groups import GroupTable
    from fusee.broker.producers import ProducerTable
    from fusee.broker.queue_locks import QueueLocks
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.bodies.heartbeat import ConsumerData

_log = logging.getLogger(__name__)

GROUPS_PER_CLIENT_MAX: Final = 10_000
CLIENT_ID_LENGTH_MAX: Final = 1024
PRODUCER_GROUP_LENGTH_MAX: Final = 255

# Under which name a connection keeps its last heartbeat, how many forms of it, and from which size on only a digest.
_LAST_BEAT: Final = "heartbeat"
_FORMS_MAX: Final = 8
_BODY_KEPT_MAX: Final = 1024
# Now and then it is read again all the same, for what no revision tells of (a topic that has become an ordered one).
_GOOD_FOR_MS: Final = 300_000

# Members told in one turn of the loop, and the rest of a group after each round, per member.
_TOLD_AT_ONCE: Final = 1024
_REST_PER_MEMBER: Final = 0.0001


class _Standing(NamedTuple):
    """A consumer's membership, and the revision of the group that it was seen at."""

    group: ConsumerGroup
    revision: int
    member: Member
    retry_topic: str


class _Beat:
    """The last heartbeat of a connection: its forms with their answers, and what must still be so to use them."""

    __slots__ = ("answers", "config", "consumers", "good_until_ms", "members")

    def __init__(
        self, config: BrokerConfig, good_until_ms: int, consumers: list[_Standing], producers: list[Member]
    ) -> None:
        self.config = config
        self.good_until_ms = good_until_ms
        self.consumers = consumers
        self.members = [*producers, *(standing.member for standing in consumers)]
        self.answers: dict[bytes, PreparedAnswer] = {}


class ClientHandlers:
    """Codes 34, 35, 38, 41, 42, 46, 203, 204 and 328. `config` may be replaced at any time."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        consumers: ConsumerTable,
        producers: ProducerTable,
        locks: QueueLocks,
        topics: TopicTable,
        groups: GroupTable,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """Listens to `consumers` from here on, to tell members of changes."""
        self.config = config
        self._consumers = consumers
        self._producers = producers
        self._locks = locks
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self.notices = GroupNotices(timers)
        consumers.listeners.append(self._group_changed)
        self._answers = {
            changed: PreparedAnswer(
                Command(RequestCode.HEART_BEAT).reply(
                    ResponseCode.SUCCESS, HeartbeatResponse(supports_v2=True, subscription_changed=changed)
                )
            )
            for changed in (True, False)
        }

    def routes(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_subscription,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_ids,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producers,
        }

    # Events beside requests

    def link_lost(self, link: Link) -> None:
        """The connection ended, failed or fell idle: its client is gone. Harmless when there was none."""
        self._producers.link_lost(link)
        self._consumers.link_lost(link)

    def expire(self) -> None:
        """Forget clients that went silent, close their connections, and forget old locks. Due every 10 seconds."""
        now_ms = self._clock.time_ms()
        for link in {*self._producers.expire(now_ms), *self._consumers.expire(now_ms)}:
            link.close()
        self._locks.expire()

    def stop(self) -> None:
        """Tell nobody of anything any more."""
        self.notices.stop()

    def _group_changed(self, group: ConsumerGroup) -> None:
        if self.config.notify_consumer_ids_changed_enable:
            self.notices.group_changed(group)

    # Heartbeats

    def heartbeat(self, request: Command, link: Link) -> Command | bytes:
        """34: who I am, in which groups, and what I subscribe to."""
        body = request.body
        form = body if len(body) <= _BODY_KEPT_MAX else blake2b(body, digest_size=16).digest()
        last: _Beat | None = link.attachments.get(_LAST_BEAT)
        if last is not None:
            answer = last.answers.get(form)
            now_ms = self._clock.time_ms()
            if answer is not None and now_ms < last.good_until_ms and self._stands(last):
                for member in last.members:
                    member.last_update_ms = now_ms
                return answer.frame(request.opaque)
        return self._read_heartbeat(request, link, form)

    def _stands(self, beat: _Beat) -> bool:
        """Whether reading the heartbeat again would change nothing."""
        if beat.config is not self.config:
            return False
        for group, revision, _, retry in beat.consumers:
            if group.revision != revision or self._groups.get(group.name) is None or self._topics.get(retry) is None:
                return False
        return all(member.is_registered for member in beat.members)

    def _read_heartbeat(self, request: Command, link: Link, form: bytes) -> Command | bytes:
        data = decode_heartbeat(request.body)
        _check_heartbeat(data)
        now_ms = self._clock.time_ms()
        fingerprint = data.heartbeat_fingerprint
        refusal: RemoteError | TableFullError | None = None
        skipped = False
        seen: list[Registered] = []
        for consumer in data.consumer_data_set:
            try:
                registered = self._register_consumer(consumer, data, request, link, now_ms)
            except (RemoteError, TableFullError) as error:
                # What else the client is, it is all the same.
                refusal = error
                continue
            if registered is None:
                skipped = True
            else:
                seen.append(registered)
        producers: list[Member] = []
        for producer in data.producer_data_set:
            try:
                member = self._producers.register(
                    producer.group_name,
                    link,
                    client_id=data.client_id,
                    language=request.language,
                    version=request.version,
                    now_ms=now_ms,
                )
            except RemoteError as error:
                refusal = error
                continue
            producers.append(member)
        if refusal is not None:
            raise refusal
        if not skipped:
            self._remember(link, form, data, seen, producers)
        changed = not fingerprint or any(registered.asks_subscriptions for registered in seen)
        return self._answers[changed].frame(request.opaque)

    def _register_consumer(
        self, consumer: ConsumerData, data: HeartbeatData, request: Command, link: Link, now_ms: int
    ) -> Registered | None:
        """Enter one group; None when it is one that may not be."""
        if self.config.reject_pull_consumer_enable and consumer.consume_type == "CONSUME_ACTIVELY":
            return None
        group_config = self._groups.find(consumer.group_name)
        if group_config is None:
            return None
        without_sub = data.without_sub and data.heartbeat_fingerprint != 0
        retry = retry_topic(consumer.group_name)
        if not without_sub or self._topics.get(retry) is None:
            self._topics.create_for_send_back(
                retry,
                group_config.retry_queue_nums,
                PERM_READ | PERM_WRITE,
                order=any(self._is_ordered(wanted.topic) for wanted in consumer.subscription_data_set),
                topic_sys_flag=UNIT_SUBSCRIPTION_FLAG if consumer.unit_mode else 0,
            )
        return self._consumers.register(
            consumer,
            link,
            client_id=data.client_id,
            language=request.language,
            version=request.version,
            now_ms=now_ms,
            fingerprint=data.heartbeat_fingerprint,
            without_sub=without_sub,
            notify=group_config.notify_consumer_ids_changed_enable,
        )

    def _is_ordered(self, topic: str) -> bool:
        topic_config = self._topics.get(topic)
        return topic_config is not None and topic_config.order

    def _remember(
        self, link: Link, form: bytes, data: HeartbeatData, seen: list[Registered], producers: list[Member]
    ) -> None:
        good_until_ms = self._clock.time_ms() + _GOOD_FOR_MS
        beat = _Beat(
            self.config,
            good_until_ms,
            [_Standing(group, group.revision, member, retry_topic(group.name)) for group, member, _ in seen],
            producers,
        )
        last: _Beat | None = link.attachments.get(_LAST_BEAT)
        if (
            last is not None
            and len(last.answers) < _FORMS_MAX
            and set(last.members) == set(beat.members)
            and self._stands(last)
        ):
            last.good_until_ms = good_until_ms
            beat = last
        if data.heartbeat_fingerprint:
            # The same again differs from no fingerprint; only a group of which nothing is known still asks.
            changed = data.without_sub and any(not group.subscriptions for group, _, _ in seen)
        else:
            changed = True
        beat.answers[form] = self._answers[changed]
        link.attachments[_LAST_BEAT] = beat

    def unregister(self, request: Command, link: Link) -> Command:
        """35: I leave these groups."""
        header = request.read(UnregisterClient)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, link)
        if header.consumer_group is not None:
            group_config = self._groups.get(header.consumer_group)
            notify = group_config is None or group_config.notify_consumer_ids_changed_enable
            self._consumers.unregister(header.consumer_group, link, notify=notify)
        return request.reply(ResponseCode.SUCCESS, Header())

    def check_subscription(self, request: Command, link: Link) -> Command:
        """46: could you serve this subscription?"""
        body = decode_json(request.body, CheckClientRequest) if request.body else CheckClientRequest()
        data = body.subscription_data
        if data is None or (data.expression_type or TAG) == TAG:
            return request.reply()
        if not self.config.enable_property_filter:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                remark=f"The broker does not support consumer to filter message by {data.expression_type}",
            )
        try:
            parse_subscription(data.topic, data.expression, data.expression_type or TAG, data.sub_version)
        except FilterError as error:
            return request.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
        return request.reply()

    # Members

    def get_consumer_ids(self, request: Command, link: Link) -> Command:
        """38: who else is in my group? Asked by every member after every change."""
        name = request.read(GetConsumerListByGroup).consumer_group
        group = self._consumers.group(name)
        if group is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, Header(), remark=f"no consumer for this group, {name}")
        body = group.id_list
        if body is None:
            body = group.id_list = dumps_fastjson(ConsumerIds(consumer_id_list=group.client_ids))
        return request.reply(ResponseCode.SUCCESS, Header(), body=body)

    def get_consumer_connections(self, request: Command, link: Link) -> Command:
        """203: members and subscriptions of a consumer group."""
        name = request.read(GetConsumerConnections).consumer_group
        group = self._consumers.group(name)
        if group is None:
            return request.reply(ResponseCode.CONSUMER_NOT_ONLINE, remark=f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=_connections(group.members.values()),
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table={topic: entry.data for topic, entry in group.subscriptions.items()},
        )
        return request.reply(body=dumps_fastjson(body))

    def get_producer_connections(self, request: Command, link: Link) -> Command:
        """204: members of a producer group."""
        name = request.read(GetProducerConnections).producer_group
        members = self._producers.members(name)
        if members is None:
            return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"the producer group[{name}] not exist")
        return request.reply(body=dumps_fastjson(ProducerConnection(connection_set=_connections(members.values()))))

    def get_all_producers(self, request: Command, link: Link) -> Command:
        """328: all producer groups with their members."""
        body = ProducerTableBody(
            data={
                group: [
                    ProducerInfo(
                        client_id=member.client_id,
                        language=member.language.name,
                        last_update_timestamp=member.last_update_ms,
                        # As Java prints a socket address that was never resolved to a name.
                        remote_ip=f"/{member.link.remote_address}",
                        version=member.version,
                    )
                    for member in members.values()
                ]
                for group, members in self._producers.all().items()
            }
        )
        return request.reply(body=dumps_fastjson(body))

    # Locks

    def lock(self, request: Command, link: Link) -> Command:
        """41: let these queues be mine for a minute."""
        body = decode_json(request.body, LockBatchRequest)
        locked = self._locks.lock(body.consumer_group, body.client_id, body.queues)
        return request.reply(body=dumps_fastjson(LockBatchResponse(locked=locked)))

    def unlock(self, request: Command, link: Link) -> Command:
        """42: I am done with these queues."""
        body = decode_json(request.body, LockBatchRequest)
        self._locks.unlock(body.consumer_group, body.client_id, body.queues)
        return request.reply()


class _Round:
    """The telling of one group: waiting for its turn, under way, or at rest afterwards."""

    __slots__ = ("again", "began", "group", "links", "timer")

    def __init__(self, group: ConsumerGroup, timer: TimerHandle) -> None:
        self.group = group
        self.timer = timer
        self.links: list[Link] = []
        self.began = False
        self.again = False


class GroupNotices:
    """Tells the members of groups that they changed (code 40, Java: DefaultConsumerIdsChangeListener)."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._rounds: dict[str, _Round] = {}
        self._stopped = False

    def group_changed(self, group: ConsumerGroup) -> None:
        """Tell its members soon: those it has by then."""
        if self._stopped:
            return
        current = self._rounds.get(group.name)
        if current is None:
            timer = self._timers.call_later(0.0, self._begin, group.name)
            self._rounds[group.name] = _Round(group, timer)
            return
        current.group = group
        current.again = current.began

    def stop(self) -> None:
        self._stopped = True
        for current in self._rounds.values():
            current.timer.cancel()
        self._rounds.clear()

    def _begin(self, name: str) -> None:
        current = self._rounds[name]
        current.began = True
        current.again = False
        current.links = list(current.group.members)
        self._go_on(name, 0)

    def _go_on(self, name: str, start: int) -> None:
        current = self._rounds[name]
        end = start + _TOLD_AT_ONCE
        notice = Command.request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChanged(consumer_group=name), oneway=True
        )
        for link in current.links[start:end]:
            try:
                link.send_oneway(notice)
            except TransportError as error:
                # One that does not read looks for itself every 20 s; the others must not wait for it.
                _log.debug("a member of group %s is not told of a change: %s", name, error)
        if end < len(current.links):
            current.timer = self._timers.call_later(0.0, self._go_on, name, end)
        else:
            rest = len(current.links) * _REST_PER_MEMBER
            current.links = []
            current.timer = self._timers.call_later(rest, self._rested, name)

    def _rested(self, name: str) -> None:
        if self._rounds[name].again:
            self._begin(name)
        else:
            del self._rounds[name]


def _connections(members: Iterable[Member]) -> list[Connection]:
    return [
        Connection(
            client_address=member.link.remote_address,
            client_id=member.client_id,
            language=member.language.name,
            version=member.version,
        )
        for member in members
    ]


def _check_heartbeat(data: HeartbeatData) -> None:
    count = len(data.consumer_data_set) + len(data.producer_data_set)
    if count > GROUPS_PER_CLIENT_MAX:
        raise InvalidRequestError(
            f"client {data.client_id[:80]} is in {count} groups, the limit is {GROUPS_PER_CLIENT_MAX}; use more "
            "clients",
            code=ResponseCode.INVALID_PARAMETER,
        )
    if len(data.client_id) > CLIENT_ID_LENGTH_MAX:
        raise InvalidRequestError(
            f"client id {data.client_id[:80]}... has {len(data.client_id)} characters, the limit is "
            f"{CLIENT_ID_LENGTH_MAX}",
            code=ResponseCode.INVALID_PARAMETER,
        )
    for producer in data.producer_data_set:
        if len(producer.group_name) > PRODUCER_GROUP_LENGTH_MAX:
            raise InvalidRequestError(
                f"producer group {producer.group_name[:80]}... has {len(producer.group_name)} characters, the limit is "
                f"{PRODUCER_GROUP_LENGTH_MAX}",
                code=ResponseCode.INVALID_PARAMETER,
            )
