"""A consumer that is asked for messages: what it hands out, where it goes on, what it commits, whom it shares with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fusee.client.broker_calls import PullStatus
from fusee.client.config import MessageModel, ServiceState
from fusee.client.consumer.offsets import BrokerOffsets, LocalOffsets
from fusee.client.consumer.pull import PullConsumer
from fusee.client.hooks import ConsumeContext
from fusee.client.received import ReceivedMessage
from fusee.client.session import Session
from fusee.errors import (
    ClientStateError,
    ConfigError,
    FilterError,
    GroupNotFoundError,
    MessageError,
    RemoteFailureError,
    TopicNotFoundError,
    TransportError,
)
from fusee.message.model import MessageQueue
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.group import SubscriptionGroupConfig
from fusee.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode
from tests.broker.world import send_header
from tests.client.world import ClusterWorld, play

GROUP = "readers"


def queue(queue_id: int = 0, *, broker: str = "broker-a", topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


def bodies(messages: Sequence[ReceivedMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


class Scene:
    """A cluster with the topic `orders`, a client that sends, and consumers in clients of their own."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.sender: Session

    async def prepare(self, queues: int) -> None:
        self.world.create_topic("orders", queues)
        await self.world.settle()
        self.sender = await self.world.session()
        await self.world.do(self.sender.read_route("orders"))

    async def send(
        self, *contents: str, queue_id: int = 0, broker: str = "broker-a", topic: str = "orders", tag: str = ""
    ) -> None:
        for content in contents:
            properties = {"UNIQ_KEY": content, **({"TAGS": tag} if tag else {})}
            header = send_header(topic, queue_id, properties=properties)
            request = self.sender.calls.request(
                self.world.address(broker), RequestCode.SEND_MESSAGE_V2, header, body=content.encode()
            )
            await self.world.do(request)

    async def consumer(self, topics: Any = None, *, start: bool = True, name: str = "", **options: Any) -> PullConsumer:
        number = len(self.world.sessions)
        session = await self.world.session(instance_name=name or f"reader-{number}", client_ip=f"10.0.8.{number}")
        consumer = PullConsumer(session, topics, **{"group": GROUP, "consume_from": "first", **options})
        if start:
            await self.world.do(consumer.start())
        return consumer

    async def poll(self, consumer: PullConsumer, timeout_ms: int = 100, **options: Any) -> list[str]:
        return bodies(await self.world.do(consumer.poll(timeout_ms, **options)))

    async def drain(self, consumer: PullConsumer) -> list[str]:
        """Everything there is, sorted."""
        found: list[str] = []
        while polled := await self.poll(consumer):
            found += polled
        return sorted(found)

    def committed(self, queue_id: int = 0, *, broker: str = "broker-a", group: str = GROUP) -> int | None:
        return self.world.brokers[broker].offsets.query_all(group, "orders").get(queue_id)


def perform(scene: Callable[[Scene], Any], *, queues: int = 2, **settings: Any) -> None:
    async def prepared(world: ClusterWorld) -> None:
        stage = Scene(world)
        await stage.prepare(queues)
        await scene(stage)

    play(prepared, **settings)


# Polling


def test_poll_gives_messages_of_all_queues_each_in_order() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a1", "a2", "a3")
        await stage.send("b1", "b2", queue_id=1)
        consumer = await stage.consumer("orders")
        found = await stage.poll(consumer) + await stage.poll(consumer)
        assert sorted(found) == ["a1", "a2", "a3", "b1", "b2"]
        assert [each for each in found if each[0] == "a"] == ["a1", "a2", "a3"]
        assert consumer.assignment == {queue(0), queue(1)}

    perform(scene)


def test_poll_waits_for_the_next_message() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        polling = asyncio.ensure_future(consumer.poll(60_000))
        await stage.world.advance(33.0)
        assert not polling.done()
        await stage.send("late")
        messages = await stage.world.within(0.1, polling)
        assert bodies(messages) == ["late"]

    perform(scene)


def test_poll_when_nothing_comes_returns_after_its_time() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders", poll_timeout_ms=700)
        began = stage.world.clock.monotonic()
        assert await stage.world.do(consumer.poll()) == []
        assert stage.world.clock.monotonic() - began == pytest.approx(0.7)
        assert await consumer.poll(0) == []

    perform(scene)


def test_poll_gives_no_more_than_asked_for() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abcde")
        consumer = await stage.consumer("orders", max_poll_messages=3)
        await stage.world.settle()
        assert await stage.poll(consumer, max_messages=2) == ["a", "b"]
        assert await stage.poll(consumer) == ["c", "d", "e"]

    perform(scene, queues=1)


