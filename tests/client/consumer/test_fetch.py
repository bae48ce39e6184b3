"""The series of pulls: one after the other, as much as there is room for, and on again after whatever goes wrong."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fusee.client.config import ClientConfig
from fusee.client.consumer.fetch import Fetch, FlowLimits, Outbox
from fusee.client.consumer.offsets import BrokerOffsets
from fusee.client.consumer.options import ConsumerOptions
from fusee.client.consumer.process_queue import Chunk, ProcessQueue
from fusee.client.consumer.statistics import ConsumeStatistics
from fusee.client.session import Session
from fusee.filter.subscription import Subscription, parse_subscription
from fusee.message.batch import BatchElement, join_batch
from fusee.message.flags import PullSysFlag, SysFlag
from fusee.message.model import MessageQueue
from fusee.message.record import encode_record
from fusee.transport.link import Link
from fusee.transport.router import Reply, Router
from fusee.transport.server import Server
from fusee.wire.bodies.route import BrokerData, QueueData, TopicRouteData, encode_route
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from tests.broker.world import MemoryWorld
from tests.client.consumer.stage import Notes, Stage, held, queue, stage
from tests.client.test_received import stored

QUEUE = MessageQueue("orders", "broker-a", 3)
HOST, SLAVE_HOST, CLIENT_HOST = "10.0.0.1", "10.0.0.2", "10.0.9.1"

Script = Callable[[Command, PullMessage], Command]


def records(*offsets: int) -> bytes:
    return b"".join(encode_record(stored(b"%d" % at, queue_offset=at)) for at in offsets)


def found(*offsets: int, next_offset: int | None = None, body: bytes | None = None, suggested: int = 0) -> Script:
    """An answer with these messages."""
    content = records(*offsets) if body is None else body

    def answer(command: Command, header: PullMessage) -> Command:
        end = next_offset if next_offset is not None else offsets[-1] + 1
        return command.reply(header=_told(end, suggested), body=content)

    return answer


def nothing(next_offset: int | None = None, code: ResponseCode = ResponseCode.PULL_NOT_FOUND) -> Script:
    """An answer without messages."""

    def answer(command: Command, header: PullMessage) -> Command:
        return command.reply(code, _told(header.queue_offset if next_offset is None else next_offset, 0))

    return answer


def refused(code: ResponseCode) -> Script:
    return lambda command, header: command.reply(code, remark="no")


def _told(next_offset: int, suggested: int) -> PullMessageResponse:
    return PullMessageResponse(suggested_broker_id=suggested, next_offset=next_offset, min_offset=0, max_offset=99)


class Scene(MemoryWorld):
    """A name server and a broker that answer as they are told, and one fetch."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.scripts: deque[Script] = deque()
        self.pulls: list[tuple[float, PullMessage]] = []
        self.links: list[Link] = []
        self.heartbeats = 0
        self.options = ConsumerOptions(**options)
        self.limits = FlowLimits(count=1000, byte_size=1 << 20, span=2000)
        self.chunks: list[Chunk] = []
        self.moves: list[int] = []
        self.subscription: Subscription = parse_subscription("orders", "*", version=5)
        self.brokers: dict[int, str] = {0: f"{HOST}:10911"}
        self.servers: dict[str, Server] = {}

    async def start(self) -> None:
        await self.name_server("10.0.1.1", {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})
        await self.start_broker(HOST)
        self.session = Session(
            ClientConfig(name_servers="10.0.1.1:9876", client_ip=CLIENT_HOST),
            network=self.network.host(CLIENT_HOST),
            clock=self.clock,
            timers=self.clock,
            chooser=random.Random(1),
        )
        self.session.register_producer("p", _Producer())
        await self.within(5, asyncio.ensure_future(self.session.start()))
        await self.within(5, asyncio.ensure_future(self.session.read_route("orders")))
        self.offsets = BrokerOffsets(self.session, "billing")
        self.process_queue = ProcessQueue(QUEUE, 10, self.clock.monotonic())
        self.fetch = Fetch(
            self.session,
            self.process_queue,
            group="billing",
            subscription=lambda: self.subscription,
            options=self.options,
            limits=self.limits,
            offsets=self.offsets,
            statistics=ConsumeStatistics(self.clock),
            outbox=Outbox(),
            deliver=self.chunks.append,
            moved=lambda _, at: self.moves.append(at),
        )

    async def begin(self, *scripts: Script) -> None:
        """Answer so, in this order, and then hold whatever comes."""
        self.scripts.extend(scripts)
        self.fetch.start()
        await self.settle()

    async def connect(self) -> Link:
        """Make the connection, so that a pull leaves as soon as it is begun."""
        return await self.within(1, asyncio.ensure_future(self.session.transport.link(f"{HOST}:10911")))

    async def start_broker(self, host: str) -> None:
        router = Router()
        lane = router.lane("all", 1000)
        router.add(RequestCode.PULL_MESSAGE, self._pull, lane)
        router.add(RequestCode.HEART_BEAT, self._beat, lane)
        server = Server(network=self.network.host(host), router=router, clock=self.clock, timers=self.clock)
        await server.start(host, 10911)
        self.servers[host] = server

    async def stop(self) -> None:
        self.fetch.stop()
        await self.within(30, asyncio.ensure_future(self.session.close()))
        for server in self.servers.values():
            await self.within(30, asyncio.ensure_future(server.stop()))

    def _pull(self, command: Command, link: Link) -> Command | Reply:
        header = command.read(PullMessage)
        self.pulls.append((self.clock.monotonic(), header))
        self.links.append(link)
        return self.scripts.popleft()(command, header) if self.scripts else Reply(command, link)

    def _beat(self, command: Command, link: Link) -> Command:
        self.heartbeats += 1
        return command.reply()

    def _route(self, command: Command, link: Link) -> Command:
        data = TopicRouteData(
            broker_datas=[BrokerData(broker_name="broker-a", cluster="C", broker_addrs=dict(self.brokers))],
            queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=8, write_queue_nums=8, perm=6)],
        )
        return command.reply(body=encode_route(data, standard_json=True))

    @property
    def asked(self) -> list[int]:
        """The offsets of the pulls so far."""
        return [header.queue_offset for _, header in self.pulls]

    @property
    def bodies(self) -> list[int]:
        return [int(message.body) for chunk in self.chunks for message in chunk.messages]

    def gap(self, at: int) -> float:
        """The time between a pull and the one before."""
        return self.pulls[at][0] - self.pulls[at - 1][0]


