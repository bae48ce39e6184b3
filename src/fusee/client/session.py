"""What the producers and consumers of one client id share (Java: MQClientInstance).

One connection to each broker, the routes of the topics in use, heartbeats, and the door for what brokers ask of
clients. Jobs that repeat: routes are asked for again, every broker hears that we live, offsets are committed.

A connection that was made, for the first time or again, is greeted with a heartbeat at once: a broker that was
restarted knows nothing of us until then, and refuses pulls whose subscription it does not know.

States: created -> running -> closed, or created -> failed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fusee.client.broker_calls import BrokerCalls
from fusee.client.closing import closer
from fusee.client.config import DEFAULT_INSTANCE, ClientConfig, ServiceState
from fusee.client.name_servers import NameServers
from fusee.client.results import Durability, SendStatus
from fusee.client.routes import RouteTable, TopicRoute, assumed_route, topic_route
from fusee.clock import SystemClock
from fusee.errors import (
    ClientStateError,
    ConfigError,
    ConnectError,
    FuseeError,
    TopicNotFoundError,
    TransportError,
)
from fusee.message.hosts import pack_ip
from fusee.message.ids import UniqueIds
from fusee.message.model import MessageQueue
from fusee.message.record import decode_record
from fusee.message.topics import AUTO_CREATE_TOPIC
from fusee.service import Periodic
from fusee.transport.client import DIALLED, Client, ClientSettings
from fusee.transport.link import parse_address
from fusee.transport.router import Router
from fusee.transport.tcp import TcpNetwork
from fusee.wire.bodies.heartbeat import HeartbeatData, ProducerData
from fusee.wire.bodies.offsets import ConsumerStatus, QueueOffsets
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.route import TopicRouteData, decode_route
from fusee.wire.codes import LanguageCode, RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.client import ConsumeMessageDirectly, GetConsumerRunningInfo, NotifyConsumerIdsChanged
from fusee.wire.headers.namesrv import GetRouteInfo
from fusee.wire.headers.offset import GetConsumerStatus, ResetOffset
from fusee.wire.headers.transaction import CheckTransactionState
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from fusee.client.parties import ConsumerParty, ProducerParty
    from fusee.clock import Clock, Timers
    from fusee.transport.interfaces import Network
    from fusee.transport.link import Link

_log = logging.getLogger(__name__)

UNUSED_ROUTES_MAX: Final = 256
"""Routes of topics that no producer and no consumer uses now; when there are more, the oldest are forgotten."""

_INBOUND_MAX: Final = 4096
_GREETING: Final = "greeting"
_LOOPBACK: Final = "127.0.0.1"
_LOOK_AGAIN_S: Final = 1.0
_MADE_TOPIC_TRIES: Final = 20
_MADE_TOPIC_PAUSE: Final = 0.1


class Session:
    """A client as brokers see it: one id, one connection each."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        timers: Timers | None = None,
        chooser: random.Random | None = None,
        is_private: bool = False,
    ) -> None:
        """Without `network`, `clock` and `timers`: TCP and real time. `chooser` makes every random choice.

        A private session belongs to one consumer, and starts and closes with it.
        """
        self.config = config
        self.is_private = is_private
        self.clock = clock or SystemClock()
        self.timers: Timers = timers or asyncio.get_running_loop()
        self.random = chooser or random.Random()
        self.state = ServiceState.CREATE_JUST
        self.router = Router()
        self.transport = Client(
            network=network or TcpNetwork(client_tls=config.tls),
            clock=self.clock,
            timers=self.timers,
            router=self.router,
            settings=ClientSettings(
                connect_timeout=config.connect_timeout_ms / 1000,
                request_timeout=config.mq_client_api_timeout_ms / 1000,
            ),
            listeners=(self,),
            jitter=random.Random(self.random.getrandbits(64)),
        )
        self.name_servers = NameServers(self.transport, config.name_servers, chooser=self.random)
        self.calls = BrokerCalls(self.transport, timeout_ms=config.mq_client_api_timeout_ms)
        self.routes = RouteTable()
        self.route_listeners: list[Callable[[str], object]] = []
        self.ip = config.client_ip or _local_ip(self.name_servers.addresses)
        self.client_id = _client_id(config, self.ip, self.random)
        self.unique_ids = UniqueIds(
            clock=self.clock, ip=pack_ip(self.ip), pid=os.getpid(), seed=self.random.getrandbits(32)
        )
        self._producers: dict[str, ProducerParty] = {}
        self._consumers: dict[str, ConsumerParty] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._promises: dict[str, _Promise] = {}
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._looked_at: dict[str, float] = {}
        self._jobs = [
            Periodic(self.timers, interval_ms / 1000, job)
            for interval_ms, job in (
                (config.poll_name_server_interval_ms, self._look_around),
                (config.heartbeat_broker_interval_ms, lambda: self.spawn(self.heartbeat_all())),
                (config.persist_consumer_offset_interval_ms, lambda: self.spawn(self._persist_offsets())),
            )
        ]
        lane = self.router.lane("brokers", _INBOUND_MAX)
        self.router.add_all(
            {
                RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._consumer_status,
                RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
                RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            },
            lane,
        )

    def __repr__(self) -> str:
        return f"<Session {self.client_id} {self.state.value}>"

    # Life

    async def start(self) -> None:
        """Find a name server that answers. Raises ConnectError, naming each address and its cause, when none does."""
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(f"client {self.client_id} is {self.state.value}; it can be started once")
        try:
            await self._ask_route(AUTO_CREATE_TOPIC)
        except BaseException:
            self.state = ServiceState.START_FAILED
            await self.transport.close()
            raise
        self.state = ServiceState.RUNNING
        for job in self._jobs:
            job.start()

    async def close(self) -> None:
        """Say good-bye to every broker and close the connections. Producers and consumers are closed before."""
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            return
        was_running = self.state is ServiceState.RUNNING
        self.state = ServiceState.SHUTDOWN_ALREADY
        for job in self._jobs:
            job.stop()
        if was_running:
            for group in list(self._producers):
                await self.unregister_producer(group)
            for group in list(self._consumers):
                await self.unregister_consumer(group)
        own = (asyncio.current_task(), closer())  # a listener may close what it was called by
        tasks = [task for task in (*self._asking.values(), *self._tasks) if task not in own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.router.stop()
        await self.transport.close()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run this in the background until the session closes; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            return
        if isinstance(error, FuseeError):
            _log.warning("client %s: %s", self.client_id, error)
        elif error is not None:
            _log.error("client %s: a background task failed", self.client_id, exc_info=error)

    async def begin_use(self) -> None:
        """To be awaited by a consumer before it starts. Raises ClientStateError unless the session is running."""
        if self.is_private and self.state is ServiceState.CREATE_JUST:
            await self.start()
        self.check_running()

    async def end_use(self) -> None:
        """To be awaited by a consumer when it has left."""
        if self.is_private:
            await self.close()

    def check_running(self) -> None:
        """Raise ClientStateError unless the session is running."""
        if self.state is not ServiceState.RUNNING:
            raise ClientStateError(
                f"client {self.client_id} is {self.state.value}; use it inside `async with fusee.connect(...)`"
            )

    # Routes

    def cached_route(self, topic: str) -> TopicRoute | None:
        """The route of this topic, if it is known."""
        return self.routes.get(topic)

    async def publish_route(self, topic: str, *, default_queue_nums: int = 4) -> TopicRoute:
        """Where to send messages of this topic: the route known, or the one asked for now.

        A topic that nobody knows gets the queues it will have when the first message makes it. Raises
        TopicNotFoundError when no broker makes topics by itself, ConnectError when no name server answers.
        """
        route = self.routes.get(topic)
        if route is None or not route.write_queues:
            try:
                await self.refresh_route(topic)
            except TopicNotFoundError:
                await self._assume(topic, default_queue_nums)
            route = self.routes.get(topic)
        if route is None or not route.write_queues:
            raise TopicNotFoundError(
                f"topic {topic!r} has no queue that takes messages: its broker groups have no master now, or write "
                "permission was taken from topic or broker; see `mqadmin topicRoute`",
                code=ResponseCode.TOPIC_NOT_EXIST,
                address=self.name_servers.current,
                topic=topic,
            )
        return route

    async def read_route(self, topic: str) -> TopicRoute:
        """Where to read this topic. Raises TopicNotFoundError when there is no such topic.

        A topic that a send of this client has just made is waited for: its broker tells the name servers in a moment.
        """
        route = self.routes.get(topic)
        tries = _MADE_TOPIC_TRIES if route is not None and route.is_assumed else 1
        while route is None or route.is_assumed:
            tries -= 1
            try:
                await self.refresh_route(topic)
            except TopicNotFoundError:
                if tries <= 0:
                    raise
                await self._pause(_MADE_TOPIC_PAUSE)
            route = self.routes.get(topic)
        return route

    async def _pause(self, seconds: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.timers.call_later(seconds, _wake, over)
        try:
            await over
        finally:
            timer.cancel()

    async def refresh_route(self, topic: str) -> bool:
        """Ask the name servers for this topic's route; whether it changed. Raises TopicNotFoundError, ConnectError.

        Whoever asks while the question is under way shares the answer.
        """
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._refresh(topic))
            self._asking[topic] = task
            task.add_done_callback(lambda done: self._asked(topic, done))
        return await asyncio.shield(task)

    def _asked(self, topic: str, task: asyncio.Task[bool]) -> None:
        self._asking.pop(topic, None)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have waited to the end

    async def _refresh(self, topic: str) -> bool:
        data = await self._ask_route(topic)
        if data is None:
            raise TopicNotFoundError(
                f"topic {topic!r} does not exist, says name server {self.name_servers.current}; create it (mqadmin "
                "updateTopic, or admin.create_topic), check its name and the name server's address, or see whether its "
                "broker is running",
                code=ResponseCode.TOPIC_NOT_EXIST,
                address=self.name_servers.current,
                topic=topic,
            )
        return self._take(topic_route(topic, data))

    def _take(self, route: TopicRoute) -> bool:
        changed = self.routes.put(route)
        if changed:
            for listener in list(self.route_listeners):
                listener(route.topic)
        return changed

    async def _assume(self, topic: str, queue_nums: int) -> None:
        data = await self._ask_route(AUTO_CREATE_TOPIC)
        route = assumed_route(topic, data, queue_nums) if data is not None else None
        if route is None or not route.write_queues:
            raise TopicNotFoundError(
                f"topic {topic!r} does not exist, and no broker makes topics by itself (autoCreateTopicEnable); "
                "create it first (mqadmin updateTopic, or admin.create_topic), or see whether a broker is running and "
                f"registered with name server {self.name_servers.current}",
                code=ResponseCode.TOPIC_NOT_EXIST,
                address=self.name_servers.current,
                topic=topic,
            )
        self._take(route)

    async def _ask_route(self, topic: str) -> TopicRouteData | None:
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        response = await self.name_servers.request(Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise self.calls.refusal(response, self.name_servers.current, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic)
        return decode_route(response.body)

    def _look_around(self) -> None:
        self.spawn(self._refresh_all())

    async def _refresh_all(self) -> None:
        wanted = {topic for party in self._producers.values() for topic in party.published_topics()}
        wanted.update(topic for party in self._consumers.values() for topic in party.subscribed_topics())
        for topic in sorted(wanted):
            try:
                await self.refresh_route(topic)
            except TopicNotFoundError:
                continue  # the last route is kept: a name server that was just started knows nobody yet
            except ConnectError:
                raise  # the other topics would fare no better
            except FuseeError as error:
                _log.warning("client %s: no news of topic %s: %s", self.client_id, topic, error)
        unused = [topic for topic in self.routes.topics if topic not in wanted]
        for topic in unused[:-UNUSED_ROUTES_MAX]:
            self.routes.remove(topic)
        for name in [name for name in self._looked_at if name not in self.routes.brokers]:
            del self._looked_at[name]
        for address in self.routes.forget_brokers_without_topic():
            self.transport.disconnect(address)

    def master_address(self, broker_name: str) -> str | None:
        """Where messages for this broker group are sent."""
        return self.routes.master_address(broker_name)

    def read_address(self, broker_name: str, broker_id: int = 0, *, only_this: bool = False) -> tuple[str, bool] | None:
        """Where to read from this broker group, and whether that is a slave."""
        return self.routes.read_address(broker_name, broker_id, only_this=only_this)

    def slave_id(self, broker_name: str) -> int | None:
        """The smallest broker id of a slave in this group; None when there is none."""
        return self.routes.slave_id(broker_name)

    def look_for_master(self, broker_name: str, topic: str) -> None:
        """Ask the name servers where this group's master is, in the background, and not too often."""
        now = self.clock.monotonic()
        if now - self._looked_at.get(broker_name, -_LOOK_AGAIN_S) >= _LOOK_AGAIN_S:
            self._looked_at[broker_name] = now
            self.spawn(self._look_for_route(topic))

    async def _look_for_route(self, topic: str) -> None:
        with suppress(FuseeError):  # it is asked again anyway
            await self.refresh_route(topic)

    # Producers and consumers

    def register_producer(self, group: str, party: ProducerParty) -> None:
        """Take a producer group in; it is told to brokers with the next heartbeat."""
        if group in self._producers:
            raise ConfigError(
                f"this client has a producer of group {group!r} already; use that one, or give another group or "
                "instance_name"
            )
        self._producers[group] = party

    async def unregister_producer(self, group: str) -> None:
        """Let a producer group go and tell the brokers."""
        if self._producers.pop(group, None) is not None:
            await self._part(producer_group=group)

    def register_consumer(self, group: str, party: ConsumerParty) -> None:
        """Take a consumer group in. Raises ConfigError when the session has one of this group already."""
        if group in self._consumers:
            raise ConfigError(
                f"this client has a consumer of group {group!r} already; give the second one an instance_name of its "
                "own"
            )
        self._consumers[group] = party

    async def unregister_consumer(self, group: str) -> None:
        """Let a consumer group go and tell the brokers, which tell the other members."""
        if self._consumers.pop(group, None) is not None:
            await self._part(consumer_group=group)

    def has_consumer(self, group: str) -> bool:
        """Whether a consumer of this group is registered."""
        return group in self._consumers

    def has_producer(self, group: str) -> bool:
        """Whether a producer of this group is registered."""
        return group in self._producers

    async def _part(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Say good-bye where we are connected; a broker that cannot be reached notices by itself."""
        addresses = [address for address in self.routes.addresses() if self.transport.open_link(address) is not None]
        await asyncio.gather(
            *(self.calls.unregister(address, self.client_id, producer_group, consumer_group) for address in addresses),
            return_exceptions=True,
        )

    # Heartbeats

    async def heartbeat_all(self) -> None:
        """Tell every broker that we live; those that cannot be reached are left for the next time."""
        masters_only = not self._consumers
        addresses = self.routes.addresses(masters_only=masters_only)
        if not addresses or not (self._consumers or self._producers):
            return
        results = await asyncio.gather(*map(self.heartbeat, addresses), return_exceptions=True)
        for address, result in zip(addresses, results, strict=True):
            if isinstance(result, FuseeError):
                _log.info("client %s: broker %s did not take the heartbeat: %s", self.client_id, address, result)
            elif isinstance(result, BaseException):
                raise result

    async def heartbeat(self, address: str) -> None:
        """Tell this broker that we live, and what we consume. Raises a TransportError or RemoteError."""
        was_open = self.transport.open_link(address) is not None
        link = await self.transport.link(address)
        greeting = link.attachments.get(_GREETING)
        if not was_open and greeting is not None:
            await asyncio.shield(greeting)
            return
        await self.calls.heartbeat(address, self._heartbeat_data())

    def _heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self._producers],
            consumer_data_set=[party.heartbeat() for party in self._consumers.values()],
        )

    async def _persist_offsets(self) -> None:
        for party in list(self._consumers.values()):
            await party.persist_offsets()

    # What an answer promises

    async def learn(self, broker_name: str) -> None:
        """Learn what this broker promises when it answers a send, once for each time that it was connected to.

        Never raises: when it does not tell, the least is assumed.
        """
        if broker_name in self._promises:
            return
        task = self._learning.get(broker_name)
        if task is None:
            task = self._learning[broker_name] = self.spawn(self._learn(broker_name))
            task.add_done_callback(lambda done: self._learning.pop(broker_name, None))
        await asyncio.wait((task,))

    async def _learn(self, broker_name: str) -> None:
        address = self.master_address(broker_name)
        if address is None:
            return
        try:
            response = await self.calls.request(address, RequestCode.GET_BROKER_CONFIG, timeout_ms=1_000)
        except TransportError:
            return  # asked again the next time
        except FuseeError:
            self._promises[broker_name] = _Promise()  # it does not tell; that will not change
        else:
            self._promises[broker_name] = _Promise.of(response)

    def durability(self, broker_name: str, status: SendStatus, wait_stored: bool = True) -> Durability:
        """What an answer with this status promises on this broker: the least, when that is not known."""
        promise = self._promises.get(broker_name)
        if promise is None or not wait_stored:
            return Durability.MEMORY
        if status is SendStatus.FLUSH_DISK_TIMEOUT:
            return Durability.MEMORY
        if status is SendStatus.SEND_OK and promise.replicates:
            return Durability.REPLICA
        return Durability.DISK if promise.flushes else Durability.MEMORY

    # LinkListener

    def on_connect(self, link: Link) -> None:
        if link.attachments[DIALLED] in self.name_servers.addresses or not (self._consumers or self._producers):
            return
        link.attachments[_GREETING] = self.spawn(self._greet(link))

    async def _greet(self, link: Link) -> None:
        command = Command.request(RequestCode.HEART_BEAT, body=dumps_fastjson(self._heartbeat_data()))
        try:
            await link.request(command, self.config.mq_client_api_timeout_ms / 1000)
        except TransportError:
            return  # whoever made the connection finds out

    def on_close(self, link: Link) -> None:
        """Whoever waits on the link gets the error, and the next request connects again.

        The broker may then be another process, with other settings: what it promised is forgotten.
        """
        for broker_name in [name for name in self._promises if self.master_address(name) == link.attachments[DIALLED]]:
            del self._promises[broker_name]

    def on_exception(self, link: Link, error: Exception) -> None:
        """Nothing, for the same reason."""

    def on_idle(self, link: Link) -> None:
        """Nothing: an idle connection is simply closed."""

    # What brokers ask

    def _check_transaction(self, command: Command, link: Link) -> None:
        header = command.read(CheckTransactionState)
        message = decode_record(command.body)
        party = self._producers.get(message.properties.get("PGROUP", ""))
        if party is not None:
            party.check_transaction(link.remote_address, header, message)
        else:
            _log.info("asked for a transaction of a group that this client does not have: %s", message.message_id)

    def _members_changed(self, command: Command, link: Link) -> None:
        party = self._consumers.get(command.read(NotifyConsumerIdsChanged).consumer_group)
        if party is not None:
            party.members_changed()

    def _reset_offsets(self, command: Command, link: Link) -> None:
        header = command.read(ResetOffset)
        party = self._consumers.get(header.group)
        if party is not None:
            table = decode_json(command.body, QueueOffsets).offset_table
            party.reset_offsets(
                header.topic, {MessageQueue(ref.topic, ref.broker_name, ref.queue_id): at for ref, at in table.items()}
            )

    def _consumer_status(self, command: Command, link: Link) -> Command:
        header = command.read(GetConsumerStatus)
        party = self._consumers.get(header.group)
        table = party.status(header.topic) if party is not None else {}
        body = ConsumerStatus(
            message_queue_table={
                QueueRef(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id): at
                for queue, at in table.items()
            }
        )
        return command.reply(body=dumps_fastjson(body))

    def _running_info(self, command: Command, link: Link) -> Command:
        header = command.read(GetConsumerRunningInfo)
        party = self._consumers.get(header.consumer_group)
        if party is None:
            return self._no_such_consumer(command, header.consumer_group)
        return command.reply(body=dumps_fastjson(party.running_info()))

    async def _consume_directly(self, command: Command, link: Link) -> Command:
        header = command.read(ConsumeMessageDirectly)
        party = self._consumers.get(header.consumer_group)
        if party is None:
            return self._no_such_consumer(command, header.consumer_group)
        result = await party.consume_directly(decode_record(command.body), header.message_broker_name or "")
        return command.reply(body=dumps_fastjson(result))

    def _no_such_consumer(self, command: Command, group: str) -> Command:
        remark = f"The Consumer Group <{group}> not exist in this consumer"
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)


class _Promise:
    """What a broker does before it answers a send."""

    __slots__ = ("flushes", "replicates")

    def __init__(self, *, flushes: bool = False, replicates: bool = False) -> None:
        self.flushes = flushes
        self.replicates = replicates

    @classmethod
    def of(cls, answer: Command) -> _Promise:
        """What the settings in this answer of a broker mean."""
        text = answer.body.decode("utf-8", "replace")
        settings = {
            name.strip(): value.strip() for name, _, value in (line.partition("=") for line in text.splitlines())
        }
        return cls(
            flushes=settings.get("flushDiskType") == "SYNC_FLUSH",
            replicates=settings.get("brokerRole") == "SYNC_MASTER"
            and (answer.language is not LanguageCode.JAVA or _copies_of_java(settings) > 1),
        )


def _copies_of_java(settings: dict[str, str]) -> int:
    """How many brokers have a message when a SYNC_MASTER of RocketMQ answers: since 5.0 by default itself alone."""

    def is_on(name: str) -> bool:
        return settings.get(name) == "true"

    may_be_fewer = (is_on("enableControllerMode") and is_on("allAckInSyncStateSet")) or (
        is_on("enableSlaveActingMaster") and is_on("enableAutoInSyncReplicas")
    )
    copies = settings.get("minInSyncReplicas" if may_be_fewer else "inSyncReplicas", "2")
    return int(copies) if copies.isdecimal() else 1


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _client_id(config: ClientConfig, ip: str, chooser: random.Random) -> str:
    instance = config.instance_name
    if instance == DEFAULT_INSTANCE:
        instance = f"{os.getpid()}#{chooser.getrandbits(48)}"
    return f"{ip}@{instance}" + (f"@{config.unit_name}" if config.unit_name else "")


def _local_ip(name_servers: Iterable[str]) -> str:
    """The address from which this machine would talk to a name server; no packet is sent to find out.

    Of a host that cannot be resolved the others tell; when none does, the start says so of each.
    """
    for name_server in name_servers:
        host, port = parse_address(name_server)
        with suppress(OSError, UnicodeError):
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return _LOOPBACK
