"""Automatic batches: what travels together, when it leaves, and that everyone gets a result of his own."""

from __future__ import annotations

import asyncio
from typing import Any
from zlib import decompress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.client.hooks import SendContext
from fusee.client.producer import Producer
from fusee.client.selection import place_of_key
from fusee.errors import InvalidRequestError, MessageError, RequestTimeoutError
from fusee.message.model import Message, MessageQueue
from fusee.wire.codes import ResponseCode
from tests.client.scripted import ScriptedCluster, play
from tests.client.world import ClusterWorld
from tests.client.world import play as play_real


def batches(cluster: ScriptedCluster) -> list[list[bytes]]:
    return [[element.body for element in sent.elements] for sent in cluster.sends if sent.header.batch]


async def warm(cluster: ScriptedCluster, **options: Any) -> Producer:
    """A producer that batches and has its connection."""
    producer = await cluster.producer(auto_batch=True, **options)
    await cluster.within(1.0, producer.send("orders", b"warm", delay_level=1))
    for broker in cluster.brokers.values():
        broker.sends.clear()
    return producer


def test_messages_of_one_turn_travel_together_and_each_gets_its_result() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)
        sends = [producer.send("orders", b"%d" % number, key=f"k{number}") for number in range(5)]
        results = await cluster.within(0.0, asyncio.gather(*sends))
        assert batches(cluster) == [[b"0", b"1", b"2", b"3", b"4"]]
        (sent,) = cluster.sends
        assert [result.message_id for result in results] == [
            element.properties["UNIQ_KEY"] for element in sent.elements
        ]
        assert [result.offset_id for result in results] == [f"{place:032X}" for place in range(5)]
        assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
        assert sent.properties["KEYS"] == "k0 k1 k2 k3 k4"
        assert sent.properties["UNIQ_KEY"] not in [result.message_id for result in results]
        assert producer.in_flight == 0

    play(scene)


def test_message_that_nobody_joins_does_not_wait() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_linger_ms=1_000)
        for number in range(3):
            await cluster.within(0.0, producer.send("orders", b"%d" % number))
        assert batches(cluster) == [[b"0"], [b"1"], [b"2"]]

    play(scene)


def test_messages_gather_while_a_batch_is_under_way_and_leave_with_its_answer() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_linger_ms=1_000)
        cluster.broker.answers.append(None)
        first = producer.send("orders", b"0")
        await cluster.settle()
        others = [producer.send("orders", b"1")]
        await cluster.advance(0.4)
        others.append(producer.send("orders", b"2"))
        await cluster.settle()
        assert batches(cluster) == [[b"0"]]
        cluster.broker.release(0)
        await cluster.within(0.0, asyncio.gather(first, *others))
        assert batches(cluster) == [[b"0"], [b"1", b"2"]]

    play(scene)


def test_linger_bounds_the_wait_for_a_slow_answer() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_linger_ms=20)
        cluster.broker.answers.append(None)
        first = producer.send("orders", b"0")
        await cluster.settle()
        second = producer.send("orders", b"1")
        await cluster.advance(0.019)
        assert batches(cluster) == [[b"0"]]
        await cluster.advance(0.001)
        assert batches(cluster) == [[b"0"], [b"1"]]
        cluster.broker.release(0)
        await cluster.within(0.0, asyncio.gather(first, second))

    play(scene)


def test_full_batch_leaves_at_once() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_max_bytes=1_000)
        sends = [producer.send("orders", bytes([number]) * 300) for number in range(7)]
        await cluster.within(0.0, asyncio.gather(*sends))
        assert [len(batch) for batch in batches(cluster)] == [2, 2, 2, 1]
        assert all(len(sent.body) <= 1_000 for sent in cluster.sends)

    play(scene)


