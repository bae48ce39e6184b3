"""Server and client over the network in memory: every style of call, every way it can end."""

from __future__ import annotations

import asyncio

import pytest

from fusee.errors import (
    ConfigError,
    ConnectError,
    ConnectionLostError,
    FuseeError,
    RemoteError,
    RequestTimeoutError,
    TooManyRequestsError,
    TransportError,
)
from fusee.transport.link import Link, LinkLimits
from fusee.transport.router import Reply, Router
from fusee.transport.server import ServerSettings
from fusee.wire.codes import ResponseCode
from fusee.wire.command import Command
from fusee.wire.framing import encode_frame
from tests.transport.world import ECHO, World, echo, run


def test_awaited_request_gets_its_answer() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        client = world.client()
        answer = await world.during(client.request("s:1", echo(b"hello")))
        assert (answer.code, answer.body, answer.is_response) == (0, b"hello", True)
        assert world.events.seen == ["connect"]

    run(scenario)


def test_callback_request_connects_first_and_then_calls_back() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        client = world.client()
        seen: list[Command | TransportError] = []
        client.call("s:1", echo(b"1"), seen.append)
        await world.network.settle()
        client.call("s:1", echo(b"2"), seen.append)
        await world.network.settle()
        assert [item.body for item in seen if isinstance(item, Command)] == [b"1", b"2"]

    run(scenario)


def test_callback_request_to_nobody_calls_back_with_the_error() -> None:
    async def scenario() -> None:
        world = World()
        client = world.client()
        seen: list[Command | TransportError] = []
        client.call("s:1", echo(), seen.append)
        await world.network.settle()
        assert isinstance(seen[0], ConnectError)
        assert "s:1" in str(seen[0])

    run(scenario)


def test_oneway_is_served_and_never_answered() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        served: list[bytes] = []

        def note(request: Command, link: Link) -> Command:
            served.append(request.body)
            return request.reply()

        world.router.add(9001, note, world.lane)
        client = world.client()
        await world.during(client.oneway("s:1", Command(9001, body=b"x")))
        assert served == [b"x"]
        link = await client.link("s:1")
        assert link.in_flight == 0

    run(scenario)


def test_late_answers_may_come_out_of_order() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        kept: list[Reply] = []

        def keep(request: Command, link: Link) -> Reply:
            kept.append(Reply(request, link))
            return kept[-1]

        world.router.add(9001, keep, world.lane)
        client = world.client()
        first = asyncio.ensure_future(client.request("s:1", Command(9001, body=b"1")))
        second = asyncio.ensure_future(client.request("s:1", Command(9001, body=b"2")))
        await world.network.settle()
        assert world.lane.in_flight == 2
        for reply in reversed(kept):
            reply.send(reply.request.reply(body=reply.request.body))
            reply.send(reply.request.reply(body=b"twice"))
        await world.network.settle()
        assert (first.result().body, second.result().body) == (b"1", b"2")
        assert world.lane.in_flight == 0

    run(scenario)


def test_full_lane_answers_system_busy_that_names_lane_and_limit() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        kept: list[Reply] = []

        def keep(request: Command, link: Link) -> Reply:
            kept.append(Reply(request, link))
            return kept[-1]

        world.router.add(9001, keep, world.lane)
        client = world.client()
        waiting = [asyncio.ensure_future(client.request("s:1", Command(9001))) for _ in range(4)]
        await world.network.settle()
        answer = await world.during(client.request("s:1", echo()))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark.startswith("[OVERLOAD]lane echo is full: 4 requests unfinished, limit 4")
        for reply in kept:
            reply.send(reply.request.reply())
        await world.network.settle()
        assert all(task.result().code == 0 for task in waiting)
        assert (await world.during(client.request("s:1", echo()))).code == 0

    run(scenario)


