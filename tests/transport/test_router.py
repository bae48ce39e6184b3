"""Large requests wait for their turn, in order, and each is answered whatever becomes of the one before."""

from __future__ import annotations

from collections.abc import Callable

from fusee.clock import ManualClock
from fusee.transport.link import Link
from fusee.transport.router import InTurn, Router
from fusee.wire.codes import ResponseCode
from fusee.wire.command import Command


class Turns:
    """A loop that turns when told."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def soon(self, function: Callable[[], object]) -> None:
        self.waiting.append(function)

    def turn(self) -> None:
        functions, self.waiting = self.waiting, []
        for function in functions:
            function()


class RecordingLink(Link):
    """A connection that keeps its answers."""

    def __init__(self) -> None:
        clock = ManualClock()
        super().__init__(clock=clock, timers=clock)
        self.answers: list[tuple[int, int]] = []

    def send(self, answer: Command | bytes | list[bytes | memoryview]) -> None:
        assert isinstance(answer, Command)
        self.answers.append((answer.opaque, answer.code))


def request(opaque: int) -> Command:
    command = Command.request(7)
    command.opaque = opaque
    return command


def test_one_request_is_handled_in_a_turn_and_all_are_in_order() -> None:
    turns, link, router, handled = Turns(), RecordingLink(), Router(), []

    def handle(command: Command, link: Link) -> Command | None:
        handled.append(command.opaque)
        if command.opaque == 2:
            raise ValueError("no")
        return None if command.opaque == 3 else command.reply(0)

    lane = router.lane("large", 3)
    router.add(7, InTurn(handle, turns.soon), lane)
    for opaque in (1, 2, 3):
        assert router.dispatch(request(opaque), link) is None
    refused = router.dispatch(request(4), link)
    assert isinstance(refused, Command)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert (handled, lane.in_flight) == ([], 3)
    for count in (1, 2, 3):
        turns.turn()
        assert (len(handled), lane.in_flight) == (count, 3 - count)
    assert handled == [1, 2, 3]
    # the third will be answered by somebody else
    assert link.answers == [(1, 0), (2, ResponseCode.SYSTEM_ERROR)]
    assert turns.waiting == []
    router.dispatch(request(5), link)
    turns.turn()
    assert link.answers[-1] == (5, 0)