def test_batches_grow_with_what_is_under_way_and_shrink_again() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_linger_ms=1_000)
        cluster.broker.answers.extend([None] * 100)
        sends = [producer.send("orders", b"x" * 1_000) for _ in range(1_200)]
        await cluster.settle()
        sizes = [len(sent.body) for sent in cluster.sends]
        assert all(size <= 32 * 1024 for size in sizes[:5])
        assert all(size <= max(32 * 1024, sum(sizes[:place]) // 4) for place, size in enumerate(sizes))
        assert 127 * 1024 < max(sizes) <= 128 * 1024
        for place in range(len(sizes)):
            cluster.broker.release(place)
        cluster.broker.answers.clear()
        await cluster.within(1.0, asyncio.gather(*sends))
        before = len(cluster.sends)
        await cluster.within(1.0, asyncio.gather(*(producer.send("orders", b"x" * 1_000) for _ in range(40))))
        assert [len(sent.elements) for sent in cluster.sends[before:]] == [30, 10]

    play(scene)


def test_batch_is_never_larger_than_a_message_may_be() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, max_message_size=2_000)
        await cluster.within(1.0, asyncio.gather(*(producer.send("orders", b"x" * 400) for _ in range(20))))
        assert max(len(sent.body) for sent in cluster.sends) <= 2_000

    play(scene)


def test_everything_gathered_leaves_when_it_is_too_much_together() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_max_bytes=1_000, total_batch_max_bytes=1_200, batch_linger_ms=30_000)
        cluster.broker.answers.extend([None] * 3)
        started = [producer.send("orders", b"x", tag=tag) for tag in "abc"]
        await cluster.settle()
        waiting = [producer.send("orders", b"x" * 400, tag=tag) for tag in "abc"]
        await cluster.settle()
        assert len(cluster.sends) == 6
        for place in range(3):
            cluster.broker.release(place)
        await cluster.within(0.0, asyncio.gather(*started, *waiting))

    play(scene)


def test_what_has_left_no_longer_counts_as_gathered() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_max_bytes=1_000, total_batch_max_bytes=1_000)
        for _ in range(10):
            await cluster.within(0.0, asyncio.gather(*(producer.send("orders", b"x" * 100) for _ in range(3))))
        assert [len(batch) for batch in batches(cluster)] == [3] * 10

    play(scene)


def test_what_differs_in_tag_waiting_or_queue_travels_apart() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await warm(cluster)
        queue = MessageQueue("orders", "broker-a", 2)
        sends = [
            producer.send("orders", b"0"),
            producer.send("orders", b"1", tag="t"),
            producer.send("orders", b"2", wait_stored=False),
            producer.send("orders", b"3", queue=queue),
            producer.send("orders", b"4", order_by="k"),
            producer.send("orders", b"5", order_by="k"),
            producer.send("orders", b"6", tag="t", properties={"a": "b"}),
        ]
        results = await cluster.within(0.0, asyncio.gather(*sends))
        assert sorted(batches(cluster)) == [[b"0"], [b"1", b"6"], [b"2"], [b"3"], [b"4", b"5"]]
        assert results[3].queue == queue
        assert results[4].queue.queue_id == results[5].queue.queue_id == place_of_key("k", 4)
        by_body = {sent.elements[0].body: sent for sent in cluster.sends}
        assert by_body[b"1"].properties["TAGS"] == "t"
        assert by_body[b"2"].properties["WAIT"] == "false"

    play(scene)


@pytest.mark.parametrize(
    "options",
    [
        {"delay_level": 2},
        {"deliver_in": 1},
        {"body": b"x" * 5_000},
        {"body": b"x" * 5_000, "properties": {"a": "b"}},
        {"key": "k", "delay_level": 1},
    ],
)
def test_message_that_no_batch_can_carry_travels_alone(options: dict[str, Any]) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)
        arguments = {"body": b"x", **options}
        await cluster.within(1.0, producer.send("orders", **arguments))
        assert batches(cluster) == []
        assert len(cluster.sends) == 1

    play(scene)


def test_half_message_and_retried_message_travel_alone() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        cluster.route("%RETRY%g", 1)
        producer = await warm(cluster)
        await cluster.within(1.0, producer.send(Message("orders", b"x", {"TRAN_MSG": "true"})))
        await cluster.within(1.0, producer.send(Message("%RETRY%g", b"x")))
        await cluster.within(1.0, producer.send(Message("orders", b"x", {"PGROUP": "g"})))
        assert batches(cluster) == []
        assert len(cluster.sends) == 3

    play(scene)


def test_messages_before_the_route_is_known_are_gathered_too() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await cluster.producer(auto_batch=True)
        sends = [producer.send("orders", b"0"), producer.send("orders", b"1")]
        ordered = producer.send("orders", b"2", order_by="k")
        await cluster.within(1.0, asyncio.gather(*sends, ordered))
        assert batches(cluster) == [[b"0", b"1"]]
        assert ordered.result().queue.queue_id == place_of_key("k", 4)

    play(scene)