def test_poll_when_cancelled_as_the_message_comes_loses_nothing() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        polling = asyncio.ensure_future(consumer.poll(60_000))
        await stage.world.settle()
        sending = asyncio.ensure_future(stage.send("a"))
        while (
            not consumer.running_info()
            .queues[QueueRef(topic="orders", broker_name="broker-a", queue_id=0)]
            .cached_msg_count
        ):
            await asyncio.sleep(0)
            stage.world.clock.advance(0.0)
        polling.cancel()
        await sending
        assert polling.cancelled()
        assert await stage.poll(consumer) == ["a"]

    perform(scene)


def test_poll_when_cancelled_while_it_waits_loses_nothing() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        polling = asyncio.ensure_future(consumer.poll(60_000))
        await stage.world.settle()
        polling.cancel()
        await stage.send("a")
        assert polling.cancelled()
        assert await stage.poll(consumer) == ["a"]

    perform(scene)


def test_poll_by_two_tasks_is_refused() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        polling = asyncio.ensure_future(consumer.poll(1_000))
        await stage.world.settle()
        with pytest.raises(ClientStateError, match="another task polls"):
            await consumer.poll()
        assert await stage.world.within(2.0, polling) == []

    perform(scene)


def test_poll_when_closed_meanwhile_says_so() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        polling = asyncio.ensure_future(consumer.poll(60_000))
        await stage.world.settle()
        await stage.world.do(consumer.close())
        with pytest.raises(ClientStateError, match="closed"):
            await polling

    perform(scene)


def test_fetching_ahead_stops_at_its_limits_and_goes_on_after_a_poll() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*(f"{number:03}" for number in range(60)))
        consumer = await stage.consumer("orders", pull_batch_size=8, pull_threshold_for_queue=20)
        await stage.world.settle()
        info = consumer.running_info()
        assert [each.cached_msg_count for each in info.queues.values()] == [24]
        assert await stage.drain(consumer) == [f"{number:03}" for number in range(60)]

    perform(scene, queues=1)


def test_hooks_see_what_is_handed_out() -> None:
    seen: list[tuple[str, bool, str, list[str]]] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            assert not context.success

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append((context.group, context.success, context.status, bodies(context.messages)))

    async def scene(stage: Scene) -> None:
        await stage.send("a", "b")
        consumer = await stage.consumer("orders", hooks=(Hook(),))
        await stage.poll(consumer)
        await stage.world.do(consumer.pull(queue(), 1))
        assert seen == [(GROUP, True, "CONSUME_SUCCESS", ["a", "b"]), (GROUP, True, "CONSUME_SUCCESS", ["b"])]

    perform(scene, queues=1)


# Choosing messages


def test_subscription_by_tag_passes_the_others() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", tag="paid")
        await stage.send("b", "c", tag="open")
        consumer = await stage.consumer("orders", tags=["paid", "refunded"])
        assert await stage.drain(consumer) == ["a"]
        assert await stage.world.do(consumer.position(queue())) == 3
        await stage.world.do(consumer.close())
        assert stage.committed() == 3

    perform(scene, queues=1)


def test_subscription_by_sql() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", tag="paid")
        await stage.send("b", tag="open")
        consumer = await stage.consumer("orders", sql="TAGS = 'open'")
        assert await stage.drain(consumer) == ["b"]
        assert consumer.heartbeat().subscription_data_set[0].expression_type == "SQL92"

    perform(scene, queues=1, enable_property_filter=True)


def test_subscription_by_sql_when_broker_does_not_take_it_is_told_by_poll() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders", sql="TAGS = 'open'")
        assert await stage.poll(consumer) == []
        with pytest.raises(RemoteFailureError, match="SQL92"):
            await stage.world.do(consumer.poll(10_000))

    perform(scene, queues=1)


def test_subscribe_adds_topics_and_unsubscribe_leaves_them() -> None:
    async def scene(stage: Scene) -> None:
        stage.world.create_topic("refunds", 1)
        await stage.world.settle()
        consumer = await stage.consumer()
        with pytest.raises(ClientStateError, match="subscribe or assign first"):
            await consumer.poll()
        await stage.world.do(consumer.subscribe("orders", tags="paid"))
        await stage.world.do(consumer.subscribe("refunds"))
        assert consumer.assignment == {queue(0), queue(topic="refunds")}
        await stage.send("b", topic="refunds")
        assert await stage.drain(consumer) == ["b"]
        await stage.world.do(consumer.unsubscribe("refunds"))
        assert consumer.assignment == {queue(0)}
        assert set(consumer.subscribed_topics()) == {"orders"}
        await stage.send("e", tag="open")
        await stage.send("f", tag="paid")
        await stage.world.settle()
        await stage.world.do(consumer.subscribe("orders", tags="open"))
        await stage.send("c", tag="paid")
        await stage.send("d", tag="open")
        assert await stage.drain(consumer) == ["d", "e"], "what was fetched and not polled is chosen anew"

    perform(scene, queues=1)


