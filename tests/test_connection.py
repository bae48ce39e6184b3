"""`fusee.connect`: what connections of one program share, in what order they end, and what they say when misused."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import fusee
from fusee.client.config import ServiceState
from fusee.client.sharing import _shared
from fusee.client.trace import decode_trace
from fusee.connection import Connection
from fusee.errors import ClientStateError, ConfigError, ConnectError, FuseeError
from fusee.message.topics import TRACE_TOPIC
from tests.client.world import ClusterWorld, play

TOPIC = "orders"
HOST = "10.0.9.1"


class Program:
    """A program on a host of its own, and the connections it opens."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.network = world.network.host(HOST)
        self.random = random.Random(7)
        self.connections: list[Connection] = []

    def connect(self, **options: Any) -> Connection:
        values: dict[str, Any] = {"name_servers": self.world.name_server_text, "client_ip": HOST, **options}
        connection = fusee.connect(
            network=self.network, clock=self.world.clock, timers=self.world.clock, chooser=self.random, **values
        )
        self.connections.append(connection)
        return connection

    async def open(self, **options: Any) -> Connection:
        connection = self.connect(**options)
        await self.do(connection.start())
        return connection

    async def do(self, work: Coroutine[Any, Any, Any], seconds: float = 60.0) -> Any:
        return await self.world.do(work, seconds)

    async def send(self, mq: Connection, *bodies: bytes) -> None:
        for body in bodies:
            await self.world.within(10.0, mq.send(TOPIC, body))

    def connections_to(self, broker: str = "broker-a") -> int:
        """How many connections this host has to a broker."""
        return len(self.world.network._between(HOST, self.world.broker_hosts[broker])) // 2

    def members(self, group: str) -> list[str]:
        """The members of a consumer group, as the broker knows them."""
        found = self.world.broker.consumers.group(group)
        return [] if found is None else found.client_ids

    def producers(self) -> set[str]:
        """The producer groups that the broker knows."""
        return set(self.world.broker.producers.all())


def program(scene: Callable[[Program], Coroutine[Any, Any, None]], *, queues: int = 4, **settings: Any) -> None:
    """Play a scene; afterwards nothing of the program is left."""

    async def run(world: ClusterWorld) -> None:
        world.create_topic(TOPIC, queues)
        await world.settle()
        made = Program(world)
        try:
            await scene(made)
        finally:
            for connection in made.connections:
                await made.do(connection.close())
        await world.advance(2)
        assert not _shared.get(asyncio.get_running_loop())
        assert made.connections_to() == 0
        assert made.world.network._between(HOST, "10.0.1.1") == []

    play(run, **settings)


