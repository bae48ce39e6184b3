from __future__ import annotations

import pytest

from fusee.errors import GroupNotFoundError, RemoteFailureError, TopicNotFoundError
from tests.admin.scene import Scene, play, queue


def test_lag_per_queue_with_its_owner() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=2))
        for number in range(5):
            await on.send("orders", b"%d" % number, queue_id=number % 2)
        await on.send("orders", broker="broker-b")
        _, owner = await on.member("billing", {"orders": "*"}, [queue(queue_id=0), queue(broker="broker-b")])
        await on.commit("billing", queue(queue_id=0), 2)
        lag = await on.do(on.admin.lag("billing", "orders"))
        assert [
            (each.queue, each.broker_offset, each.committed_offset, each.lag, each.owner) for each in lag.queues
        ] == [
            (queue(queue_id=0), 3, 2, 1, owner),
            (queue(queue_id=1), 2, 0, 2, ""),
            (queue(queue_id=0, broker="broker-b"), 1, 0, 1, owner),
            (queue(queue_id=1, broker="broker-b"), 0, 0, 0, ""),
        ]
        assert (lag.total, lag.in_flight, lag.topics) == (4, 0, ("orders",))
        assert lag.queues[0].last_consumed_ms == on.world.clock.time_ms()
        assert lag.queues[1].last_consumed_at is None

    play(scene, brokers=2)


def test_lag_without_topic_covers_all_topics_with_offsets() -> None:
    async def scene(on: Scene) -> None:
        for topic in ("orders", "bills"):
            await on.do(on.admin.create_topic(topic, queues=1))
            await on.send(topic)
        await on.do(on.admin.create_group("billing"))
        for topic in ("orders", "bills"):
            await on.commit("billing", queue(topic), 0)
        lag = await on.do(on.admin.lag("billing"))
        assert lag.topics == ("bills", "orders")
        assert lag.total == 2

    play(scene)


def test_lag_of_unknown_group_raises_and_of_a_fresh_one_is_empty() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_group("fresh"))
        assert (await on.do(on.admin.lag("fresh"))).queues == ()
        with pytest.raises(GroupNotFoundError, match="'typo'"):
            await on.do(on.admin.lag("typo"))
        with pytest.raises(TopicNotFoundError):
            await on.do(on.admin.lag("fresh", "none"))

    play(scene)


def test_lag_when_a_member_does_not_tell_leaves_its_queues_without_owner() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        member, client_id = await on.member("billing", {"orders": "*"}, [queue()])
        member.answers = False
        lag = await on.do(on.admin.lag("billing", "orders"))
        assert [each.owner for each in lag.queues] == [""]
        assert [failure.broker_name for failure in lag.failures] == [client_id]
        assert (await on.do(on.admin.lag("billing", "orders", owners=False))).failures == ()

    play(scene)


def test_lag_when_a_broker_is_away_tells_the_rest() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        await on.member("billing", {"orders": "*"})
        await on.lose("broker-b")
        lag = await on.do(on.admin.lag("billing", "orders"))
        assert [each.queue.broker_name for each in lag.queues] == ["broker-a"]
        assert "broker-b" in {failure.broker_name for failure in lag.failures}

    play(scene, brokers=2)


def test_group_summaries_have_a_line_per_group() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        await on.send("orders")
        await on.do(on.admin.create_group("asleep"))
        await on.commit("asleep", queue(), 0)
        await on.member("billing", {"orders": "*"})
        await on.member("billing", {"orders": "*"})
        asleep, billing = await on.do(on.admin.group_summaries())
        assert (asleep.group, asleep.members, asleep.lag) == ("asleep", 0, 1)
        assert (billing.group, billing.members, billing.message_model) == ("billing", 2, "CLUSTERING")
        assert billing.lowest_version == 513

    play(scene)


def test_broker_lags_show_every_group_of_one_broker() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        await on.send("orders")
        for group in ("a", "b"):
            await on.do(on.admin.create_group(group))
            await on.commit(group, queue(), 0)
        found = {each.group: each.total for each in await on.do(on.admin.broker_lags("broker-a"))}
        assert (found["a"], found["b"]) == (1, 1)

    play(scene)


def test_queue_ages_tell_how_long_the_next_message_waits() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        await on.do(on.admin.create_group("billing"))
        await on.send("orders")
        await on.world.advance(30.0)
        (age,) = await on.do(on.admin.queue_ages("billing", "orders"))
        assert age.queue == queue()
        assert age.delay_ms == 30_000

    play(scene)


def test_broker_stat_and_traffic() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        with pytest.raises(RemoteFailureError):
            await on.do(on.admin.broker_stat("broker-a", "TOPIC_PUT_NUMS", "orders"))
        (nobody,) = await on.do(on.admin.traffic("orders"))
        assert (nobody.group, nobody.in_tps, nobody.in_day) == ("", 0.0, 0)
        await on.do(on.admin.create_group("billing"))
        await on.commit("billing", queue(), 0)
        for _ in range(6):
            await on.send("orders")
            await on.world.advance(10.0)
        stat = await on.do(on.admin.broker_stat("broker-a", "TOPIC_PUT_NUMS", "orders"))
        assert stat.minute.total > 0
        (line,) = await on.do(on.admin.traffic("orders"))
        assert (line.group, line.lag) == ("billing", 6)
        assert line.in_tps == stat.minute.tps > 0

    play(scene)