def test_heartbeat_is_that_of_java() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer({"orders": "TagA || TagB"}, start=False)
        assert consumer.heartbeat() == ConsumerData(
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            consume_type="CONSUME_ACTIVELY",
            group_name=GROUP,
            message_model="CLUSTERING",
            subscription_data_set=[
                SubscriptionData(
                    code_set=[2598919, 2598920],
                    expression_type="TAG",
                    expression="TagA || TagB",
                    sub_version=stage.world.clock.time_ms(),
                    tags_set=["TagA", "TagB"],
                    topic="orders",
                )
            ],
        )

    perform(scene)


# Assigning


def test_assign_takes_exactly_these_queues() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a")
        await stage.send("b", queue_id=1)
        consumer = await stage.consumer(start=False)
        await consumer.assign([queue(1)])
        await stage.world.do(consumer.start())
        assert await stage.drain(consumer) == ["b"]
        await stage.world.do(consumer.assign([queue(0)], tags="*"))
        assert stage.committed(1) == 1, "what is let go is committed"
        assert await stage.drain(consumer) == ["a"]
        assert consumer.assignment == {queue(0)}
        assert consumer.heartbeat().subscription_data_set == []
        await stage.world.do(consumer.assign([]))
        assert not consumer.assignment

    perform(scene)


def test_assign_keeps_the_position_of_queues_held_before() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abc")
        consumer = await stage.consumer()
        await stage.world.do(consumer.assign([queue(0)]))
        assert await stage.poll(consumer, max_messages=1) == ["a"]
        await stage.world.do(consumer.assign([queue(0), queue(1)]))
        assert await stage.drain(consumer) == ["b", "c"]

    perform(scene)


def test_assign_with_tags_chooses() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", tag="paid")
        await stage.send("b", tag="open")
        consumer = await stage.consumer()
        await stage.world.do(consumer.assign([queue(0), queue(1)], tags=iter(["open"])))
        assert await stage.drain(consumer) == ["b"]
        with pytest.raises(ConfigError, match="not both"):
            await consumer.assign([queue(0)], tags="x", sql="y > 1")

    perform(scene)


def test_assign_and_subscribe_exclude_each_other() -> None:
    async def scene(stage: Scene) -> None:
        subscribed = await stage.consumer("orders")
        with pytest.raises(ClientStateError, match="cannot assign"):
            await subscribed.assign([queue(0)])
        assigned = await stage.consumer()
        await stage.world.do(assigned.assign([queue(0)]))
        with pytest.raises(ClientStateError, match="cannot subscribe"):
            await stage.world.do(assigned.subscribe("orders"))

    perform(scene)


def test_watch_queues_is_told_when_a_topic_grows() -> None:
    async def scene(stage: Scene) -> None:
        told: list[tuple[str, int]] = []
        consumer = await stage.consumer()
        found = await stage.world.do(
            consumer.watch_queues("orders", lambda topic, queues: told.append((topic, len(queues))))
        )
        assert found == {queue(0), queue(1)}
        stage.world.broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=5, write_queue_nums=5, perm=6))
        await stage.world.advance(31.0)
        assert told == [("orders", 5)]
        assert len(await stage.world.do(consumer.queues("orders"))) == 5

    perform(scene)


# Pausing


def test_pause_holds_back_what_was_fetched_until_resume() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a")
        await stage.send("b", queue_id=1)
        consumer = await stage.consumer("orders")
        await stage.world.settle()
        consumer.pause(queue(0))
        assert consumer.paused == {queue(0)}
        await stage.send("c")
        assert await stage.drain(consumer) == ["b"]
        polling = asyncio.ensure_future(consumer.poll(60_000))
        await stage.world.settle()
        consumer.resume()
        messages = await stage.world.within(0.1, polling)
        assert bodies(messages) == ["a", "c"]
        assert not consumer.paused

    perform(scene)