def test_messages_of_one_key_keep_their_order_whatever_their_tags() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await warm(cluster, batch_max_bytes=1_000)
        cluster.broker.answers.append(ResponseCode.SYSTEM_BUSY)  # the first batch is late
        sends = [
            producer.send("orders", b"%02d" % number + b"x" * size, order_by="k", tag=tag)
            for number, (tag, size) in enumerate(
                zip("aabbbbcaaaaaaa", [9] * 4 + [900] * 3 + [5_000] + [9] * 6, strict=True)
            )
        ]
        results = await cluster.within(5.0, asyncio.gather(*sends))
        taken = [
            body[:2]
            for sent in cluster.sends[1:]
            for body in ([element.body for element in sent.elements] if sent.header.batch else [decompress(sent.body)])
        ]
        assert taken == [b"%02d" % number for number in range(14)]
        assert {result.queue.queue_id for result in results} == {place_of_key("k", 4)}
        tags = [
            {element.properties["TAGS"] for element in sent.elements} for sent in cluster.sends if sent.header.batch
        ]
        assert all(len(each) == 1 for each in tags)

    play(scene)


@pytest.mark.parametrize("options", [{}, {"properties": {"a": "b"}}])
def test_messages_of_one_key_before_the_route_is_known_stay_before_those_after(options: dict[str, Any]) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await cluster.producer(auto_batch=True)
        sends = [producer.send("orders", b"%d" % number, order_by="k") for number in range(3)]
        cluster.broker.answers.append(None)
        await cluster.settle()
        sends += [producer.send("orders", b"%d" % number, order_by="k", **options) for number in range(3, 6)]
        await cluster.settle()
        cluster.broker.release(0)
        await cluster.within(1.0, asyncio.gather(*sends))
        late = producer.send("orders", b"6", order_by="k")
        await cluster.within(1.0, late)
        assert [sent.body for sent in cluster.sends[:6]] == [b"%d" % number for number in range(6)]
        assert batches(cluster) == [[b"6"]]

    play(scene)


@pytest.mark.parametrize("fixed", [{"order_by": "k"}, {"queue": MessageQueue("orders", "broker-a", 0)}])
def test_what_travels_alone_keeps_its_place_among_the_batches_of_its_queue(fixed: dict[str, Any]) -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)
        cluster.broker.answers.append(None)
        large = b"large" * 2_000
        together = [Message("orders", b"2"), Message("orders", b"3")]
        sends = [
            producer.send("orders", b"0", **fixed),
            producer.send("orders", large, **fixed),
            producer.send_batch(together, **fixed),
            producer.send("orders", b"4", properties={"a": "b"}, **fixed),
            producer.send("orders", large, properties={"a": "b"}, **fixed),
            producer.send("orders", b"6", **fixed),
        ]
        await cluster.settle()
        assert batches(cluster) == [[b"0"]]
        cluster.broker.release(0)
        await cluster.within(1.0, asyncio.gather(*sends))
        assert batches(cluster) == [[b"0"], [b"2", b"3"], [b"4"], [b"6"]]
        alone = [place for place, sent in enumerate(cluster.sends) if not sent.header.batch]
        assert alone == [1, 4]
        assert all(len(cluster.sends[place].body) < len(large) for place in alone)

    play(scene)


def test_selector_is_asked_once_for_a_message_that_travels_alone() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 4)
        producer = await warm(cluster)
        asked: list[MessageQueue] = []

        def in_turn(queues: Any, message: Message, argument: object) -> MessageQueue:
            asked.append(queues[len(asked) % len(queues)])
            return asked[-1]

        results = [
            await cluster.within(1.0, producer.send("orders", b"large" * 2_000, selector=in_turn)) for _ in range(3)
        ]
        assert [result.queue for result in results] == asked
        assert len(asked) == 3

    play(scene)


def test_time_out_of_one_message_is_not_that_of_its_neighbours() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, retry_times_when_send_failed=0)
        cluster.broker.answers.extend((None, None))
        patient = producer.send("orders", b"0")
        hasty = producer.send("orders", b"1", timeout_ms=50)
        await cluster.advance(0.1)
        assert isinstance(hasty.exception(), RequestTimeoutError)
        assert not patient.done()
        cluster.broker.release(0)
        await cluster.within(0.0, patient)

    play(scene)


def test_failure_of_the_batch_is_the_failure_of_each() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)
        cluster.broker.answers.append(ResponseCode.MESSAGE_ILLEGAL)
        sends = [producer.send("orders", b"x") for _ in range(3)]
        errors = await cluster.within(1.0, asyncio.gather(*sends, return_exceptions=True))
        refused = [error for error in errors if isinstance(error, InvalidRequestError)]
        assert {(error.code, error.topic) for error in refused} == {(ResponseCode.MESSAGE_ILLEGAL, "orders")}
        assert len(set(map(id, refused))) == 3  # each is raised on its own, with a trace of its own
        await cluster.within(1.0, producer.send("orders", b"y"))
        assert producer.in_flight == 0

    play(scene)