class _Producer:
    def published_topics(self) -> list[str]:
        return []

    def check_transaction(self, *_: object) -> None:
        raise AssertionError("no transaction here")


def run(scene: Callable[[Scene], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        world = Scene(**options)
        await world.start()
        try:
            await scene(world)
        finally:
            await world.stop()

    asyncio.run(main())


def test_pull_when_answered_is_followed_by_the_next() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(found(10, 11), found(12), nothing(15, ResponseCode.PULL_RETRY_IMMEDIATELY))
        assert world.asked == [10, 12, 13, 15]
        assert world.bodies == [10, 11, 12]
        assert world.process_queue.next_offset == 15
        header = world.pulls[0][1]
        assert (header.max_messages, header.max_bytes, header.suspend_timeout_ms) == (32, 256 * 1024, 15_000)
        assert (header.sys_flag, header.subscription, header.sub_version) == (PullSysFlag.SUSPEND, None, 5)
        assert (header.expression_type, header.broker_name) == ("TAG", "broker-a")

    run(scene)


def test_pull_when_subscription_changes_names_the_new_version_and_expression() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(found(10))
        world.subscription = parse_subscription("orders", "paid", version=6)
        world.fetch._link = None
        world.scripts.append(nothing(20))
        world.fetch._pull()
        await world.settle()
        assert (world.pulls[-1][1].sub_version, world.pulls[-1][1].subscription) == (6, "paid")
        assert world.pulls[-1][1].sys_flag == PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION

    run(scene, post_subscription_when_pull=True)


def test_pull_when_offset_is_known_to_be_ours_carries_the_commit_but_not_to_a_slave() -> None:
    async def scene(world: Scene) -> None:
        world.brokers[1] = f"{SLAVE_HOST}:10911"
        await world.start_broker(SLAVE_HOST)
        await world.within(1, asyncio.ensure_future(world.session.refresh_route("orders")))
        world.offsets.update(QUEUE, 10)
        link = await world.connect()
        world.offsets._reached[QUEUE].link = link
        await world.begin(found(10, 11, suggested=1), found(12))
        master, slave = (header for _, header in world.pulls[:2])
        assert (master.commit_offset, master.sys_flag & PullSysFlag.COMMIT_OFFSET) == (10, PullSysFlag.COMMIT_OFFSET)
        assert (slave.commit_offset, slave.sys_flag & PullSysFlag.COMMIT_OFFSET) == (0, 0)
        assert [link.local_address.split(":")[0] for link in world.links[:3]] == [HOST, SLAVE_HOST, HOST]

    run(scene)


def test_room_when_there_is_none_is_waited_for() -> None:
    async def scene(world: Scene) -> None:
        world.limits.count = 3
        await world.begin(found(10, 11), found(12, 13), found(14))
        assert world.asked == [10, 12]
        world.chunks[1].finish(*world.chunks[1].take(2))
        await world.settle()
        assert world.asked == [10, 12, 14, 15]

    run(scene)


@pytest.mark.parametrize(("limit", "value"), [("byte_size", 150), ("span", 2)])
def test_room_when_bytes_or_span_are_over_their_limit_is_waited_for(limit: str, value: int) -> None:
    async def scene(world: Scene) -> None:
        setattr(world.limits, limit, value)
        await world.begin(found(10), found(11, 13), found(14))
        assert world.asked == [10, 11]
        world.chunks[0].finish(*world.chunks[0].take(1))
        await world.settle()
        assert world.asked == ([10, 11] if limit == "byte_size" else [10, 11, 14])
        world.chunks[1].finish(*world.chunks[1].take(2))
        await world.settle()
        assert world.asked == [10, 11, 14, 15]

    run(scene)


def test_room_when_listeners_are_slow_bounds_what_is_pulled() -> None:
    async def play(on: Stage) -> None:
        notes = Notes()
        await on.send(*map(str, range(200)))
        gates = [notes.hold(str(number)) for number in range(200)]
        consumer = await on.consumer(notes, pull_threshold_for_queue=50, concurrency=1)
        process_queue = held(consumer)
        assert 50 < process_queue.count <= 50 + 32
        for gate in gates:
            gate.set_result(None)
        await on.world.settle()
        assert consumer.position(queue()) == 200

    stage(play)


def test_interval_when_set_is_kept_between_pulls() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(found(10), found(11), nothing(30, ResponseCode.PULL_RETRY_IMMEDIATELY))
        assert world.asked == [10]
        await world.advance(2)
        assert world.asked == [10, 11, 12, 30]
        assert (world.gap(1), world.gap(2), world.gap(3)) == (0.5, 0.5, 0.0)

    run(scene, pull_interval_ms=500)


@pytest.mark.parametrize(
    ("code", "waits_s"),
    [(ResponseCode.FLOW_CONTROL, 0.02), (ResponseCode.SYSTEM_ERROR, 3.0), (ResponseCode.NO_PERMISSION, 3.0)],
)
def test_pull_when_refused_is_tried_again_later(code: ResponseCode, waits_s: float) -> None:
    async def scene(world: Scene) -> None:
        await world.begin(refused(code), found(10))
        assert world.fetch.fault is not None
        await world.advance(4)
        assert world.gap(1) == pytest.approx(waits_s)
        assert world.bodies == [10]
        assert world.fetch.fault is None

    run(scene)


def test_pull_when_the_subscription_is_unknown_introduces_itself_first() -> None:
    async def scene(world: Scene) -> None:
        beats = world.heartbeats
        await world.begin(
            refused(ResponseCode.SUBSCRIPTION_NOT_EXIST), refused(ResponseCode.SUBSCRIPTION_NOT_LATEST), found(10)
        )
        assert world.heartbeats > beats
        assert world.asked == [10, 10]
        await world.advance(4)
        assert world.bodies == [10]
        assert world.gap(2) == pytest.approx(3.0)

    run(scene)


def test_pull_when_told_to_go_away_uses_a_new_connection() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(refused(ResponseCode.GO_AWAY), found(10))
        assert world.bodies == [10]
        assert world.links[0] is not world.links[1]

    run(scene)


def test_pull_when_the_connection_breaks_is_tried_again_soon_then_less_often() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(found(10))
        world.network.cut(CLIENT_HOST, HOST)
        await world.advance(1)
        assert world.asked[:3] == [10, 11, 11]
        assert world.fetch.is_alive
        await world.within(30, asyncio.ensure_future(world.servers[HOST].stop()))
        await world.advance(60)
        assert world.fetch.fault is not None
        await world.start_broker(HOST)
        world.scripts.append(found(11))
        await world.advance(8)
        assert world.bodies == [10, 11]

    run(scene)


def test_pull_when_nobody_answers_is_given_up_and_repeated() -> None:
    async def scene(world: Scene) -> None:
        await world.begin()
        assert world.asked == [10]
        await world.advance(31)
        assert world.asked == [10, 10]

    run(scene)


def test_pull_when_the_broker_does_not_hold_it_is_not_repeated_in_a_whirl() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(*[nothing()] * 10)
        assert world.asked == [10]
        await world.advance(0.26)
        assert world.asked == [10] * 6

    run(scene)


def test_answer_when_it_is_damaged_loses_nothing_and_skips_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: Scene) -> None:
        damaged = records(10, 11) + records(12)[:-9]
        await world.begin(
            found(body=damaged, next_offset=13),
            found(10),
            found(body=damaged, next_offset=13),
            found(11),
            found(body=records(12)[:-9], next_offset=13),
            found(body=records(12)[:-9], next_offset=13),
            found(12),
        )
        # Each time single messages are asked for until one gets through.
        assert [(header.queue_offset, header.max_messages) for _, header in world.pulls] == [
            (10, 32), (10, 1), (11, 32), (11, 1), (12, 32), (12, 1),
        ]  # fmt: skip
        assert world.bodies == [10, 11]
        assert "cannot be read at offset 12" in caplog.text
        assert "seek behind that offset" in caplog.text
        assert world.process_queue.watermark == 10
        await world.advance(20)
        assert world.bodies == [10, 11, 12]

    run(scene)


def test_answer_when_an_inner_batch_begins_before_the_offset_leaves_out_what_was_consumed() -> None:
    async def scene(world: Scene) -> None:
        elements = [BatchElement(0, b"%d" % at, b"") for at in range(8, 12)]
        batch = stored(join_batch(elements), queue_offset=8, sys_flag=SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
        await world.begin(found(body=encode_record(batch), next_offset=12))
        assert world.bodies == [10, 11]
        assert world.asked == [10, 12]

    run(scene)


def test_answer_when_its_next_offset_would_repeat_it_goes_behind_it() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(found(10, 11, next_offset=10), found(12))
        assert world.asked == [10, 12, 13]

    run(scene)


def test_answer_when_everything_is_filtered_moves_on() -> None:
    async def scene(world: Scene) -> None:
        world.subscription = parse_subscription("orders", "paid")
        await world.begin(found(10, 11), found(12))
        assert world.asked == [10, 12, 13]
        assert world.chunks == []
        assert world.process_queue.watermark == 13

    run(scene)


def test_offset_when_outside_the_queue_is_left_to_the_consumer() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(nothing(40, ResponseCode.PULL_OFFSET_MOVED))
        assert world.moves == [40]

    run(scene)


def test_pause_when_an_answer_is_under_way_takes_it_in_and_stops() -> None:
    async def scene(world: Scene) -> None:
        await world.connect()
        world.scripts.append(found(10))
        world.fetch.start()
        world.fetch.pause()
        await world.advance(5)
        assert world.bodies == [10]
        assert world.asked == [10]
        world.fetch.resume()
        world.fetch.resume()
        await world.settle()
        assert world.asked == [10, 11]

    run(scene)


def test_stop_when_an_answer_is_under_way_ignores_it() -> None:
    async def scene(world: Scene) -> None:
        await world.connect()
        world.scripts.append(found(10))
        world.fetch.start()
        world.fetch.stop()
        await world.advance(5)
        assert (world.bodies, world.asked) == ([], [10])

    run(scene)


def test_stop_when_connecting_leaves_nothing_behind() -> None:
    async def scene(world: Scene) -> None:
        world.network.weather(CLIENT_HOST, HOST).held = True
        world.fetch.start()
        await world.settle()
        world.fetch.stop()
        world.network.release(CLIENT_HOST, HOST)
        await world.advance(5)
        assert world.asked == []

    run(scene)


def test_broker_when_its_address_is_not_known_is_looked_for() -> None:
    async def scene(world: Scene) -> None:
        world.session.routes._brokers.clear()
        await world.begin(found(10))
        assert world.bodies == [10]

    run(scene)


def test_pulls_when_begun_together_leave_in_one_write() -> None:
    class Wire:
        def __init__(self) -> None:
            self.writes: list[list[bytes]] = []

        def send_frames(self, frames: list[bytes]) -> None:
            self.writes.append(frames)

    async def main() -> None:
        outbox, one, two = Outbox(), Wire(), Wire()
        outbox.post(one, b"1")  # type: ignore[arg-type]
        outbox.post(two, b"2")  # type: ignore[arg-type]
        outbox.post(one, b"3")  # type: ignore[arg-type]
        assert (one.writes, two.writes) == ([], [])
        await asyncio.sleep(0)
        outbox.post(one, b"4")  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert (one.writes, two.writes) == ([[b"1", b"3"], [b"4"]], [[b"2"]])

    asyncio.run(main())


def test_pull_when_a_slave_refuses_goes_to_the_master_again() -> None:
    async def scene(world: Scene) -> None:
        world.brokers[1] = f"{SLAVE_HOST}:10911"
        await world.start_broker(SLAVE_HOST)
        await world.within(1, asyncio.ensure_future(world.session.refresh_route("orders")))
        await world.begin(found(10, suggested=1), refused(ResponseCode.SYSTEM_BUSY), found(11))
        await world.advance(4)
        assert [link.local_address.split(":")[0] for link in world.links[:3]] == [HOST, SLAVE_HOST, HOST]
        assert world.bodies == [10, 11]

    run(scene)


def test_series_when_the_session_is_closed_ends() -> None:
    async def scene(world: Scene) -> None:
        await world.begin(found(10))
        await world.within(30, asyncio.ensure_future(world.session.close()))
        await world.advance(60)
        assert not world.fetch.is_alive
        assert world.asked == [10, 11]

    run(scene)