def test_pause_of_all_queues_fetches_no_more() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        consumer.pause()
        await stage.send("a", "b")  # the fetch under way brings at least one
        await stage.send("c")
        await stage.world.advance(60.0)
        assert await stage.poll(consumer) == []
        consumer.resume(queue(0), queue(1))
        assert await stage.drain(consumer) == ["a", "b", "c"]
        with pytest.raises(ClientStateError, match="not assigned"):
            consumer.pause(queue(7))

    perform(scene)


# Seeking


def test_seek_goes_on_anywhere() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", "b")
        await stage.world.advance(10.0)
        middle_ms = stage.world.clock.time_ms()
        await stage.send("c", "d")
        consumer = await stage.consumer("orders")
        assert await stage.drain(consumer) == ["a", "b", "c", "d"]
        await stage.world.do(consumer.seek(queue(), 3))
        assert await stage.drain(consumer) == ["d"]
        await stage.world.do(consumer.seek(queue(), datetime.fromtimestamp(middle_ms / 1000, UTC)))
        assert await stage.drain(consumer) == ["c", "d"]
        await stage.world.do(consumer.seek_to_begin(queue()))
        assert await stage.world.do(consumer.position(queue())) == 0
        assert await stage.poll(consumer, max_messages=1) == ["a"]
        await stage.world.do(consumer.seek_to_end(queue()))
        assert await stage.drain(consumer) == []
        await stage.send("e")
        assert await stage.drain(consumer) == ["e"]

    perform(scene, queues=1)


def test_seek_back_is_committed_when_time_comes() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", "b")
        consumer = await stage.consumer("orders")
        await stage.drain(consumer)
        await stage.world.advance(6.0)
        assert stage.committed() == 2
        await stage.world.do(consumer.seek(queue(), 1))
        await stage.world.advance(6.0)
        assert stage.committed() == 1

    perform(scene, queues=1)


def test_seek_right_after_assign_counts_and_is_committed() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abcd")
        before = await stage.consumer("orders")
        await stage.drain(before)
        await stage.world.do(before.close())
        consumer = await stage.consumer()

        async def assign_and_seek() -> None:
            await consumer.assign([queue()])
            await consumer.seek(queue(), 1)

        await stage.world.do(assign_and_seek())
        assert await stage.poll(consumer, max_messages=1) == ["b"]
        await stage.world.do(consumer.close())
        assert stage.committed() == 2, "back, because somebody said so"

    perform(scene, queues=1)


def test_seek_of_what_is_not_there_is_refused() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", "b")
        consumer = await stage.consumer("orders")
        for to in (-1, 3):
            with pytest.raises(ConfigError, match="which has 0 to 2"):
                await stage.world.do(consumer.seek(queue(), to))
        wrong: Any = "middle"
        with pytest.raises(ConfigError, match="'middle'"):
            await stage.world.do(consumer.seek(queue(), wrong))
        with pytest.raises(ClientStateError, match="divided the queues anew"):
            await stage.world.do(consumer.seek(queue(9), 0))
        assert await stage.drain(consumer) == ["a", "b"], "nothing moved"

    perform(scene, queues=1)


def test_offsets_of_a_queue_can_be_asked_for() -> None:
    async def scene(stage: Scene) -> None:
        began_ms = stage.world.clock.time_ms()
        await stage.send("a")
        await stage.world.advance(1.0)
        await stage.send("b")
        consumer = await stage.consumer()
        assert await stage.world.do(consumer.min_offset(queue())) == 0
        assert await stage.world.do(consumer.max_offset(queue())) == 2
        assert await stage.world.do(consumer.offset_for_timestamp(queue(), began_ms + 500)) == 1
        assert await stage.world.do(consumer.earliest_store_time(queue())) == began_ms
        assert await stage.world.do(consumer.committed(queue())) == 0

    perform(scene)


# Committing


def test_poll_commits_the_messages_of_the_poll_before() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abcd")
        consumer = await stage.consumer("orders", auto_commit_interval_ms=1_000)
        await stage.poll(consumer, max_messages=1)
        await stage.poll(consumer, max_messages=2)
        await stage.world.advance(1.0)
        assert stage.committed() == 1
        await stage.poll(consumer, max_messages=1)
        await stage.world.advance(1.0)
        assert stage.committed() == 3

    perform(scene, queues=1)


def test_leaving_commits_and_the_next_goes_on_there() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", "b")
        consumer = await stage.consumer("orders", start=False)
        async with Within(stage, consumer):
            assert await stage.poll(consumer) == ["a", "b"]
        assert stage.committed() == 2
        await stage.send("c")
        assert await stage.drain(await stage.consumer("orders")) == ["c"]

    perform(scene, queues=1)