def test_coroutine_handler_counts_in_its_lane_and_answers() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        gate = asyncio.Event()

        async def wait(request: Command, link: Link) -> Command:
            await gate.wait()
            return request.reply(body=b"done")

        world.router.add(9001, wait, world.lane)
        client = world.client()
        task = asyncio.ensure_future(client.request("s:1", Command(9001)))
        await world.network.settle()
        assert world.lane.in_flight == 1
        gate.set()
        await world.network.settle()
        assert task.result().body == b"done"
        assert world.lane.in_flight == 0

    run(scenario)


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (ValueError("boom"), 1, "ValueError: boom"),
        (RemoteError("no such topic", code=17), 17, "no such topic"),
        (FuseeError("bad"), 1, "FuseeError: bad"),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
def test_what_a_handler_raises_becomes_a_response(error: Exception, code: int, remark: str, waits: bool) -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)

        def fail(request: Command, link: Link) -> Command:
            raise error

        async def fail_later(request: Command, link: Link) -> Command:
            raise error

        world.router.add(9001, fail_later if waits else fail, world.lane)
        answer = await world.during(world.client().request("s:1", Command(9001)))
        assert (answer.code, answer.remark) == (code, remark)
        assert world.lane.in_flight == 0

    run(scenario)


def test_unknown_code_is_answered_with_code_3() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        answer = await world.during(world.client().request("s:1", Command(9999)))
        assert (answer.code, answer.remark) == (3, " request type 9999 not supported")

    run(scenario)


def test_request_without_answer_times_out_at_its_deadline() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.router.add(9001, Reply, world.lane)
        client = world.client()
        task = asyncio.ensure_future(client.request("s:1", Command(9001), timeout=2.5))
        await world.network.advance(2.4)
        assert not task.done()
        await world.network.advance(0.2)
        with pytest.raises(RequestTimeoutError, match=r"no answer from s:1 to request code 9001 within 2.5 s"):
            task.result()

    run(scenario)


def test_earlier_deadline_set_later_is_met() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.router.add(9001, Reply, world.lane)
        client = world.client()
        slow = asyncio.ensure_future(client.request("s:1", Command(9001), timeout=10))
        await world.network.settle()
        fast = asyncio.ensure_future(client.request("s:1", Command(9001), timeout=1))
        await world.network.advance(1.1)
        assert fast.done()
        assert not slow.done()
        with pytest.raises(RequestTimeoutError):
            fast.result()
        await world.network.advance(10)
        with pytest.raises(RequestTimeoutError):
            slow.result()

    run(scenario)


def test_cancelled_request_leaves_nothing_in_flight() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.router.add(9001, Reply, world.lane)
        client = world.client()
        task = asyncio.ensure_future(client.request("s:1", Command(9001)))
        await world.network.settle()
        task.cancel()
        await world.network.settle()
        assert (await client.link("s:1")).in_flight == 0

    run(scenario)


def test_cut_connection_fails_requests_in_flight_and_is_made_again() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.router.add(9001, Reply, world.lane)
        client = world.client()
        task = asyncio.ensure_future(client.request("s:1", Command(9001)))
        await world.network.settle()
        assert world.network.cut("c", "s") == 1
        await world.network.settle()
        with pytest.raises(ConnectionLostError, match="s:1 ended before the answer came"):
            task.result()
        assert world.events.seen == ["connect", "exception", "close"]
        assert (await world.during(client.request("s:1", echo(b"again")))).body == b"again"

    run(scenario)


def test_refused_address_rests_with_growing_pauses_and_recovers() -> None:
    async def scenario() -> None:
        world = World()
        client = world.client()
        with pytest.raises(ConnectError, match="nothing listens on s:1"):
            await world.during(client.request("s:1", echo()))
        with pytest.raises(ConnectError, match=r"1 attempts, next in 0\.1 s"):
            await world.during(client.request("s:1", echo()))
        await world.server.start("s", 1)
        with pytest.raises(ConnectError, match="nothing listens"):
            await world.during(client.request("s:1", echo()))
        await world.network.advance(0.2)
        assert (await world.during(client.request("s:1", echo()))).code == 0

    run(scenario)