class Taken:
    """A listener that remembers bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, message: fusee.ReceivedMessage) -> None:
        self.bodies.append(message.body)


# What is shared


def test_connections_with_the_same_settings_share_one_connection_to_each_broker() -> None:
    async def scene(on: Program) -> None:
        one, two = await on.open(), await on.open()
        assert one.session is two.session
        assert one.client_id == two.client_id
        await on.send(one, b"1")
        await on.send(two, b"2")
        taken = Taken()
        async with asyncio.timeout(None):
            await on.do(two.consumer(TOPIC, group="billing", consume_from="first", listener=taken).start())
        await on.world.settle()
        assert sorted(taken.bodies) == [b"1", b"2"]
        assert on.connections_to() == 1
        assert one.admin._session is two.admin._session

    program(scene)


def test_connections_that_start_at_once_share_too() -> None:
    async def scene(on: Program) -> None:
        made = [on.connect() for _ in range(5)]
        await on.do(asyncio.wait_for(asyncio.gather(*(each.start() for each in made)), None))
        assert len({id(each.session) for each in made}) == 1

    program(scene)


@pytest.mark.parametrize(
    "options",
    [{"instance_name": "other"}, {"unit_name": "u"}, {"heartbeat_broker_interval_ms": 1}, {"enable_trace": True}],
)
def test_connections_with_other_settings_are_apart(options: dict[str, Any]) -> None:
    async def scene(on: Program) -> None:
        one, two = await on.open(), await on.open(**options)
        assert one.session is not two.session
        assert one.client_id != two.client_id

    program(scene)


def test_close_of_one_leaves_the_other_at_work_and_the_last_one_closes() -> None:
    async def scene(on: Program) -> None:
        one, two = await on.open(), await on.open()
        session = one.session
        mine, theirs = Taken(), Taken()
        await on.do(one.consumer(TOPIC, group="mine", consume_from="first", listener=mine).start())
        await on.do(two.consumer(TOPIC, group="theirs", consume_from="first", listener=theirs).start())
        await on.do(one.producer("producers_of_one").start())
        await on.send(one, b"1")
        await on.do(session.heartbeat_all())
        await on.do(one.close())
        assert on.members("mine") == []
        assert len(on.members("theirs")) == 1
        assert "producers_of_one" not in on.producers()
        await on.send(two, b"2")
        await on.world.settle()
        assert (mine.bodies, theirs.bodies) == ([b"1"], [b"1", b"2"])
        assert _state(session) is ServiceState.RUNNING
        await on.do(two.close())
        assert _state(session) is ServiceState.SHUTDOWN_ALREADY
        assert on.members("theirs") == []

    program(scene)


def test_connection_after_the_last_one_closed_is_a_new_one() -> None:
    async def scene(on: Program) -> None:
        one = await on.open()
        session = one.session
        await on.send(one, b"x")
        on.world.network.weather(HOST, "10.0.0.1").latency = 0.2
        closing = asyncio.ensure_future(one.close())
        await on.world.advance(0.1)
        assert not closing.done()
        two = await on.open()
        await on.world.within(10.0, closing)
        assert two.session is not session
        await on.send(two, b"works")

    program(scene)


def test_loops_do_not_share() -> None:
    sessions = []

    async def scene(on: Program) -> None:
        mq = await on.open()
        sessions.append(mq.session)

    program(scene)
    program(scene)
    assert sessions[0] is not sessions[1]


# Beginning


def test_start_when_no_name_server_answers_says_which_and_why() -> None:
    async def scene(on: Program) -> None:
        mq = on.connect(name_servers="10.0.7.7:9876")
        with pytest.raises(ConnectError, match="10.0.7.7:9876.*nothing listens"):
            await on.do(mq.start())
        assert mq.state is ServiceState.START_FAILED
        with pytest.raises(ClientStateError, match="failed to start"):
            await on.do(mq.start())
        with pytest.raises(ClientStateError, match="failed to start"):
            mq.send(TOPIC, b"x")
        await on.do(mq.close())

    program(scene)


def test_start_that_fails_while_another_waits_fails_for_both_and_the_next_tries_anew() -> None:
    async def scene(on: Program) -> None:
        (host,) = on.world.name_server_hosts
        await on.do(on.world.name_servers[host].stop())
        one, two = on.connect(), on.connect()
        outcomes = await on.do(_outcomes(one.start(), two.start()))
        assert [type(each) for each in outcomes] == [ConnectError, ConnectError]
        await on.world.start_name_server(host)
        await on.world.advance(40)
        three = await on.open()
        await on.send(three, b"works")

    program(scene)


def test_start_that_is_cancelled_leaves_the_other_one_starting() -> None:
    async def scene(on: Program) -> None:
        on.world.network.weather(HOST, "10.0.1.1").latency = 0.5
        one, two = on.connect(), on.connect()
        first, second = asyncio.ensure_future(one.start()), asyncio.ensure_future(two.start())
        await on.world.advance(0.1)
        first.cancel()
        await on.world.within(10.0, second)
        assert first.cancelled()
        await on.send(two, b"works")
        assert (await on.open()).session is two.session

    program(scene)


def test_start_that_is_cancelled_when_it_has_just_succeeded_keeps_the_session_shared() -> None:
    async def scene(on: Program) -> None:
        two = on.connect()
        one = on.connect()
        first = asyncio.ensure_future(one.start())
        second = asyncio.ensure_future(two.start())
        await asyncio.sleep(0)
        (shared,) = _shared[asyncio.get_running_loop()].values()
        assert shared.starting is not None
        shared.starting.add_done_callback(lambda done: first.cancel())
        await on.world.within(10.0, second)
        assert first.cancelled()
        assert (await on.open()).session is two.session

    program(scene)


def test_start_that_is_cancelled_alone_leaves_nothing() -> None:
    async def scene(on: Program) -> None:
        on.world.network.weather(HOST, "10.0.1.1").latency = 0.5
        starting = asyncio.ensure_future(on.connect().start())
        await on.world.advance(0.1)
        starting.cancel()
        await on.world.advance(2)
        assert starting.cancelled()
        assert not _shared.get(asyncio.get_running_loop())

    program(scene)


def test_close_while_starting_ends_the_start() -> None:
    async def scene(on: Program) -> None:
        on.world.network.weather(HOST, "10.0.1.1").latency = 0.5
        mq = on.connect()
        starting = asyncio.ensure_future(mq.start())
        await on.world.advance(0.1)
        await on.do(mq.close())
        with pytest.raises(ClientStateError, match="closed"):
            await on.world.within(10.0, starting)
        assert mq.state is ServiceState.SHUTDOWN_ALREADY
        assert not _shared.get(asyncio.get_running_loop())

    program(scene)


def test_use_before_start_and_after_close_says_how_to_do_it() -> None:
    async def scene(on: Program) -> None:
        mq = on.connect()
        for use in _uses(mq):
            with pytest.raises(ClientStateError, match="created, not started.*async with"):
                await on.do(use())
        await on.do(mq.start())
        with pytest.raises(ClientStateError, match="running; make a new one"):
            await on.do(mq.start())
        await on.do(mq.close())
        await on.do(mq.close())
        for use in _uses(mq):
            with pytest.raises(ClientStateError, match="closed"):
                await on.do(use())

    program(scene)


def test_name_servers_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(on: Program) -> None:
        monkeypatch.setenv("NAMESRV_ADDR", on.world.name_server_text)
        mq = await on.open(name_servers=None)
        await on.send(mq, b"works")

    program(scene)


async def _connect_without() -> None:
    fusee.connect()


def test_name_servers_when_nobody_names_one_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        asyncio.run(_connect_without())


def test_name_server_when_the_first_is_dead_is_the_next() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open(name_servers=f"10.0.7.7:9876;{on.world.name_server_text}")
        await on.send(mq, b"works")

    program(scene)


def test_name_server_whose_host_is_unknown_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def resolve_but_one(host: Any, *args: Any, **options: Any) -> Any:
        if host == "gone":
            raise socket.gaierror(-2, "Name or service not known")
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_but_one)

    async def scene() -> None:
        async with (
            fusee.embedded(topics=[TOPIC]) as server,
            fusee.connect(f"gone:9876;{server.name_server}") as mq,
        ):
            assert mq.client_id.startswith("127.0.0.1@")
            await mq.send(TOPIC, b"x")
            with pytest.raises(ConnectError, match="gone:9876: cannot connect.*Name or service not known"):
                await fusee.connect("gone:9876")

    asyncio.run(scene())


def test_await_starts_and_async_with_closes() -> None:
    async def scene(on: Program) -> None:
        async def awaited() -> Connection:
            return await on.connect()

        mq = await on.do(awaited())
        assert mq.state is ServiceState.RUNNING

        async def inside() -> Connection:
            async with on.connect() as inner:
                assert inner.state is ServiceState.RUNNING
                return inner

        assert (await on.do(inside())).state is ServiceState.SHUTDOWN_ALREADY
        assert mq.state is ServiceState.RUNNING

    program(scene)


# Members of a group


def test_second_member_of_a_group_has_a_client_id_of_its_own_and_gets_its_share() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        one, two = Taken(), Taken()
        first = mq.consumer(TOPIC, group="billing", consume_from="first", listener=one)
        second = mq.consumer(TOPIC, group="billing", consume_from="first", listener=two)
        await on.do(first.start())
        await on.do(second.start())
        await on.world.advance(3)
        assert len(set(on.members("billing"))) == 2
        await on.send(mq, *(str(number).encode() for number in range(8)))
        await on.world.settle()
        assert len(one.bodies) == len(two.bodies) == 4
        await on.do(second.close())
        await on.world.advance(3)
        assert on.members("billing") == [mq.client_id]
        assert on.connections_to() == 1

    program(scene)


def test_second_member_by_another_connection_has_a_client_id_of_its_own() -> None:
    """Both connections share a session, and neither consumer is started when the other is made."""

    async def scene(on: Program) -> None:
        one, two = await on.open(), await on.open()
        first = one.consumer(TOPIC, group="billing", listener=Taken())
        second = two.consumer(TOPIC, group="billing", listener=Taken())
        await on.do(second.start())
        await on.do(first.start())
        assert len(set(on.members("billing"))) == 2

    program(scene)


def test_members_of_a_named_instance_never_share_a_client_id() -> None:
    """Two members with one id would both take all of its queues."""

    async def scene(on: Program) -> None:
        one, two = await on.open(instance_name="app"), await on.open(instance_name="app")
        await on.do(one.consumer(TOPIC, group="billing", listener=Taken()).start())
        second = two.consumer(TOPIC, group="billing", listener=Taken())
        await on.do(second.start())
        third = one.consumer(TOPIC, group="billing", listener=Taken())
        await on.do(third.start())
        assert len(set(on.members("billing"))) == 3
        await on.do(second.close())
        del second
        await on.do(one.consumer(TOPIC, group="billing", listener=Taken()).start())
        assert len(on.members("billing")) == len(set(on.members("billing"))) == 3
        other = await on.open(instance_name="app")
        await on.do(other.consumer(TOPIC, group="billing", listener=Taken()).start())
        assert sorted(on.members("billing")) == [f"{HOST}@app", *(f"{HOST}@app-{number}" for number in (2, 3, 4))]

    program(scene)


def test_member_that_was_closed_leaves_its_place_on_the_shared_session() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        for _ in range(3):
            consumer = mq.consumer(TOPIC, group="billing", listener=Taken())
            await on.do(consumer.start())
            assert on.members("billing") == [mq.client_id]
            await on.do(consumer.close())

    program(scene)


def test_second_member_that_polls_has_a_session_that_ends_with_it() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        first = mq.pull_consumer(TOPIC, group="billing")
        second = mq.pull_consumer(TOPIC, group="billing")
        await on.do(first.start())
        await on.do(second.start())
        assert len(set(on.members("billing"))) == 2
        await on.do(second.close())
        await on.world.settle()
        assert on.members("billing") == [mq.client_id]
        assert on.connections_to() == 1

    program(scene)


# Ending


def test_close_ends_consumers_then_producers_then_the_session() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        ends: list[str] = []
        session = mq.session
        producer = mq.producer("producers")
        await on.do(producer.start())
        replies: list[asyncio.Future[Any]] = []

        async def listener(message: fusee.ReceivedMessage) -> None:
            started.set_result(None)
            await gate
            replies.append(producer.send(TOPIC, b"while closing", tag="reply"))
            await replies[0]
            ends.append("listener")

        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await on.do(mq.consumer(TOPIC, group="billing", tags="in", consume_from="first", listener=listener).start())
        await on.world.within(10.0, mq.send(TOPIC, b"x", tag="in"))
        await on.world.within(10.0, started)
        closing = asyncio.ensure_future(mq.close())
        await on.world.settle()
        assert _state(producer) is ServiceState.RUNNING
        gate.set_result(None)
        await on.world.within(10.0, closing)
        assert ends == ["listener"]
        assert _state(producer) is ServiceState.SHUTDOWN_ALREADY
        assert session.state is ServiceState.SHUTDOWN_ALREADY
        assert sum(on.world.broker.offsets.query("billing", TOPIC, queue) for queue in range(4)) == 1

    program(scene)


def test_close_twice_at_once_is_over_for_both_when_it_is_over() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        session = mq.session
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def listener(message: fusee.ReceivedMessage) -> None:
            await gate

        await on.do(mq.consumer(TOPIC, group="billing", consume_from="first", listener=listener).start())
        await on.send(mq, b"x")
        await on.world.settle()
        first, second = asyncio.ensure_future(mq.close()), asyncio.ensure_future(mq.close())
        await on.world.settle()
        assert not first.done()
        assert not second.done()
        gate.set_result(None)
        await on.world.within(10.0, second)
        assert session.state is ServiceState.SHUTDOWN_ALREADY

    program(scene)


def test_close_whose_caller_is_cancelled_goes_on() -> None:
    async def scene(on: Program) -> None:
        mq, other = await on.open(), await on.open()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def listener(message: fusee.ReceivedMessage) -> None:
            await gate

        producer = mq.producer("producers")
        await on.do(producer.start())
        await on.do(mq.consumer(TOPIC, group="billing", consume_from="first", listener=listener).start())
        await on.send(mq, b"x")
        await on.world.settle()
        closing = asyncio.ensure_future(mq.close())
        await on.world.settle()
        closing.cancel()
        await on.world.settle()
        gate.set_result(None)
        await on.do(mq.close())
        assert on.members("billing") == []
        assert producer.state is ServiceState.SHUTDOWN_ALREADY
        assert sum(on.world.broker.offsets.query("billing", TOPIC, queue) for queue in range(4)) == 1
        await on.send(other, b"works")

    program(scene)


def test_close_when_one_consumer_fails_to_close_closes_all_others() -> None:
    class BrokenError(Exception):
        pass

    async def scene(on: Program) -> None:
        mq, other = await on.open(), await on.open()
        consumer = mq.consumer(TOPIC, group="billing", listener=Taken())
        await on.do(consumer.start())
        producer = mq.producer("producers")
        await on.do(producer.start())
        close = consumer.close

        async def broken() -> None:
            await close()
            raise BrokenError

        consumer.close = broken  # type: ignore[method-assign,assignment]
        with pytest.raises(BrokenError):
            await on.do(mq.close())
        on.connections.remove(mq)
        assert producer.state is ServiceState.SHUTDOWN_ALREADY
        await on.do(other.close())

    program(scene)


def test_close_inside_a_listener_does_not_wait_for_that_listener() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        session = mq.session
        seen: list[str] = []

        async def listener(message: fusee.ReceivedMessage) -> None:
            seen.append("begin")
            await mq.close()
            seen.append("end")

        await on.do(mq.consumer(TOPIC, group="billing", consume_from="first", listener=listener).start())
        await on.send(mq, b"x")
        await on.world.advance(3)
        assert seen == ["begin", "end"]
        assert session.state is ServiceState.SHUTDOWN_ALREADY

    program(scene)


def test_close_inside_a_listener_by_another_task_is_of_the_listener_too() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        seen: list[str] = []

        async def listener(message: fusee.ReceivedMessage) -> None:
            seen.append("begin")
            await asyncio.ensure_future(consumer.close())
            seen.append("end")

        consumer = mq.consumer(TOPIC, group="billing", consume_from="first", listener=listener)
        await on.do(consumer.start())
        await on.send(mq, b"x")
        await on.world.advance(3)
        assert seen == ["begin", "end"]
        assert on.members("billing") == []

    program(scene)


def test_close_inside_a_loop_does_not_wait_for_its_next_step() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        session = mq.session
        await on.send(mq, b"x")

        async def loop() -> None:
            async with mq.consumer(TOPIC, group="billing", consume_from="first") as messages:
                async for _ in messages:
                    await mq.close()

        await on.do(loop(), 3.0)
        assert session.state is ServiceState.SHUTDOWN_ALREADY

    program(scene)


def test_close_of_its_own_consumer_inside_a_listener_of_a_second_member_ends_its_session() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        await on.do(mq.consumer(TOPIC, group="billing", listener=Taken()).start())
        seen: list[str] = []

        async def listener(message: fusee.ReceivedMessage) -> None:
            seen.append("begin")
            await second.close()
            seen.append("end")

        second = mq.consumer(TOPIC, group="billing", listener=listener)
        await on.do(second.start())
        await on.world.advance(3)
        assert on.connections_to() == 2
        for _ in range(4):
            await on.send(mq, b"x")
        await on.world.advance(3)
        assert seen[:2] == ["begin", "end"]
        assert on.members("billing") == [mq.client_id]
        assert on.connections_to() == 1

    program(scene)


# Transactions


def test_transaction_group_is_joined_once_and_has_one_check() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()

        def check(message: fusee.ReceivedMessage) -> bool:
            return True

        async def pay(body: bytes) -> None:
            async with mq.transaction(TOPIC, body, check=check) as transaction:
                assert transaction.sent is not None

        await on.do(_all(pay(b"1"), pay(b"2")))
        await on.do(pay(b"3"))
        await on.world.advance(1)
        assert sorted(message.body for message in on.world.stored(TOPIC)) == [b"1", b"2", b"3"]
        assert f"FUSEE_TRANSACTION_{TOPIC}" in on.producers()
        with pytest.raises(ConfigError, match="another check already"):
            await on.do(_enter(mq.transaction(TOPIC, b"4", check=lambda message: True)))

    program(scene)


def test_transactions_of_one_group_by_two_connections_both_work() -> None:
    async def scene(on: Program) -> None:
        one, two = await on.open(), await on.open()

        def check(message: fusee.ReceivedMessage) -> bool:
            return True

        async def pay(mq: Connection, body: bytes) -> None:
            async with mq.transaction(TOPIC, body, check=check):
                pass

        await on.do(pay(one, b"1"))
        await on.do(pay(two, b"2"))
        await on.do(one.close())
        await on.do(pay(two, b"3"))
        await on.world.advance(1)
        assert sorted(message.body for message in on.world.stored(TOPIC)) == [b"1", b"2", b"3"]
        with pytest.raises(ConfigError, match="another check already"):
            await on.do(_enter(two.transaction(TOPIC, b"4", check=lambda message: True)))

    program(scene)


def test_transaction_rolls_back_on_an_exception_and_send_in_transaction_does_as_it_is_told() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()

        def check(message: fusee.ReceivedMessage) -> bool:
            return False

        async def pay() -> None:
            async with mq.transaction(TOPIC, b"never", check=check):
                raise ValueError("never")

        with pytest.raises(ValueError, match="never"):
            await on.do(pay())

        async def execute(message: fusee.Message, argument: object) -> bool:
            return argument == "yes"

        for argument in ("yes", "no"):
            result = await on.do(
                mq.send_in_transaction(TOPIC, argument.encode(), argument, execute=execute, check=check)
            )
            assert result.is_confirmed
        await on.world.advance(1)
        assert [message.body for message in on.world.stored(TOPIC)] == [b"yes"]

    program(scene)


def test_transaction_when_its_group_cannot_start_can_be_tried_again() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        taken = mq.producer("ledger")
        await on.do(taken.start())

        def check(message: fusee.ReceivedMessage) -> bool:
            return True

        with pytest.raises(ConfigError, match="producer of group 'ledger' already"):
            await on.do(_enter(mq.transaction(TOPIC, b"1", check=check, group="ledger")))
        await on.do(taken.close())
        await on.do(_enter(mq.transaction(TOPIC, b"2", check=check, group="ledger")))
        await on.world.advance(1)
        assert [message.body for message in on.world.stored(TOPIC)] == [b"2"]

    program(scene)


# Handlers, trace, request and reply


def test_handlers_consume_while_run_runs_and_end_with_the_connection() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()
        seen: list[str] = []

        @mq.handler(TOPIC, group="billing", consume_from="first")
        async def bill(order: str) -> None:
            seen.append(order)

        await on.send(mq, b"1")
        running = asyncio.ensure_future(mq.run())
        await on.world.advance(1)
        assert seen == ["1"]
        assert on.members("billing") == [mq.client_id]
        await on.do(mq.close())
        await on.world.within(1.0, running)
        assert on.members("billing") == []

    program(scene)


def test_handlers_end_when_run_is_cancelled() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open()

        @mq.handler(TOPIC, group="billing")
        async def bill(order: str) -> None:
            raise AssertionError

        running = asyncio.ensure_future(mq.run())
        await on.world.advance(1)
        running.cancel()
        await on.world.advance(1)
        assert running.cancelled()
        assert on.members("billing") == []

    program(scene)


def test_handlers_that_are_started_while_the_connection_closes_do_not_run_on() -> None:
    async def scene(on: Program) -> None:
        mq, other = await on.open(), await on.open()

        @mq.handler(TOPIC, group="billing")
        async def bill(order: str) -> None:
            raise AssertionError

        on.world.network.weather(HOST, "10.0.0.1").latency = 0.2
        starting = asyncio.ensure_future(mq.start_handlers())
        await on.world.advance(0.1)
        await on.do(mq.close())
        await on.world.advance(5)
        assert isinstance(starting.exception(), FuseeError)
        assert on.members("billing") == []
        await on.do(other.close())

    program(scene)


def test_trace_reports_what_is_sent_and_consumed() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open(enable_trace=True)
        taken = Taken()
        await on.do(mq.consumer(TOPIC, group="billing", consume_from="first", listener=taken).start())
        sent = await on.world.within(10.0, mq.send(TOPIC, b"x"))
        await on.world.advance(12)
        traces = [trace for message in on.world.stored(TRACE_TOPIC) for trace in decode_trace(message.body)]
        about = [trace.kind.value for trace in traces if trace.message_id == sent.message_id]
        assert sorted(about) == ["Pub", "SubAfter", "SubBefore"]

    program(scene, trace_topic_enable=True)


def test_trace_is_sent_before_the_connection_is_closed() -> None:
    async def scene(on: Program) -> None:
        mq = await on.open(enable_trace=True)
        await on.send(mq, b"x")
        await on.do(mq.close())
        await on.world.advance(1)
        assert on.world.stored(TRACE_TOPIC)

    program(scene, trace_topic_enable=True)


def test_request_is_answered_by_another_connection() -> None:
    async def scene(on: Program) -> None:
        asker, answerer = await on.open(), await on.open(instance_name="other")

        async def listener(message: fusee.ReceivedMessage) -> None:
            await answerer.reply(message, b"yes, " + message.body)

        await on.do(answerer.consumer(TOPIC, group="billing", consume_from="first", listener=listener).start())
        answer = await on.do(asker.request(TOPIC, b"please"))
        assert answer.body == b"yes, please"

    program(scene)


def test_background_failures_while_closing_make_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    """What still fails while the session says good-bye is nobody's concern any more."""

    async def scene(on: Program) -> None:
        mq = await on.open()
        await on.send(mq, b"x")
        session = mq.session
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def fail() -> None:
            await failing
            raise ConnectError("too late")

        session.spawn(fail())
        on.world.network.weather(HOST, "10.0.0.1").latency = 0.2
        closing = asyncio.ensure_future(mq.close())
        await on.world.advance(0.1)
        failing.set_result(None)
        await on.world.within(10.0, closing)

    with caplog.at_level(logging.WARNING):
        program(scene)
    assert [record.getMessage() for record in caplog.records if "never retrieved" in record.getMessage()] == []