def test_leaving_by_an_exception_has_the_last_messages_delivered_again() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abc")
        consumer = await stage.consumer("orders", start=False)

        async def work() -> None:
            async with Within(stage, consumer):
                await stage.poll(consumer, max_messages=1)
                await stage.poll(consumer, max_messages=1)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
        assert stage.committed() == 1
        assert await stage.drain(await stage.consumer("orders")) == ["b", "c"]

    perform(scene, queues=1)


class Within:
    """`async with` a consumer while time passes."""

    def __init__(self, stage: Scene, consumer: PullConsumer) -> None:
        self._stage = stage
        self._consumer = consumer

    async def __aenter__(self) -> None:
        await self._stage.world.do(self._consumer.__aenter__())

    async def __aexit__(self, *reason: Any) -> None:
        await self._stage.world.do(self._consumer.__aexit__(*reason))


def test_commit_by_hand_is_the_only_one_without_auto_commit() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abcd")
        consumer = await stage.consumer("orders", auto_commit=False)
        await stage.poll(consumer, max_messages=2)
        await stage.poll(consumer, max_messages=1)
        await stage.world.advance(60.0)
        assert stage.committed() is None
        await stage.world.do(consumer.commit({queue(): 1}))
        assert stage.committed() == 1
        assert await consumer.committed(queue()) == 1
        await stage.world.do(consumer.commit())
        assert stage.committed() == 3
        await stage.world.do(consumer.commit({queue(): 2}))
        assert stage.committed() == 2, "back, when somebody says so"
        await stage.world.do(consumer.commit([queue()], persist=False))
        assert stage.committed() == 2
        await stage.world.advance(5.0)
        assert stage.committed() == 3, "with the offsets of the session"
        await stage.poll(consumer)
        await stage.world.do(consumer.close())
        assert stage.committed() == 3

    perform(scene, queues=1)


def test_commit_of_queue_that_is_not_ours_is_refused() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a")
        consumer = await stage.consumer("orders", auto_commit=False)
        with pytest.raises(ClientStateError, match="queue 9 of 'orders'"):
            await stage.world.do(consumer.commit({queue(9): 5, queue(0): 1}))
        assert stage.committed() == 1
        with pytest.raises(ClientStateError, match="queue 9 of 'orders'"):
            await stage.world.do(consumer.commit([queue(9)]))
        with pytest.raises(ConfigError, match="negative"):
            await consumer.commit({queue(0): -1})

    perform(scene)


def test_commit_when_broker_is_away_raises_why() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a")
        consumer = await stage.consumer("orders", auto_commit=False)
        await stage.drain(consumer)
        stage.world.kill("broker-a")
        with pytest.raises(TransportError):
            await stage.world.do(consumer.commit())

    perform(scene)


def test_start_is_remembered_by_the_group_before_the_first_message() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders", consume_from="last")
        assert stage.committed() is None
        await stage.world.do(consumer.close())
        assert stage.committed() == 0

    perform(scene, queues=1)


# Sharing


def test_members_divide_the_queues_and_lose_nothing() -> None:
    async def scene(stage: Scene) -> None:
        changes: list[tuple[str, int]] = []
        first = await stage.consumer("orders", on_assigned=lambda topic, mine: changes.append((topic, len(mine))))
        for number in range(4):
            await stage.send(f"{number}a", f"{number}b", f"{number}c", queue_id=number)
        await stage.world.settle()
        done = await stage.poll(first, max_messages=2)
        under_way = await stage.poll(first, max_messages=1)
        second = await stage.consumer("orders")
        await stage.world.advance(3.0)
        assert len(first.assignment) == len(second.assignment) == 2
        assert first.assignment | second.assignment == {queue(number) for number in range(4)}
        found = done + under_way + await stage.drain(first) + await stage.drain(second)
        every = {f"{number}{letter}" for number in range(4) for letter in "abc"}
        assert set(found) == every
        assert len(found) <= len(every) + len(under_way), "what was done is not delivered again"
        assert changes == [("orders", 4), ("orders", 2)]
        await stage.world.do(second.close())
        await stage.world.advance(3.0)
        assert len(first.assignment) == 4

    perform(scene, queues=4)


def test_listener_of_assignments_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    async def scene(stage: Scene) -> None:
        await stage.send("a")
        consumer = await stage.consumer("orders", on_assigned=fail)
        assert await stage.drain(consumer) == ["a"]

    perform(scene)
    assert "a listener of queues failed" in caplog.text