def test_connect_that_hangs_ends_at_the_connect_timeout() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.network.weather("c", "s").held = True
        client = world.client(connect_timeout=3.0)
        with pytest.raises(ConnectError, match="no answer within 3 s"):
            await world.during(client.request("s:1", echo(), timeout=60), seconds=3.1)

    run(scenario)


def test_many_callers_share_one_connection_attempt() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.network.weather("c", "s").latency = 0.2
        client = world.client()
        answers = await world.during(
            asyncio.wait_for(
                asyncio.gather(*(client.request("s:1", echo(b"%d" % i)) for i in range(20))), timeout=None
            ),
            seconds=2.0,
        )
        assert [answer.body for answer in answers] == [b"%d" % i for i in range(20)]
        assert world.events.seen == ["connect"]

    run(scenario)


def test_any_chunking_and_latency_gives_the_same_answers() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        weather = world.network.weather("c", "s")
        weather.chunk_max = 7
        weather.latency = 0.01
        client = world.client()
        for i in range(30):
            body = b"%d" % i * i
            answer = await world.during(client.request("s:1", echo(body)), seconds=0.2)
            assert answer.body == body

    run(scenario)


def test_partition_that_heals_delivers_what_was_held() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        client = world.client()
        await world.during(client.request("s:1", echo()))
        world.network.weather("c", "s").held = True
        task = asyncio.ensure_future(client.request("s:1", echo(b"late"), timeout=30))
        await world.network.advance(10)
        assert not task.done()
        world.network.release("c", "s")
        await world.network.settle()
        assert task.result().body == b"late"

    run(scenario)


def test_lossy_wire_ends_in_a_timeout() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        client = world.client()
        await world.during(client.request("s:1", echo()))
        world.network.weather("c", "s").lossy = True
        with pytest.raises(RequestTimeoutError):
            await world.during(client.request("s:1", echo(), timeout=1), seconds=1.5)

    run(scenario)


def test_server_may_ask_the_client_on_the_same_connection() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        mine = Router()
        mine.add(7000, lambda request, link: request.reply(body=b"from client"), mine.lane("pushed", 8))
        client = world.client(router=mine)
        await world.during(client.request("s:1", echo()))
        (link,) = world.server.links
        answer = await world.during(link.request(Command(7000), timeout=3))
        assert answer.body == b"from client"

    run(scenario)


def test_idle_connection_is_closed_and_listeners_hear_of_it() -> None:
    async def scenario() -> None:
        world = World(ServerSettings(idle_timeout=120))
        await world.server.start("s", 1)
        client = world.client(idle_timeout=10_000)
        await world.during(client.request("s:1", echo()))
        await world.network.advance(60)
        await world.during(client.request("s:1", echo()))
        await world.network.advance(100)
        assert world.events.seen == ["connect"]
        await world.network.advance(55)
        assert world.events.seen == ["connect", "idle", "close"]
        assert not world.server.links

    run(scenario)


def test_client_closes_its_idle_connections_too() -> None:
    async def scenario() -> None:
        world = World(ServerSettings(idle_timeout=10_000, frame_timeout=10_000))
        await world.server.start("s", 1)
        client = world.client(idle_timeout=20, frame_timeout=20)
        await world.during(client.request("s:1", echo()))
        await world.network.advance(30)
        assert client.addresses == []
        assert not world.server.links

    run(scenario)


def test_connection_that_never_finishes_a_frame_is_closed_and_others_are_not() -> None:
    async def scenario() -> None:
        world = World(ServerSettings(idle_timeout=120, frame_timeout=60))
        await world.server.start("s", 1)
        good, slow = world.client("good"), world.client("slow")
        await world.during(good.request("s:1", echo()))
        link = await world.during(slow.link("s:1"))
        frame = encode_frame(echo(b"x" * 100))
        for second in range(80):  # one byte a second keeps the connection from being idle
            if link.is_open:
                link._transport.write(frame[second : second + 1])
            await world.network.advance(1)
        assert not link.is_open
        assert "sent only" in str(world.events.errors[0])
        assert (await world.during(good.request("s:1", echo(b"fine")))).body == b"fine"

    run(scenario)


