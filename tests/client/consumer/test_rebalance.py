"""Members that come, go and are cut off divide the queues of their group among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from fusee.client.config import MessageModel
from fusee.client.consumer.assignment import AllocateStrategy, Averagely
from fusee.client.consumer.rebalance import Rebalance
from fusee.client.session import Session
from fusee.errors import ClientStateError, ConfigError, ConnectError
from fusee.message.model import MessageQueue, StoredMessage
from fusee.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from fusee.wire.bodies.stats import ConsumeDirectlyResult, ConsumerRunningInfo
from tests.client.world import ClusterWorld, play

GROUP = "consumers"


def queues(*numbers: int, topic: str = "orders", broker: str = "broker-a") -> set[MessageQueue]:
    return {MessageQueue(topic, broker, number) for number in numbers}


class Member:
    """A consumer that takes what it is given and consumes nothing."""

    def __init__(self, session: Session, *, topics: Iterable[str] = ("orders",), **options: Any) -> None:
        self.session = session
        self.topics = list(topics)
        self.taken: list[MessageQueue] = []
        self.released: list[MessageQueue] = []
        self.changes: list[tuple[str, int, int]] = []
        self.refused: set[MessageQueue] = set()
        self.failing: set[MessageQueue] = set()
        self.busy: set[MessageQueue] = set()
        self.dead: set[MessageQueue] = set()
        values: dict[str, Any] = {
            "model": MessageModel.CLUSTERING,
            "strategy": Averagely(),
            "topics": lambda: self.topics,
            "acquire": self.acquire,
            "release": self.release,
            "on_changed": self.changed,
            "is_dead": self.dead.__contains__,
            **options,
        }
        self.rebalance = Rebalance(session, GROUP, **values)

    async def acquire(self, queue: MessageQueue) -> bool:
        self.taken.append(queue)
        if queue in self.failing:
            raise ConnectError("the broker is away")
        return queue not in self.refused

    async def release(self, queue: MessageQueue) -> bool:
        self.released.append(queue)
        self.dead.discard(queue)
        return queue not in self.busy

    def changed(self, topic: str, every: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        self.changes.append((topic, len(every), len(mine)))

    @property
    def owned(self) -> set[MessageQueue]:
        return set(self.rebalance.owned)

    async def leave(self) -> None:
        await self.rebalance.stop()
        await self.session.unregister_consumer(GROUP)

    # ConsumerParty

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=GROUP, subscription_data_set=[SubscriptionData(topic=topic) for topic in self.topics]
        )

    def subscribed_topics(self) -> Iterable[str]:
        return self.topics

    def members_changed(self) -> None:
        self.rebalance.request()

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        raise AssertionError("nobody resets here")

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo()

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        return ConsumeDirectlyResult()

    async def persist_offsets(self) -> None:
        """Nothing was consumed."""


async def join(world: ClusterWorld, name: str = "", *, start: bool = True, **options: Any) -> Member:
    """A new member, after the first round when it is started."""
    session = await world.session(instance_name=name or f"member-{len(world.sessions)}", client_ip="10.0.9.1")
    member = Member(session, **options)
    session.register_consumer(GROUP, member)
    if start:
        member.rebalance.start()
        await world.settle()
    return member


async def topic(world: ClusterWorld, count: int = 4, name: str = "orders") -> None:
    world.create_topic(name, count)
    await world.settle()


def test_member_alone_takes_every_queue() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world)
        member = await join(world)
        assert member.owned == queues(0, 1, 2, 3) | queues(0, 1, 2, 3, broker="broker-b")
        assert member.changes == [("orders", 8, 8)]
        await world.advance(60.0)
        assert len(member.taken) == 8, "what is ours is not taken again"

    play(scene, brokers=2)


def test_members_that_join_get_their_share_within_a_second() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world)
        first = await join(world)
        second = await join(world)
        await world.advance(1.0)
        assert first.owned == queues(0, 1)
        assert second.owned == queues(2, 3)
        third = await join(world)
        await world.advance(1.1)
        assert [len(member.owned) for member in (first, second, third)] == [2, 1, 1]
        assert first.owned | second.owned | third.owned == queues(0, 1, 2, 3)
        assert second.changes[-1] == ("orders", 4, 1)

    play(scene)


def test_member_that_leaves_hands_its_queues_over() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world)
        first, second = await join(world), await join(world)
        await world.advance(1.1)
        await world.do(first.leave())
        assert first.owned == set()
        assert set(first.released) == queues(0, 1, 2, 3)
        await world.advance(1.1)
        assert second.owned == queues(0, 1, 2, 3)

    play(scene)


def test_member_that_is_killed_is_replaced() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world)
        first = await join(world)
        lonely = await world.session(instance_name="lonely", host="10.0.9.77")
        second = Member(lonely)
        lonely.register_consumer(GROUP, second)
        second.rebalance.start()
        await world.advance(1.1)
        assert len(first.owned) == 2
        world.kill_session(lonely)
        await world.advance(1.1)
        assert first.owned == queues(0, 1, 2, 3)

    play(scene)


def test_broadcast_members_take_every_queue_each() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world)
        members = [await join(world, model=MessageModel.BROADCASTING) for _ in range(2)]
        await world.advance(1.1)
        assert [member.owned for member in members] == [queues(0, 1, 2, 3)] * 2

    play(scene)


def test_queue_that_is_refused_is_asked_for_every_second() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 2)
        member = await join(world, start=False)
        member.refused = queues(0)
        member.failing = queues(1)
        member.rebalance.start()
        await world.advance(3.5)
        assert member.owned == set()
        assert len(member.taken) == 8
        member.refused.clear()
        member.failing.clear()
        await world.advance(1.0)
        assert member.owned == queues(0, 1)
        await world.advance(10.0)
        assert len(member.taken) == 10

    play(scene)


def test_queue_that_is_busy_is_released_again_every_second() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 2)
        first = await join(world)
        first.busy = queues(1)
        second = await join(world)
        await world.advance(4.0)
        assert first.owned == queues(0)
        assert first.released.count(*queues(1)) >= 3
        first.busy.clear()
        await world.advance(1.1)
        count = len(first.released)
        await world.advance(10.0)
        assert len(first.released) == count
        assert second.owned == queues(1)

    play(scene)


def test_queue_that_is_busy_is_not_taken_again_before_it_is_released() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 2)
        first = await join(world)
        first.busy = queues(1)
        second = await join(world)
        await world.advance(2.0)
        await world.do(second.leave())
        await world.advance(2.0)
        assert first.taken.count(*queues(1)) == 1
        first.busy.clear()
        await world.advance(1.1)
        assert first.owned == queues(0, 1)
        assert first.taken.count(*queues(1)) == 2

    play(scene)


def test_requests_are_one_round_and_never_two_in_a_second() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        member = await join(world, start=False)
        member.refused = queues(0)
        member.rebalance.start()
        for _ in range(30):
            member.rebalance.request()
            await world.advance(0.1)
        assert len(member.taken) == 4

    play(scene)


def test_request_after_a_quiet_time_is_served_at_once() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        member = await join(world)
        await world.advance(5.0)
        member.dead |= queues(0)
        member.rebalance.request()
        await world.settle()
        assert member.taken == [*queues(0), *queues(0)]

    play(scene)


def test_queue_that_is_dead_is_taken_up_anew() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 2)
        member = await join(world)
        member.dead |= queues(1)
        await world.advance(20.0)
        assert member.released == [*queues(1)]
        assert member.owned == queues(0, 1)
        assert len(member.taken) == 3

    play(scene)


def test_broker_that_forgot_us_is_greeted_before_queues_are_given_up() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world)
        first, second = await join(world), await join(world)
        await world.advance(1.1)
        world.kill("broker-a")
        await world.advance(1.0)
        await world.start_broker("broker-a")
        world.create_topic("orders", 4)
        await world.do(second.session.heartbeat_all())
        first.rebalance.request()
        await world.advance(0.1)
        assert first.owned == queues(0, 1)
        assert first.released == [MessageQueue("orders", "broker-a", number) for number in (2, 3)]

    play(scene)


def test_member_keeps_its_queues_while_no_broker_answers() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world)
        member = await join(world)
        world.kill("broker-a")
        await world.advance(60.0)
        assert member.owned == queues(0, 1, 2, 3)
        assert member.released == []

    play(scene)


def test_topic_that_is_no_longer_subscribed_is_let_go() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        await topic(world, 1, name="bills")
        member = await join(world, topics=["orders", "bills"])
        assert member.owned == queues(0) | queues(0, topic="bills")
        member.topics.remove("bills")
        member.busy = queues(0, topic="bills")
        member.rebalance.request()
        await world.advance(1.0)
        assert member.owned == queues(0)
        member.busy.clear()
        await world.advance(1.0)
        assert member.released[-1:] == [*queues(0, topic="bills")]
        count = len(member.released)
        await world.advance(30.0)
        assert len(member.released) == count

    play(scene)


def test_queues_that_are_added_are_taken_when_the_route_is_known() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 2)
        member = await join(world)
        world.create_topic("orders", 3)
        await world.advance(31.0)
        assert member.owned == queues(0, 1, 2)

    play(scene)


def test_queues_that_are_taken_away_are_released() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 2)
        member = await join(world)
        world.create_topic("orders", 2, perm=2)
        await world.advance(31.0)
        assert member.owned == set()
        assert set(member.released) == queues(0, 1)

    play(scene)


def test_topic_that_does_not_exist_yet_is_taken_once_it_does() -> None:
    async def scene(world: ClusterWorld) -> None:
        member = await join(world, topics=["orders"])
        assert await world.do(member.rebalance.run_once()) is True
        assert member.owned == set()
        await topic(world, 2)
        await world.advance(31.0)
        assert member.owned == queues(0, 1)

    play(scene)


def test_run_once_says_whether_the_goal_is_reached() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        member = await join(world, start=False)
        member.refused = queues(0)
        assert await world.do(member.rebalance.run_once()) is False
        member.refused.clear()
        assert await world.do(member.rebalance.run_once()) is True
        assert await world.do(member.rebalance.run_once()) is True
        assert member.changes == [("orders", 1, 1)]

    play(scene)


class Undecided:
    """A strategy that cannot decide."""

    name = "UNDECIDED"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        raise ConfigError("no room is known for this broker")


def test_strategy_that_cannot_decide_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        undecided: AllocateStrategy = Undecided()
        member = await join(world, strategy=undecided)
        assert member.owned == set()
        assert member.taken == []

    play(scene)
    assert "no room is known" in caplog.text


def test_round_that_fails_does_not_end_the_series(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)

        def break_once(*_: object) -> None:
            member.rebalance._on_changed = None
            raise ValueError("a mistake of the application")

        member = await join(world, start=False, on_changed=break_once)
        member.rebalance.start()
        await world.advance(1.1)
        member.dead |= queues(0)
        member.rebalance.request()
        await world.advance(1.1)
        assert len(member.taken) == 2

    play(scene)
    assert "a mistake of the application" in caplog.text


def test_stop_when_a_queue_stays_busy_ends_in_time_and_names_it() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 2)
        member = await join(world, stop_timeout_ms=5_000)
        member.busy = queues(1)
        began = world.clock.monotonic()
        assert await world.do(member.rebalance.stop()) == queues(1)
        assert world.clock.monotonic() - began == pytest.approx(5.0, abs=1.1)
        assert member.owned == set()
        member.rebalance.request()
        await world.advance(30.0)
        assert member.taken == sorted(queues(0, 1))

    play(scene)


def test_stop_when_a_queue_is_freed_meanwhile_releases_it() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        member = await join(world)
        member.busy = queues(0)
        world.clock.call_later(2.5, member.busy.clear)
        assert await world.do(member.rebalance.stop()) == frozenset()

    play(scene)


def test_start_twice_is_refused() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        member = await join(world)
        with pytest.raises(ClientStateError):
            member.rebalance.start()

    play(scene)


def test_stop_without_start_leaves_nothing() -> None:
    async def scene(world: ClusterWorld) -> None:
        await topic(world, 1)
        member = await join(world, start=False)
        await world.do(member.rebalance.run_once())
        await world.do(member.rebalance.stop())
        assert member.released == [*queues(0)]

    play(scene)