def test_broadcast_consumers_get_every_message_and_keep_their_own_offsets(tmp_path: Path) -> None:
    async def scene(stage: Scene) -> None:
        async def offload(work: Callable[..., Any], *arguments: Any) -> Any:
            return work(*arguments)

        disk = SimulatedDisk(stage.world.clock)

        def store(name: str) -> LocalOffsets:
            return LocalOffsets(Path("/local") / name / "offsets.json", files=disk, offload=offload)

        await stage.send("a")
        await stage.send("b", queue_id=1)
        options: dict[str, Any] = {"model": MessageModel.BROADCASTING}
        one = await stage.consumer("orders", offset_store=store("one"), **options)
        two = await stage.consumer("orders", offset_store=store("two"), **options)
        assert one.heartbeat().message_model == "BROADCASTING"
        assert await stage.drain(one) == await stage.drain(two) == ["a", "b"]
        await stage.world.do(one.close())
        await stage.send("c")
        again = await stage.consumer("orders", offset_store=store("one"), **options)
        assert await stage.drain(again) == await stage.drain(two) == ["c"]
        assert stage.committed() is None

    perform(scene)


# Pulling by hand


def test_pull_reads_one_queue_without_moving_anything() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", "b", tag="x")
        await stage.send("c", tag="y")
        consumer = await stage.consumer()
        result = await stage.world.do(consumer.pull(queue(), 1))
        assert (result.status, bodies(result.messages), result.next_offset) == (PullStatus.FOUND, ["b", "c"], 3)
        assert (result.min_offset, result.max_offset) == (0, 3)
        result = await stage.world.do(consumer.pull(queue(), 0, 1))
        assert bodies(result.messages) == ["a"]
        result = await stage.world.do(consumer.pull(queue(), 0, tags=["y"]))
        assert (bodies(result.messages), result.next_offset) == (["c"], 3)
        result = await stage.world.do(consumer.pull(queue(), 0, tags="z"))
        assert (result.status, result.messages) == (PullStatus.NO_MATCHED_MESSAGE, [])
        result = await stage.world.do(consumer.pull(queue(), 3))
        assert result.status is PullStatus.NO_NEW_MESSAGE
        result = await stage.world.do(consumer.pull(queue(), 9))
        assert (result.status, result.next_offset) == (PullStatus.OFFSET_ILLEGAL, 3)
        assert not consumer.assignment
        for offset, count in ((-1, 1), (0, 0)):
            with pytest.raises(ConfigError, match="cannot pull"):
                await consumer.pull(queue(), offset, count)

    perform(scene)


def test_pull_with_wait_is_held_by_the_broker() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer()
        pulling = asyncio.ensure_future(consumer.pull(queue(), 0, wait_ms=40_000))
        await stage.world.advance(30.0)
        assert not pulling.done()
        await stage.send("a")
        assert bodies((await stage.world.within(0.1, pulling)).messages) == ["a"]

    perform(scene)


def test_commit_after_pulls_by_hand_takes_any_queue() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", "b")
        consumer = await stage.consumer()
        await stage.world.do(consumer.commit({queue(): 2}))
        assert stage.committed() == 2
        await stage.world.do(consumer.commit({queue(): 1}))
        assert stage.committed() == 1
        with pytest.raises(ClientStateError, match="not assigned"):
            await stage.world.do(consumer.commit([queue()]))
        assert stage.committed() == 1

    perform(scene)


# Life and trouble


def test_start_when_topic_is_missing_fails_fast() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("missing", start=False)
        with pytest.raises(TopicNotFoundError, match="'missing' does not exist"):
            await stage.world.do(consumer.start())
        assert consumer.state is ServiceState.START_FAILED
        with pytest.raises(ClientStateError, match="failed to start"):
            await consumer.poll()
        with pytest.raises(ClientStateError, match="once"):
            await consumer.start()
        await consumer.close()
        assert not stage.world.sessions[-1].has_consumer(GROUP)

    perform(scene)


def test_start_when_topic_may_be_missing_consumes_it_when_it_comes() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("later", missing_topic="wait")
        assert await stage.poll(consumer) == []
        stage.world.create_topic("later", 1)
        await stage.world.advance(31.0)
        await stage.send("a", topic="later")
        assert await stage.drain(consumer) == ["a"]

    perform(scene)