def test_connections_over_the_limit_are_refused_and_others_live() -> None:
    async def scenario() -> None:
        world = World(ServerSettings(connections_max=2))
        await world.server.start("s", 1)
        clients = [world.client(f"c{i}") for i in range(3)]
        for client in clients[:2]:
            assert (await world.during(client.request("s:1", echo()))).code == 0
        with pytest.raises(ConnectionLostError):
            await world.during(clients[2].request("s:1", echo()))
        assert world.server.refused_connections == 1
        assert (await world.during(clients[0].request("s:1", echo()))).code == 0

    run(scenario)


def test_protocol_error_closes_one_connection_after_its_good_answers() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        good, bad = world.client("good"), world.client("bad")
        await world.during(good.request("s:1", echo()))
        link = await world.during(bad.link("s:1"))
        task = asyncio.ensure_future(link.request(echo(b"before"), timeout=3))
        await asyncio.sleep(0)
        link._transport.write(b"\xff\xff\xff\xff")
        await world.network.settle()
        assert task.result().body == b"before"
        assert not link.is_open
        assert "frame length -1" in str(world.events.errors[0])
        assert (await world.during(good.request("s:1", echo()))).code == 0

    run(scenario)


def test_peer_that_does_not_read_stops_being_read_then_is_cut_at_the_hard_limit() -> None:
    async def scenario() -> None:
        limits = LinkLimits(write_buffer_high=10_000, write_buffer_max=100_000)
        world = World(ServerSettings(link=limits))
        await world.server.start("s", 1)
        client = world.client()
        link = await world.during(client.link("s:1"))
        link._transport.pause_reading()
        sinks: list[object] = []
        for _ in range(6):
            link.call(echo(b"x" * 5_000), 60, sinks.append)
            await world.network.settle()
        (server_link,) = world.server.links
        # About 10 kB are answered; the rest of the requests is not even read.
        assert 10_000 < server_link.unsent_bytes < 20_000
        with pytest.raises(TooManyRequestsError, match="does not read"):
            server_link.send_oneway(Command(40))
        for _ in range(20):
            server_link.send(Command(0, 1, 1, body=b"x" * 5_000))
        await world.network.settle()
        assert not server_link.is_open
        assert "leaves" in str(world.events.errors[0])

    run(scenario)


def test_peer_that_reads_again_gets_everything() -> None:
    async def scenario() -> None:
        limits = LinkLimits(write_buffer_high=10_000)
        world = World(ServerSettings(link=limits))
        await world.server.start("s", 1)
        client = world.client()
        link = await world.during(client.link("s:1"))
        link._transport.pause_reading()
        sinks: list[object] = []
        for _ in range(10):
            link.call(echo(b"x" * 5_000), 60, sinks.append)
        await world.network.settle()
        assert sinks == []
        link._transport.resume_reading()
        await world.network.settle()
        assert len(sinks) == 10
        assert all(isinstance(item, Command) for item in sinks)

    run(scenario)


def test_client_waits_while_the_server_does_not_read_and_gives_up_in_time() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        client = world.client(link=LinkLimits(write_buffer_high=1_000))
        link = await world.during(client.link("s:1"))
        (server_link,) = world.server.links
        assert server_link._transport is not None
        server_link._transport.pause_reading()
        sinks: list[object] = []
        link.call(echo(b"x" * 5_000), 60, sinks.append)
        await world.network.settle()
        with pytest.raises(TooManyRequestsError, match="has not read for 2 s"):
            await world.during(client.oneway("s:1", echo(), timeout=2), seconds=2.1)
        waiting = asyncio.ensure_future(client.request("s:1", echo(b"later"), timeout=30))
        await world.network.advance(1)
        assert not waiting.done()
        server_link._transport.resume_reading()
        await world.network.settle()
        assert waiting.result().body == b"later"

    run(scenario)


