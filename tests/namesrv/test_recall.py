"""Remembered answers are the answers that would have been made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.clock import ManualClock
from fusee.namesrv.recall import Recall
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder, encode_frame
from fusee.wire.hot_encode import PreparedAnswer
from tests.namesrv.brokers import NameServerDesk
from tests.namesrv.test_handlers import announce


def question(opaque: int, topic: str = "t1", version: int = 513) -> bytes:
    return encode_frame(Command(105, opaque, version=version, ext_fields={"topic": topic}))


class Wire:
    """A connection whose answers are kept."""

    def __init__(self, desk: NameServerDesk, *, recalls: bool) -> None:
        self.written = b""
        router = Router()
        router.add_all(desk.handlers.routes(), router.lane("all", 100))
        if recalls:
            router.recall = desk.handlers.recall.answers
        clock = ManualClock()
        self.link = Link(clock=clock, timers=clock, router=router)
        self.link.connection_made(self)

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to close."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """No limits."""

    def ask(self, data: bytes) -> bytes:
        self.written = b""
        self.link.data_received(data)
        return self.written


def test_repeated_question_is_answered_from_memory_with_its_own_opaque() -> None:
    desk = NameServerDesk()
    announce(desk)
    wire, plain = Wire(desk, recalls=True), Wire(desk, recalls=False)
    assert len(desk.handlers.recall) == 0
    for opaque in (1, 22, 333, 2147483647):
        assert wire.ask(question(opaque)) == plain.ask(question(opaque))
    assert len(desk.handlers.recall) == 1
    assert desk.handlers.recall.answers(question(9)) is not None


def test_change_of_a_table_forgets_everything() -> None:
    desk = NameServerDesk()
    announce(desk)
    wire, plain = Wire(desk, recalls=True), Wire(desk, recalls=False)
    before = wire.ask(question(1))
    assert wire.ask(question(2)) == plain.ask(question(2))
    announce(desk, name="another")
    after = wire.ask(question(1))
    assert after == plain.ask(question(1))
    assert after != before


def test_many_questions_in_one_chunk_and_a_chunk_that_ends_inside_one() -> None:
    desk = NameServerDesk()
    announce(desk)
    wire = Wire(desk, recalls=True)
    wire.ask(question(0))
    opaques = list(range(1, 40))
    stream = b"".join(question(opaque) for opaque in opaques)
    assert [command.opaque for command in FrameDecoder().feed(wire.ask(stream))] == opaques
    half = wire.ask(stream + question(50)[:20])
    assert [command.opaque for command in FrameDecoder().feed(half)] == opaques
    assert [command.opaque for command in FrameDecoder().feed(wire.ask(question(50)[20:]))] == [50]


@pytest.mark.parametrize(
    "fields", [{"topic": "T", "opaque": "7"}, {"topic": "opaque"}, {"topic": 'x","opaque":5,"y":"'}]
)
def test_header_that_names_opaque_twice_is_not_learned(fields: dict[str, str]) -> None:
    recall = Recall(lambda: 0, 10)
    (request,) = FrameDecoder().feed(encode_frame(Command(105, 3, ext_fields=fields)))
    recall.learn(request, PreparedAnswer(request.reply()))
    assert len(recall) == 0


def test_memory_is_bounded() -> None:
    recall = Recall(lambda: 0, 5)
    for number in range(100):
        (request,) = FrameDecoder().feed(question(1, f"topic-{number}"))
        recall.learn(request, PreparedAnswer(request.reply()))
        assert len(recall) <= 5


@given(st.binary(max_size=200))
def test_any_bytes_are_answered_or_not_and_never_raise(header: bytes) -> None:
    recall = Recall(lambda: 0, 5)
    (request,) = FrameDecoder().feed(question(1))
    recall.learn(request, PreparedAnswer(request.reply()))
    assert recall.answers(header) is None
    assert recall.answers(len(header).to_bytes(4, "big") + header) is None
    mutated = question(1)[8:][:60] + header
    framed = (len(mutated) + 4).to_bytes(4, "big") + len(mutated).to_bytes(4, "big") + mutated
    answer = recall.answers(framed)
    assert answer is None or FrameDecoder().feed(answer)[0].opaque == FrameDecoder().feed(framed)[0].opaque
    assert recall.answers(question(7) + header) is None or not header


@given(st.integers(0, 400), st.integers(0, 255))
def test_question_with_one_other_byte_is_another_question_or_has_another_opaque(at: int, byte: int) -> None:
    recall = Recall(lambda: 0, 5)
    (request,) = FrameDecoder().feed(question(123456))
    recall.learn(request, PreparedAnswer(request.reply()))
    changed = bytearray(question(123456))
    changed[at % len(changed)] = byte
    answer = recall.answers(bytes(changed))
    if answer is not None:
        assert b"%d" % FrameDecoder().feed(answer)[0].opaque in bytes(changed)
        assert bytes(changed).translate(None, b"0123456789") == question(123456).translate(None, b"0123456789")