def test_consumer_before_start_and_after_close_says_so() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders", start=False)
        with pytest.raises(ClientStateError, match="not started"):
            await consumer.poll()
        await consumer.close()
        await consumer.close()
        with pytest.raises(ClientStateError, match="closed"):
            await consumer.start()
        with pytest.raises(ClientStateError, match="closed"):
            await consumer.subscribe("orders")
        started = await stage.consumer("orders")
        await stage.world.do(started.close())
        await started.close()
        with pytest.raises(ClientStateError, match="closed"):
            await started.pull(queue(), 0)
        tasks = [task for task in asyncio.all_tasks() if "prefetch" in repr(task.get_coro())]
        assert not tasks

    perform(scene)


def test_session_that_was_not_started_lives_with_the_consumer() -> None:
    async def scene(stage: Scene) -> None:
        session = stage.world.new_session()
        consumer = PullConsumer(session, "orders", group=GROUP)
        await stage.world.do(consumer.start())
        session.check_running()
        await stage.world.do(consumer.close())
        assert consumer.session.state is ServiceState.SHUTDOWN_ALREADY

    perform(scene)


def test_consumer_whose_session_is_closed_says_so() -> None:
    async def scene(stage: Scene) -> None:
        session = await stage.world.session()
        consumer = PullConsumer(session, "orders", group=GROUP)
        await stage.world.do(consumer.start())
        await stage.world.do(session.close())
        with pytest.raises(ClientStateError, match="closed"):
            await consumer.poll()
        await stage.world.do(consumer.close())

    perform(scene)


def test_second_consumer_of_group_in_one_session_is_refused() -> None:
    async def scene(stage: Scene) -> None:
        session = await stage.world.session()
        first = PullConsumer(session, "orders", group=GROUP)
        await stage.world.do(first.start())
        second = PullConsumer(session, "orders", group=GROUP)
        with pytest.raises(ConfigError, match="instance_name"):
            await stage.world.do(second.start())
        await stage.world.do(second.close())
        assert session.has_consumer(GROUP), "the first one goes on"
        await stage.world.do(first.close())

    perform(scene)


@pytest.mark.parametrize(
    ("options", "error", "cause"),
    [
        ({"group": "DEFAULT_CONSUMER"}, ConfigError, "system's default"),
        ({"group": "a b"}, MessageError, "illegal characters"),
        ({"consume_from": "middle"}, ConfigError, "consume_from"),
        ({"pull_batch_size": 0}, ConfigError, "pull_batch_size is 0"),
        ({"consumer_timeout_ms_when_suspend": 5_000}, ConfigError, "greater than"),
        ({"missing_topic": "make"}, ConfigError, "missing_topic"),
        ({"strategy": "BEST"}, ConfigError, "BEST"),
        ({"pull_bath_size": 3}, ConfigError, "no setting 'pull_bath_size'"),
        ({"topics": None, "tags": "x"}, ConfigError, "without topics"),
        ({"sql": "a >"}, FilterError, "expression"),
    ],
)
def test_consumer_with_wrong_options_is_refused(options: dict[str, Any], error: type[Exception], cause: str) -> None:
    async def scene(stage: Scene) -> None:
        session = await stage.world.session()
        with pytest.raises(error, match=cause):
            PullConsumer(session, **{"topics": "orders", "group": GROUP, **options})

    perform(scene)


def test_poll_with_wrong_numbers_is_refused() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        for arguments in ((-1, 1), (1, 0)):
            with pytest.raises(ConfigError, match="cannot poll"):
                await consumer.poll(*arguments)

    perform(scene)


def test_fetching_goes_on_when_its_broker_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a")
        consumer = await stage.consumer("orders")
        assert await stage.drain(consumer) == ["a"]
        await stage.world.advance(6.0)
        stage.world.kill("broker-a")
        assert await stage.poll(consumer, 5_000) == []
        await stage.world.start_broker("broker-a")
        await stage.send("b")
        assert await stage.poll(consumer, 10_000) == ["b"]

    with caplog.at_level(logging.WARNING, "fusee.client.consumer.prefetch"):
        perform(scene, queues=1)
    assert sum("cannot be fetched now" in record.message for record in caplog.records) == 1


def test_fetching_when_offset_is_beyond_the_queue_goes_on_at_its_end() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a", "b")
        other = await stage.consumer()
        await stage.world.do(other.commit({queue(): 70}))
        await stage.world.do(other.close())
        consumer = await stage.consumer("orders")
        assert await stage.poll(consumer) == []
        assert await stage.world.do(consumer.position(queue())) == 2
        await stage.send("c")
        assert await stage.drain(consumer) == ["c"]
        await stage.world.do(consumer.close())
        assert stage.committed() == 3

    perform(scene, queues=1)


