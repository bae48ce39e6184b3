"""Batches that lie in shared memory are stored as those that were sent."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec
import pytest

from fusee.message.batch import BatchElement, join_batch
from fusee.message.record import iterate_records
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.handover import OpenHandover, OpenHandoverResponse, SendHandedBatch
from fusee.wire.headers.send import SendMessageResponse, SendMessageV2
from tests.broker.world import HOST, BrokerWorld, Peer, play

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason=f"{sys.platform} has no nameless files")

ELEMENTS = [BatchElement(0, b"body %d" % number, b"KEYS\x01k%d\x02" % number) for number in range(5)]
SEND = SendMessageV2(
    producer_group="P",
    topic="orders",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=1,
    sys_flag=0,
    born_timestamp_ms=7,
    flag=0,
    batch=True,
)


async def opened(client: Peer, size: int = 65_536) -> OpenHandoverResponse:
    answer = await client.ask(RequestCode.OPEN_HANDOVER, OpenHandover(size=size))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.read(OpenHandoverResponse)


def handed(at: int, size: int, **changes: object) -> SendHandedBatch:
    return SendHandedBatch(**{**msgspec.structs.asdict(SEND), **changes}, handed_at=at, handed_size=size)


def write(handover: OpenHandoverResponse, data: bytes, at: int = 64) -> None:
    descriptor = os.open(handover.path, os.O_RDWR)
    try:
        os.pwrite(descriptor, data, at)
    finally:
        os.close(descriptor)


def stored(world: BrokerWorld) -> list[tuple[bytes, bytes, int, int]]:
    log = world.broker.store.log
    view = log.chunk(0, log.written_offset)
    return [(each.body, each.properties_bytes, each.queue_id, each.queue_offset) for each in iterate_records(view)]


def test_handed_batch_is_stored_as_a_sent_one_and_answered_with_its_first_place() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer(HOST)
        body = join_batch(ELEMENTS)
        await client.ask(RequestCode.SEND_BATCH_MESSAGE, SEND, body=body)
        sent = stored(world)
        handover = await opened(client)
        write(handover, body)
        answer = await client.ask(RequestCode.SEND_HANDED_BATCH, handed(64, len(body), batch=None))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        header = answer.read(SendMessageResponse)
        assert (header.queue_id, header.queue_offset) == (1, 5)
        assert "," not in header.msg_id
        again = stored(world)[len(sent) :]
        assert [each[:3] for each in again] == [each[:3] for each in sent]
        assert [each[3] for each in again] == [5, 6, 7, 8, 9]

    play(scene)


def test_what_no_sent_batch_could_be_is_refused_and_nothing_is_stored() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer(HOST)
        body = join_batch(ELEMENTS)
        handover = await opened(client)
        write(handover, body)
        illegal = await client.ask(RequestCode.SEND_HANDED_BATCH, handed(64, len(body) - 1))
        assert illegal.code == ResponseCode.MESSAGE_ILLEGAL
        outside = await client.ask(RequestCode.SEND_HANDED_BATCH, handed(handover.size - 4, 5))
        assert outside.code == ResponseCode.INVALID_PARAMETER
        assert "not in a handover" in (outside.remark or "")
        other = await world.peer(HOST).ask(RequestCode.SEND_HANDED_BATCH, handed(64, len(body)))
        assert other.code == ResponseCode.INVALID_PARAMETER
        assert "open one first" in (other.remark or "")
        closed = await client.ask(RequestCode.SEND_HANDED_BATCH, handed(64, len(body), topic="no*topic"))
        assert closed.code != ResponseCode.SUCCESS
        assert stored(world) == []

    play(scene)


def test_batches_that_come_together_are_stored_one_in_a_turn_and_each_is_answered() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer(HOST)
        handover = await opened(client)
        body = join_batch(ELEMENTS)
        write(handover, body)
        wrong = handed(64, len(body) - 1)
        right = handed(64, len(body))
        asked = [client.ask(RequestCode.SEND_HANDED_BATCH, header) for header in (right, wrong, right)]
        answers = await asyncio.gather(*asked)
        codes = [answer.code for answer in answers]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SUCCESS]
        assert [offset for *_, offset in stored(world)] == list(range(10))

    play(scene)


def test_who_gets_none_is_told_to_send() -> None:
    async def scene(world: BrokerWorld) -> None:
        far = await world.peer("10.9.9.9").ask(RequestCode.OPEN_HANDOVER, OpenHandover(size=65_536))
        assert far.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        near = world.peer(HOST)
        await opened(near)
        second = await near.ask(RequestCode.OPEN_HANDOVER, OpenHandover(size=65_536))
        assert second.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "send the bytes instead" in (second.remark or "")

    play(scene)

    async def switched_off(world: BrokerWorld) -> None:
        answer = await world.peer(HOST).ask(RequestCode.OPEN_HANDOVER, OpenHandover(size=65_536))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    play(switched_off, handover_enable=False)
