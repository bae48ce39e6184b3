"""Who is connected: producers, consumers, what they want and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.admin.fan_out import ask_all
from fusee.admin.groups import GroupCalls, subscription_view
from fusee.admin.reach import RELAY_TIMEOUT_MS, queue_of
from fusee.admin.views import (
    BrokerAddress,
    ClientView,
    ConsumerGroupView,
    ConsumersView,
    ConsumerView,
    Failure,
    MemberOffsets,
    OwnedQueue,
    PoppedQueue,
    ProducersView,
    ProducerView,
    QueuePosition,
    TopicRates,
)
from fusee.errors import ConsumerOfflineError, RemoteFailureError
from fusee.wire.bodies.group import ConsumerConnection, ProducerConnection, ProducerTable
from fusee.wire.bodies.offsets import ConsumerStatus
from fusee.wire.bodies.stats import ConsumerRunningInfo
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.admin import GetAllProducers, GetConsumerConnections, GetProducerConnections
from fusee.wire.headers.client import GetConsumerRunningInfo
from fusee.wire.headers.offset import GetConsumerStatus

if TYPE_CHECKING:
    from fusee.admin.fan_out import FanOut
    from fusee.wire.bodies.group import Connection


class ConnectionCalls(GroupCalls):
    """Clients as brokers see them."""

    async def consumers(self, group: str) -> ConsumerGroupView:
        """The members of a group that are online, and what they want (mqadmin consumerConnection).

        Every broker that may know is asked, so that a member connected to one of them only is found too. Raises
        ConsumerOfflineError when nobody is online.
        """
        answers = await self._ask_brokers_json(
            await self._brokers_of_group(group),
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            ConsumerConnection,
            GetConsumerConnections(consumer_group=group),
        )
        answers = answers.without(ConsumerOfflineError).some(f"tell the members of group {group!r}")
        clients = _merged(answers)
        if not clients:
            raise ConsumerOfflineError(
                f"no member of group {group!r} is online; start one, or check the group's name",
                code=ResponseCode.CONSUMER_NOT_ONLINE,
            )
        first = answers.values[0]
        wanted = {topic: data for answer in answers.values for topic, data in answer.subscription_table.items()}
        return ConsumerGroupView(
            group=group,
            clients=clients,
            subscriptions=tuple(subscription_view(wanted[topic]) for topic in sorted(wanted)),
            consume_type=first.consume_type or "",
            message_model=first.message_model or "",
            consume_from=first.consume_from_where or "",
            failures=answers.failures,
        )

    async def consumer(self, group: str, client_id: str, *, stack: bool = False) -> ConsumerView:
        """What one member of a group does (mqadmin consumerStatus -i); with `stack`, the stacks of its threads.

        Raises ConsumerOfflineError when it is not online or does not answer in time.
        """
        online = await self.consumers(group)
        for client in online.clients:
            if client.client_id == client_id:
                return await self._running_info(group, client, stack=stack)
        raise ConsumerOfflineError(
            f"client {client_id!r} is no member of group {group!r}; online are "
            + ", ".join(client.client_id for client in online.clients),
            code=ResponseCode.CONSUMER_NOT_ONLINE,
        )

    async def consumers_at_work(self, group: str) -> ConsumersView:
        """What every member of a group does (mqadmin consumerStatus); members that do not answer are failures."""
        online = await self.consumers(group)
        return await self._all_running_infos(online)

    async def member_offsets(self, group: str, topic: str, *, client_id: str = "") -> tuple[MemberOffsets, ...]:
        """How far the members of a group say they are in a topic (mqadmin getConsumerStatus), by client id.

        Raises when no member is online at any broker of the topic.
        """
        answers = await self._ask_brokers_json(
            await self._brokers_of(topic),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            ConsumerStatus,
            GetConsumerStatus(topic=topic, group=group, client_address=client_id or None),
            timeout_ms=RELAY_TIMEOUT_MS,
        )
        answers.some(f"tell the offsets of group {group!r}", topic=topic)
        found: dict[str, dict[QueuePosition, None]] = {}
        for answer in answers.values:
            for client, table in answer.consumer_table.items():
                positions = found.setdefault(client, {})
                for ref, queue_offset in table.items():
                    positions[QueuePosition(queue=queue_of(ref), queue_offset=queue_offset)] = None
        return tuple(
            MemberOffsets(client_id=client, positions=tuple(sorted(found[client], key=lambda each: each.queue)))
            for client in sorted(found)
        )

    async def producers(self, group: str, topic: str) -> ProducersView:
        """The producers of a group that are connected to the brokers of a topic (mqadmin producerConnection).

        Nobody is an answer too; brokers do not tell apart a group without members and one that never was.
        """
        answers = await self._ask_brokers_json(
            await self._brokers_of(topic),
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            ProducerConnection,
            GetProducerConnections(producer_group=group),
        )
        if all(isinstance(error, RemoteFailureError) for error in answers.errors):
            failures: tuple[Failure, ...] = ()
        else:
            failures = answers.some(f"tell the producers of group {group!r}", topic=topic).failures
        return ProducersView(
            producers=tuple(
                ProducerView(
                    group=group,
                    client_id=client.client_id,
                    address=client.address,
                    language=client.language,
                    version=client.version,
                    brokers=client.brokers,
                )
                for client in _merged(answers)
            ),
            failures=failures,
        )

    async def all_producers(self, *, cluster: str | None = None, broker: str | None = None) -> ProducersView:
        """All producers of one broker or of all (mqadmin producer), by group and client id."""
        answers = await self._ask_brokers_json(
            await self.brokers(cluster=cluster, broker=broker),
            RequestCode.GET_ALL_PRODUCER_INFO,
            ProducerTable,
            GetAllProducers(),
        )
        answers = answers.some("tell the producers")
        found: dict[tuple[str, str], ProducerView] = {}
        for place, table in answers.answers:
            for group, members in table.data.items():
                for member in members:
                    known = found.get((group, member.client_id))
                    found[group, member.client_id] = ProducerView(
                        group=group,
                        client_id=member.client_id,
                        address=member.remote_ip.removeprefix("/"),  # as Java prints a socket's address
                        language=member.language,
                        version=member.version,
                        last_update_ms=max(member.last_update_timestamp, known.last_update_ms if known else 0),
                        brokers=(*(known.brokers if known else ()), place.broker_name),
                    )
        return ProducersView(producers=tuple(found[key] for key in sorted(found)), failures=answers.failures)

    # Within

    async def _all_running_infos(self, online: ConsumerGroupView) -> ConsumersView:
        clients = {client.client_id: client for client in online.clients}

        async def ask(place: BrokerAddress) -> ConsumerView:
            return await self._running_info(online.group, clients[place.broker_name])

        # A member stands where else a broker does: failures name it.
        members = [BrokerAddress(broker_name=name, address=client.address) for name, client in clients.items()]
        answers = await ask_all(members, ask)
        return ConsumersView(consumers=tuple(answers.values), failures=online.failures + answers.failures)

    async def _running_info(self, group: str, client: ClientView, *, stack: bool = False) -> ConsumerView:
        place = await self._one_broker(client.brokers[0])
        try:
            info = await self._ask_json(
                place.address,
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                ConsumerRunningInfo,
                GetConsumerRunningInfo(consumer_group=group, client_id=client.client_id, stack_wanted=stack),
                timeout_ms=RELAY_TIMEOUT_MS,
            )
        except RemoteFailureError as error:
            raise ConsumerOfflineError(str(error), code=error.code, address=error.address) from error
        return _consumer_view(group, client.client_id, info)


def _merged(answers: FanOut[ConsumerConnection] | FanOut[ProducerConnection]) -> tuple[ClientView, ...]:
    """Each client once, with the brokers that know it."""
    found: dict[str, tuple[Connection, list[str]]] = {}
    for place, answer in answers.answers:
        for connection in answer.connection_set:
            _, brokers = found.setdefault(connection.client_id, (connection, []))
            brokers.append(place.broker_name or place.address)
    return tuple(
        ClientView(
            client_id=client_id,
            address=connection.client_address,
            language=connection.language,
            version=connection.version,
            brokers=tuple(brokers),
        )
        for client_id, (connection, brokers) in sorted(found.items())
    )


def _consumer_view(group: str, client_id: str, info: ConsumerRunningInfo) -> ConsumerView:
    queues = [
        OwnedQueue(
            queue=queue_of(ref),
            committed_offset=state.commit_offset,
            cached_count=state.cached_msg_count,
            cached_mib=state.cached_msg_size_in_mib,
            cached_min_offset=state.cached_msg_min_offset,
            cached_max_offset=state.cached_msg_max_offset,
            is_locked=state.locked,
            is_dropped=state.dropped,
            last_pull_ms=state.last_pull_timestamp,
            last_consume_ms=state.last_consume_timestamp,
        )
        for ref, state in info.queues.items()
    ]
    popped = [
        PoppedQueue(
            queue=queue_of(ref),
            waiting_acks=state.wait_ack_count,
            is_dropped=state.dropped,
            last_pop_ms=state.last_pop_timestamp,
        )
        for ref, state in info.pop_queues.items()
    ]
    rates = [
        TopicRates(
            topic=topic,
            pull_rt_ms=status.pull_rt_ms,
            pull_tps=status.pull_tps,
            consume_rt_ms=status.consume_rt_ms,
            consume_ok_tps=status.consume_ok_tps,
            consume_failed_tps=status.consume_failed_tps,
            consume_failed_messages=status.consume_failed_messages,
        )
        for topic, status in sorted(info.status_table.items())
    ]
    return ConsumerView(
        group=group,
        client_id=client_id,
        properties=dict(info.properties),
        subscriptions=tuple(
            subscription_view(data) for data in sorted(info.subscription_set, key=lambda each: each.topic)
        ),
        queues=tuple(sorted(queues, key=lambda each: each.queue)),
        popped=tuple(sorted(popped, key=lambda each: each.queue)),
        rates=tuple(rates),
        stack=info.jstack,
    )