def test_poll_when_queue_can_never_be_fetched_raises_why() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer()
        await stage.world.do(consumer.assign([queue(0)]))
        for _ in range(2):
            with pytest.raises(GroupNotFoundError, match=GROUP):
                await stage.world.do(consumer.poll(5_000))
        stage.world.broker.groups.put(SubscriptionGroupConfig(group_name=GROUP))
        await stage.send("a")
        assert await stage.poll(consumer, 5_000) == ["a"]

    perform(scene, auto_create_subscription_group=False)


# What brokers and operators ask


def test_reset_offsets_goes_on_there() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abcd")
        consumer = await stage.consumer("orders")
        await stage.drain(consumer)
        consumer.reset_offsets("orders", {queue(): 2, queue(9): 0})
        consumer.reset_offsets("other", {queue(): 0})
        assert consumer.status("orders") == {queue(): 2}
        assert await stage.drain(consumer) == ["c", "d"]
        assert consumer.status("other") == {}

    perform(scene, queues=1)


def test_running_info_tells_queues_and_subscriptions() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send(*"abc")
        consumer = await stage.consumer("orders", tags="*")
        await stage.world.settle()
        await stage.poll(consumer, max_messages=1)
        await stage.poll(consumer, max_messages=1)
        await stage.world.advance(5.0)
        info = consumer.running_info()
        (held,) = info.queues.values()
        assert (held.cached_msg_count, held.cached_msg_min_offset, held.cached_msg_max_offset) == (1, 2, 2)
        assert held.commit_offset == 1
        assert held.last_pull_timestamp > 0
        assert [each.topic for each in info.subscription_set] == ["orders"]
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        result = await consumer.consume_directly(stage.world.stored("orders")[0], "broker-a")
        assert result.consume_result == "CR_THROW_EXCEPTION"

    perform(scene, queues=1)


def test_idle_for_long_does_not_end_fetching() -> None:
    async def scene(stage: Scene) -> None:
        consumer = await stage.consumer("orders")
        await stage.world.advance(300.0)
        await stage.send("a")
        assert await stage.drain(consumer) == ["a"]

    perform(scene)


def test_commit_by_hand_is_not_taken_back_by_the_automatic_one() -> None:
    """Whoever commits what was polled is done with it; the automatic commit would wait for the next poll."""

    async def scene(stage: Scene) -> None:
        await stage.send("a", "b", "c")
        consumer = await stage.consumer()
        await stage.world.do(consumer.assign([queue()]))
        assert await stage.poll(consumer, max_messages=2) == ["a", "b"]
        await stage.world.do(consumer.commit())
        assert stage.committed() == 2
        await stage.world.advance(12)
        assert stage.committed() == 2
        await stage.world.do(consumer.commit({queue(): 3}))
        await stage.world.advance(12)
        assert stage.committed() == 3
        await stage.world.do(consumer.close(commit=False))
        assert stage.committed() == 3

    perform(scene)


def test_start_when_sent_to_at_once_misses_nothing() -> None:
    """A group that begins behind the last message begins there when its consumer is started, not a moment later."""

    class Forgetful(BrokerOffsets):
        """A broker says 0 for a queue that is young; an old one says that there is nothing."""

        async def load(self, queue: MessageQueue) -> int | None:
            return None

    async def scene(stage: Scene) -> None:
        await stage.send("old")
        session = await stage.world.session("10.0.9.50")
        consumer = PullConsumer(
            session, "orders", group=GROUP, consume_from="last", offset_store=Forgetful(session, GROUP)
        )
        stage.world.network.weather("10.0.9.50", "10.0.0.1").latency = 0.2
        await stage.world.do(consumer.start())
        await stage.send("new")
        assert await stage.poll(consumer, timeout_ms=5_000) == ["new"]

    perform(scene)


def test_close_twice_at_once_is_over_for_both_when_it_is_over() -> None:
    async def scene(stage: Scene) -> None:
        await stage.send("a")
        consumer = await stage.consumer("orders")
        assert await stage.poll(consumer) == ["a"]
        stage.world.network.weather(f"10.0.9.{stage.world._hosts}", "10.0.0.1").latency = 0.2
        first, second = asyncio.ensure_future(consumer.close()), asyncio.ensure_future(consumer.close())
        await stage.world.advance(0.1)
        first.cancel()
        await stage.world.advance(0.1)
        assert not second.done()
        await stage.world.within(10, second)
        assert stage.committed() == 1
        assert stage.world.broker.consumers.group(GROUP) is None

    perform(scene)