def _state(of: Any) -> ServiceState:
    """The state now, whatever a type checker believes it to be."""
    state: ServiceState = of.state
    return state


async def _outcomes(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    return list(await asyncio.gather(*work, return_exceptions=True))


async def _all(*work: Coroutine[Any, Any, Any]) -> None:
    await asyncio.gather(*work)


async def _enter(block: Any) -> None:
    async with block:
        pass


def _uses(mq: Connection) -> list[Callable[[], Coroutine[Any, Any, Any]]]:
    def plain(call: Callable[[], Any]) -> Callable[[], Coroutine[Any, Any, Any]]:
        async def use() -> Any:
            return call()

        return use

    return [
        plain(lambda: mq.send(TOPIC, b"x")),
        plain(lambda: mq.send_batch([fusee.Message(TOPIC, b"x")])),
        plain(lambda: mq.send_async(TOPIC, b"x", callback=print)),
        lambda: mq.send_oneway(TOPIC, b"x"),
        lambda: mq.request(TOPIC, b"x"),
        lambda: _enter(mq.transaction(TOPIC, b"x", check=lambda message: True)),
        plain(lambda: mq.producer("producers")),
        plain(lambda: mq.consumer(TOPIC, group="billing")),
        plain(lambda: mq.pull_consumer(TOPIC, group="billing")),
        plain(lambda: mq.admin),
        plain(lambda: mq.session),
        plain(lambda: mq.client_id),
        mq.start_handlers if mq.handlers.handlers else plain(lambda: mq.client_id),
    ]
