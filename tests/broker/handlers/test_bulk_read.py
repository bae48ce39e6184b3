"""Bulk reads: who may, what is given, and what a connection may ask for at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from fusee.broker.local_mark import LocalMark
from fusee.message.record import decode_record, iterate_records
from fusee.wire.bodies.bulk_read import RANGES_MAX, BulkAnswer, decode_answer, encode_ranges
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.bulk_read import BulkReadRequest, BulkReadResponse
from tests.broker.world import BrokerWorld, Peer, play, pull_header


async def bulk(
    client: Peer, *ranges: tuple[int, int, int], topic: str = "orders", max_bytes: int = 1 << 20, **more: Any
) -> Command:
    header = BulkReadRequest(consumer_group="G", topic=topic, max_bytes=max_bytes, **more)
    return await client.ask(RequestCode.BULK_READ, header, body=encode_ranges(ranges))


def answer_in(command: Command) -> BulkAnswer:
    assert command.code == ResponseCode.SUCCESS, command.remark
    header = command.read(BulkReadResponse)
    answer = decode_answer(memoryview(command.body), header.range_count, header.record_count)
    assert header.record_count == len(answer.sizes) // 4
    return answer


def bodies(command: Command) -> list[bytes]:
    return [message.body for message in iterate_records(bytes(answer_in(command).records))]


def test_all_queues_come_in_the_order_of_the_log() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for number in range(8):
            await client.send(b"%d" % number, topic="orders", queue_id=number % 3)
        command = await bulk(client, (0, 0, 9), (1, 1, 9), (2, 0, 1))
        assert bodies(command) == [b"0", b"2", b"3", b"4", b"6", b"7"]
        assert [tuple(read) for read in answer_in(command).reads] == [(0, 3, 0, 3), (1, 3, 0, 3), (2, 1, 0, 2)]

    play(scene)


def test_an_answer_has_as_many_bytes_as_were_asked_for() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for number in range(10):
            await client.send(b"%d" % number * 100, topic="orders", queue_id=0)
        command = await bulk(client, (0, 0, 10), max_bytes=700)
        assert len(bodies(command)) == 2
        assert answer_in(command).reads[0].next_offset == 2
        assert len(bodies(await bulk(client, (0, 0, 10), max_bytes=0))) == 1

    play(scene)


def test_the_limit_of_the_broker_holds() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for number in range(10):
            await client.send(b"%d" % number * 100, topic="orders", queue_id=0)
        assert len(bodies(await bulk(client, (0, 0, 10)))) == 2

    play(scene, bulk_read_bytes_max=700)


def places_in(command: Command) -> tuple[BulkReadResponse, list[int], list[int]]:
    """The header, sizes and places of an answer with places."""
    header = command.read(BulkReadResponse)
    answer = decode_answer(memoryview(command.body), header.range_count, header.record_count)
    sizes, places = np.frombuffer(answer.sizes, ">i4"), np.frombuffer(answer.records, ">i8")
    return header, sizes.tolist(), places.tolist()


def test_a_reader_on_this_machine_is_told_where_records_lie(tmp_path: Path) -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for number in range(9):
            await client.send(b"%d" % number, topic="orders", queue_id=number % 3)
        world.broker.bulk_reads.local_mark = LocalMark(tmp_path / "local_reads")
        sent, told = await bulk(client, (0, 1, 3), (2, 0, 9)), await bulk(client, (0, 1, 3), (2, 0, 9), local=True)
        header, sizes, places = places_in(told)
        assert header.mark_file == str(tmp_path / "local_reads")
        assert header.mark == (tmp_path / "local_reads").read_text()
        assert (tmp_path / "local_reads").stat().st_mode & 0o777 == 0o600
        assert header.log_file is not None
        assert header.log_file.endswith("/commitlog/00000000000000000000")
        assert header.log_file_offset == 0
        assert answer_in(told).reads == answer_in(sent).reads
        log = world.broker.store.log
        found = [decode_record(log.slice(place, size) or b"") for place, size in zip(places, sizes, strict=True)]
        assert [message.body for message in found] == bodies(sent) == [b"2", b"3", b"5", b"6", b"8"]

    play(scene)


def test_records_far_apart_are_sent_and_not_told(tmp_path: Path) -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        world.broker.bulk_reads.local_mark = LocalMark(tmp_path / "local_reads")
        for number in range(6):
            await client.send(b"%d" % number, topic="orders", queue_id=0)
            await client.send(b"between" * 100, topic="others", queue_id=0)
        command = await bulk(client, (0, 0, 9), local=True)
        assert command.read(BulkReadResponse).log_file is None
        assert len(bodies(command)) == 6
        nothing = await bulk(client, (1, 0, 9), local=True)
        assert bodies(nothing) == []

    play(scene)


def test_nobody_is_told_where_that_is_off_or_the_mark_cannot_be_written(tmp_path: Path) -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        await client.send(b"x", topic="orders", queue_id=0)
        world.broker.bulk_reads.local_mark = LocalMark(tmp_path / "absent" / "local_reads")
        assert bodies(await bulk(client, (0, 0, 1), local=True)) == [b"x"]

    async def switched_off(world: BrokerWorld) -> None:
        client = world.peer()
        await client.send(b"x", topic="orders", queue_id=0)
        world.broker.bulk_reads.local_mark = LocalMark(tmp_path / "local_reads")
        assert bodies(await bulk(client, (0, 0, 1), local=True)) == [b"x"]

    play(scene)
    play(switched_off, bulk_read_local_enable=False)


def test_tags_are_filtered() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for number in range(6):
            await client.send(b"%d" % number, topic="orders", queue_id=0, properties={"TAGS": "ab"[number % 2]})
        command = await bulk(client, (0, 0, 9), subscription="b || c")
        assert bodies(command) == [b"1", b"3", b"5"]
        assert answer_in(command).reads[0].next_offset == 6
        command = await bulk(client, (0, 0, 9), subscription="nothing")
        assert (bodies(command), answer_in(command).reads[0].next_offset) == ([], 6)

    play(scene)


def test_who_may_not_pull_may_not_read() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        await client.send(b"x", topic="orders", queue_id=0)
        answers = {
            "no topic": await bulk(client, (0, 0, 9), topic="nowhere"),
            "no queue": await bulk(client, (99, 0, 9)),
            "a queue twice": await bulk(client, (0, 0, 1), (0, 1, 2)),
            "no range": await bulk(client),
            "too many": await bulk(client, *[(0, 0, 1)] * (RANGES_MAX + 1)),
        }
        assert {name: answer.code for name, answer in answers.items()} == {
            "no topic": ResponseCode.TOPIC_NOT_EXIST,
            "no queue": ResponseCode.INVALID_PARAMETER,
            "a queue twice": ResponseCode.INVALID_PARAMETER,
            "no range": ResponseCode.INVALID_PARAMETER,
            "too many": ResponseCode.INVALID_PARAMETER,
        }

    play(scene)


def test_a_broker_or_group_that_is_not_to_be_read() -> None:
    async def forbidden(world: BrokerWorld) -> None:
        assert (await bulk(world.peer(), (0, 0, 9))).code == ResponseCode.NO_PERMISSION

    async def unknown(world: BrokerWorld) -> None:
        client = world.peer()
        await client.send(b"x", topic="orders", queue_id=0)
        assert (await bulk(client, (0, 0, 9))).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    async def switched_off(world: BrokerWorld) -> None:
        assert (await bulk(world.peer(), (0, 0, 9))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    async def unheard_of(world: BrokerWorld) -> None:
        client = world.peer()
        await client.send(b"x", topic="orders", queue_id=0)
        assert (await bulk(client, (0, 0, 9))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST

    play(forbidden, broker_permission=2)
    play(unknown, auto_create_subscription_group=False)
    play(switched_off, bulk_read_enable=False)
    play(unheard_of, reject_pull_consumer_enable=True)


def test_many_requests_of_one_connection_wait_or_are_refused() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        await client.send(b"x" * 1000, topic="orders", queue_id=0)
        answers = await asyncio.gather(*[bulk(client, (0, 0, 1)) for _ in range(30)])
        codes = [answer.code for answer in answers]
        assert codes.count(ResponseCode.SUCCESS) >= 8
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert (await bulk(client, (0, 0, 1))).code == ResponseCode.SUCCESS

    play(scene)


def test_bulk_reads_and_pulls_are_counted_alike() -> None:
    async def scene(world: BrokerWorld) -> None:
        client = world.peer()
        for number in range(5):
            await client.send(b"%d" % number, topic="orders", queue_id=0)
        before = world.broker.statistics.transferred
        await bulk(client, (0, 0, 9))
        assert world.broker.statistics.transferred - before == 5
        await client.ask(RequestCode.PULL_MESSAGE, pull_header("orders", 0, 0, group="G"))
        assert world.broker.statistics.transferred - before == 10

    play(scene)
