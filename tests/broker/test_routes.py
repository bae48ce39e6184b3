"""Which door and which lane a request goes through."""

from __future__ import annotations

import pytest

from fusee.broker.routes import ADMIN, CLIENT, PULL, QUERY, SEND, TRANSACTION, add_routes, make_lanes
from fusee.clock import ManualClock
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.protocol_table import SERVED, Node
from tests.broker.world import ADDRESS, FAST_ADDRESS, BrokerWorld, play

LANES = {
    RequestCode.SEND_MESSAGE: SEND,
    RequestCode.SEND_MESSAGE_V2: SEND,
    RequestCode.SEND_BATCH_MESSAGE: SEND,
    RequestCode.CONSUMER_SEND_MSG_BACK: SEND,
    RequestCode.PULL_MESSAGE: PULL,
    RequestCode.LITE_PULL_MESSAGE: PULL,
    RequestCode.END_TRANSACTION: TRANSACTION,
    RequestCode.QUERY_MESSAGE: QUERY,
    RequestCode.HEART_BEAT: CLIENT,
    RequestCode.UPDATE_CONSUMER_OFFSET: CLIENT,
    RequestCode.UPDATE_AND_CREATE_TOPIC: ADMIN,
    RequestCode.GET_BROKER_CONFIG: ADMIN,
}


def answer(command: Command, link: Link) -> Command:
    return command.reply()


def routers() -> tuple[Router, Router]:
    router, fast_router = Router(), Router()
    lanes = make_lanes(router, sends_max=2, pulls_max=3)
    add_routes(router, fast_router, lanes, dict.fromkeys(LANES, answer))
    return router, fast_router


@pytest.mark.parametrize(("code", "lane"), LANES.items())
def test_full_lane_refuses_its_codes_alone_and_names_itself(code: RequestCode, lane: str) -> None:
    router, fast_router = routers()
    clock = ManualClock()
    link = Link(clock=clock, timers=clock)
    router.lanes[lane].in_flight = router.lanes[lane].limit
    for other, its_lane in LANES.items():
        found = router.dispatch(Command(other), link)
        assert isinstance(found, Command)
        assert found.code == (ResponseCode.SYSTEM_BUSY if its_lane == lane else 0)
    refused = router.dispatch(Command(code), link)
    assert isinstance(refused, Command)
    assert f"lane {lane} is full" in (refused.remark or "")
    if lane != PULL:
        refused = fast_router.dispatch(Command(code), link)
        assert isinstance(refused, Command)
        assert refused.code == ResponseCode.SYSTEM_BUSY, "both doors share their lanes"


def test_fast_door_serves_everything_but_pulls() -> None:
    router, fast_router = routers()
    assert router.codes == frozenset(LANES)
    assert router.codes - fast_router.codes == {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}


def test_limits_of_sends_and_pulls_are_the_configured_ones() -> None:
    router, _ = routers()
    assert (router.lanes[SEND].limit, router.lanes[PULL].limit) == (2, 3)


def test_both_doors_know_what_is_unfinished() -> None:
    router, fast_router = routers()
    router.lanes[SEND].in_flight = 2
    assert router.in_flight == fast_router.in_flight == 2


def test_send_on_the_fast_port_is_seen_on_the_other() -> None:
    async def scene(world: BrokerWorld) -> None:
        fast, usual = world.peer(address=FAST_ADDRESS), world.peer(address=ADDRESS)
        assert (await fast.send(b"quick")).code == 0
        assert (await usual.pull()).body.count(b"quick") == 1
        assert (await fast.pull()).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    play(scene)


def test_what_comes_later_gets_a_clear_answer() -> None:
    async def scene(world: BrokerWorld) -> None:
        peer = world.peer()
        for code in (RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION, RequestCode.ACK_MESSAGE):
            found = await peer.ask(code)
            assert found.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert str(int(code)) in (found.remark or "")

    play(scene)


def test_protocol_table_says_what_is_served() -> None:
    async def scene(world: BrokerWorld) -> None:
        assert world.broker._servers[0]._router.codes == SERVED[Node.BROKER]

    play(scene)
