"""The way to one broker: nobody who took it is forgotten, whatever ends it."""

from __future__ import annotations

import asyncio

import pytest

from fusee.client.producer import Producer
from fusee.client.results import Durability
from fusee.errors import MessageError, TooManyRequestsError
from tests.client.scripted import ScriptedCluster, play

_IN_FLIGHT_MAX = 65_535


@pytest.mark.parametrize("auto_batch", [False, True])
def test_send_of_a_tag_that_is_no_text_is_refused_and_leaves_its_place(auto_batch: bool) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders")
        producer = await cluster.producer(auto_batch=auto_batch)
        for _ in range(2):
            with pytest.raises(MessageError, match="surrogate"):
                producer.send("orders", b"x", tag="\ud800")
            assert producer.in_flight == 0
            await cluster.within(5.0, producer.send("orders", b"x", tag="paid"))

    play(scene)


def test_send_that_waited_for_a_way_which_is_full_fails_and_leaves_its_place() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        await cluster.within(5.0, producer.send("orders", b"first"))
        link = producer.session.transport.open_link(cluster.broker.address)
        assert link is not None
        others = [link.begin(1, 100.0, lambda response: None) for _ in range(_IN_FLIGHT_MAX)]
        producer._dispatch.outlet("broker-a").is_ready = False
        with pytest.raises(TooManyRequestsError, match="65535 requests are in flight"):
            await cluster.within(5.0, producer.send("orders", b"waits"))
        assert producer.in_flight == 0
        for other in others:
            link.give_up(other)
        await cluster.within(5.0, producer.send("orders", b"last"))

    play(scene)


def test_promise_is_known_to_every_producer_that_waits_for_it() -> None:
    """Two that open the way at the same moment ask the broker once, and both know what it promises."""

    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        one = await cluster.producer()
        two = Producer(one.session, group="two")
        await two.start()
        sends = [one.send("orders", b"1"), two.send("orders", b"2")]
        results = [await cluster.within(5.0, sent) for sent in sends]
        assert [result.durability for result in results] == [Durability.DISK, Durability.DISK]
        assert cluster.broker.is_asked == 1
        await cluster.do(two.close())

    play(scene, settings="flushDiskType=SYNC_FLUSH\nbrokerRole=ASYNC_MASTER\n")


def test_promise_is_asked_for_again_when_the_broker_was_started_anew() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        assert (await cluster.within(5.0, producer.send("orders", b"1"))).durability is Durability.DISK
        await cluster.stop_broker("broker-a")
        cluster.broker.settings = "flushDiskType=ASYNC_FLUSH\nbrokerRole=ASYNC_MASTER\n"
        await cluster.start_broker(cluster.broker)
        await cluster.advance(10.0)
        assert (await cluster.within(5.0, producer.send("orders", b"2"))).durability is Durability.MEMORY

    play(scene, settings="flushDiskType=SYNC_FLUSH\nbrokerRole=ASYNC_MASTER\n")


def test_close_when_called_again_waits_until_the_first_one_is_over() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer()
        await cluster.within(5.0, producer.send("orders", b"first"))
        cluster.broker.answers.append(None)
        sent = producer.send("orders", b"under way")
        first, second = asyncio.ensure_future(producer.close()), asyncio.ensure_future(producer.close())
        await cluster.settle()
        first.cancel()
        await cluster.settle()
        assert not second.done()
        cluster.broker.release(1)
        await cluster.within(5.0, second)
        assert sent.result().queue_offset == 1
        assert not producer.session.has_producer(producer.group)

    play(scene)