def test_batch_is_tried_again_on_another_broker_with_the_same_ids() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await cluster.producer(auto_batch=True)
        for broker in cluster.brokers.values():
            broker.answers.append(ResponseCode.SYSTEM_BUSY)
        results = await cluster.within(3.0, asyncio.gather(*(producer.send("orders", b"x") for _ in range(3))))
        assert len(cluster.sends) == 3
        assert len({sent.body for sent in cluster.sends}) == 1
        assert len({result.message_id for result in results}) == 3

    play(scene, brokers=2)


def test_message_cancelled_before_its_batch_leaves_is_not_sent() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)
        sends = [producer.send("orders", b"%d" % number) for number in range(3)]
        sends[1].cancel()
        results = await cluster.within(0.0, asyncio.gather(sends[0], sends[2]))
        assert batches(cluster) == [[b"0", b"2"]]
        assert [result.queue_offset for result in results] == [0, 1]
        alone = producer.send("orders", b"3")
        alone.cancel()
        await cluster.settle()
        assert len(cluster.sends) == 1
        await cluster.within(0.0, asyncio.gather(producer.send("orders", b"4"), producer.send("orders", b"5")))
        assert batches(cluster) == [[b"0", b"2"], [b"4", b"5"]]

    play(scene)


def test_message_cancelled_after_its_batch_left_changes_nothing_for_others() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)
        cluster.broker.answers.append(None)
        sends = [producer.send("orders", b"%d" % number) for number in range(3)]
        await cluster.settle()
        sends[1].cancel()
        cluster.broker.release(0)
        results = await cluster.within(0.0, asyncio.gather(sends[0], sends[2]))
        assert [result.queue_offset for result in results] == [0, 2]

    play(scene)


def test_batch_kept_whole_by_the_broker_gives_all_the_same_result() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)

        def whole(sent: Any) -> Any:
            answer = sent.success(4, batch_uniq_id=sent.properties["UNIQ_KEY"])
            answer.ext_fields["msgId"] = "ONE"
            return answer

        cluster.broker.answers.append(whole)
        one, two = await cluster.within(0.0, asyncio.gather(*(producer.send("orders", b"x") for _ in range(2))))
        assert one == two
        assert one.offset_id == "ONE"

    play(scene)


def test_close_sends_what_was_gathered() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster, batch_linger_ms=30_000)
        cluster.broker.answers.append(None)
        first = producer.send("orders", b"0")
        await cluster.settle()
        second = producer.send("orders", b"1")
        closing = asyncio.ensure_future(producer.close())
        await cluster.settle()
        assert second.done()
        cluster.broker.release(0)
        await cluster.within(0.0, closing)
        assert first.done()

    play(scene)


def test_wrong_queue_is_refused_at_once() -> None:
    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        producer = await warm(cluster)
        with pytest.raises(MessageError, match="cannot go to a queue"):
            producer.send("orders", b"x", queue=MessageQueue("others", "broker-a", 0))

    play(scene)


def test_hook_sees_the_batch() -> None:
    class Hook:
        def __init__(self) -> None:
            self.seen: list[SendContext] = []

        def before_send(self, context: SendContext) -> None:
            self.seen.append(context)

        def after_send(self, context: SendContext) -> None: ...

    async def scene(cluster: ScriptedCluster) -> None:
        cluster.route("orders", 1)
        hook = Hook()
        producer = await warm(cluster, hooks=[hook])
        await cluster.within(0.0, asyncio.gather(*(producer.send("orders", b"x") for _ in range(2))))
        context = hook.seen[-1]
        assert context.message.body == cluster.sends[0].body
        assert context.message.unique_id == cluster.sends[0].properties["UNIQ_KEY"]

    play(scene)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 900), st.sampled_from(["a", "b", None]), st.booleans()), max_size=60))
def test_every_message_is_stored_once_where_its_result_says(plan: list[tuple[int, str | None, bool]]) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders", 3)
        await world.settle()
        producer = Producer(await world.session(), auto_batch=True, batch_max_bytes=2_000)
        await producer.start()
        sends = []
        for number, (size, tag, pauses) in enumerate(plan):
            sends.append(producer.send("orders", b"%d:" % number + b"x" * size, tag=tag))
            if pauses:
                await world.settle()
        results = await world.within(5.0, asyncio.gather(*sends))
        await world.do(producer.close())
        await world.advance(1.0)
        stored = {message.unique_id: message for message in world.stored("orders")}
        assert len(stored) == len(plan)
        for number, result in enumerate(results):
            message = stored[result.message_id]
            assert message.body.startswith(b"%d:" % number)
            assert (message.queue_id, message.queue_offset, message.offset_id) == (
                result.queue.queue_id, result.queue_offset, result.offset_id,
            )  # fmt: skip

    play_real(scene)