def test_in_flight_limit_is_an_error_of_its_own() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.router.add(9001, Reply, world.lane)
        client = world.client(link=LinkLimits(in_flight_max=2))
        tasks = [asyncio.ensure_future(client.request("s:1", Command(9001))) for _ in range(2)]
        await world.network.settle()
        with pytest.raises(TooManyRequestsError, match="2 requests are in flight"):
            await world.during(client.request("s:1", echo()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(scenario)


def test_stop_finishes_what_is_in_flight_then_closes() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        kept: list[Reply] = []

        def keep(request: Command, link: Link) -> Reply:
            kept.append(Reply(request, link))
            return kept[-1]

        world.router.add(9001, keep, world.lane)
        client = world.client()
        task = asyncio.ensure_future(client.request("s:1", Command(9001), timeout=60))
        await world.network.settle()
        stopping = asyncio.ensure_future(world.server.stop())
        await world.network.advance(1)
        assert not stopping.done()
        kept[0].send(kept[0].request.reply(body=b"finished"))
        await world.network.advance(0.1)
        assert task.result().body == b"finished"
        assert stopping.done()
        assert world.events.seen == ["connect", "close"]

    run(scenario)


def test_stop_does_not_wait_longer_than_the_drain_time() -> None:
    async def scenario() -> None:
        world = World(ServerSettings(drain_timeout=5))
        await world.server.start("s", 1)
        world.router.add(9001, Reply, world.lane)
        client = world.client()
        task = asyncio.ensure_future(client.request("s:1", Command(9001), timeout=60))
        await world.network.settle()
        await world.during(world.server.stop(), seconds=5.1)
        with pytest.raises(ConnectionLostError):
            task.result()

    run(scenario)


def test_draining_server_sends_modern_clients_away_and_serves_old_ones() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        world.router.add(9001, Reply, world.lane)
        client = world.client()
        holding = asyncio.ensure_future(client.request("s:1", Command(9001), timeout=60))
        await world.network.settle()
        link = await client.link("s:1")
        stopping = asyncio.ensure_future(world.server.stop())
        await world.network.settle()
        modern = await world.during(link.request(echo(version=513), timeout=3))
        assert (modern.code, modern.remark) == (ResponseCode.GO_AWAY, "please go away")
        old = await world.during(link.request(echo(b"old", version=475), timeout=3))
        assert (old.code, old.body) == (0, b"old")
        await world.network.advance(11)
        assert stopping.done()
        await asyncio.gather(holding, return_exceptions=True)

    run(scenario)


def test_client_told_to_go_away_asks_once_more_on_a_fresh_connection() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        client = world.client()
        await world.during(client.request("s:1", echo()))
        (old,) = world.server.links
        old.is_leaving = True
        answer = await world.during(client.request("s:1", echo(b"moved")))
        assert (answer.code, answer.body) == (0, b"moved")
        assert old not in world.server.links

    run(scenario)


def test_closed_client_refuses_and_leaves_no_connection() -> None:
    async def scenario() -> None:
        world = World()
        await world.server.start("s", 1)
        client = world.client()
        await world.during(client.request("s:1", echo()))
        await client.close()
        await world.network.settle()
        assert not world.server.links
        with pytest.raises(ConnectError, match="closed"):
            await world.during(client.request("s:1", echo()))

    run(scenario)


@pytest.mark.parametrize("address", ["nowhere", "host:", "host:port", "host:99999", ":"])
def test_address_that_is_none_says_what_to_write(address: str) -> None:
    async def scenario() -> None:
        world = World()
        with pytest.raises(ConfigError, match="write HOST:PORT"):
            await world.during(world.client().request(address, echo()))

    run(scenario)


def test_echo_code_is_served() -> None:
    assert ECHO in World().router.codes
