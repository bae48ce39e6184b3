from __future__ import annotations

import pytest

from fusee.admin import AdminError
from fusee.admin.reach import parse_perm
from fusee.admin.views import TopicSettings, perm_text
from fusee.errors import (
    ClientStateError,
    ConfigError,
    InvalidRequestError,
    MessageError,
    NotFoundError,
    TopicNotFoundError,
)
from tests.admin.scene import Scene, play, queue


def test_create_topic_makes_it_on_every_master_and_waits_for_the_route() -> None:
    async def scene(on: Scene) -> None:
        done = await on.do(on.admin.create_topic("orders", queues=3, message_type="fifo"))
        assert [place.broker_name for place in done] == ["broker-a", "broker-b"]
        route = await on.do(on.admin.topic_route("orders"))
        assert [(each.broker_name, each.read_queues, each.write_queues, each.permission) for each in route.groups] == [
            ("broker-a", 3, 3, "RW-"),
            ("broker-b", 3, 3, "RW-"),
        ]
        assert route.clusters == ("C",)
        assert route.groups[0].addresses == {0: "10.0.0.1:10911"}
        settings = await on.do(on.admin.topic_settings("orders"))
        assert [(each.broker_name, each.message_type) for each in settings] == [
            ("broker-a", "FIFO"),
            ("broker-b", "FIFO"),
        ]

    play(scene, brokers=2)


def test_create_topic_on_one_broker_by_name_or_address() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("one", broker="broker-b", queues=1))
        await on.do(
            on.admin.create_topic("two", broker=on.world.address("broker-a"), read_queues=4, write_queues=2, perm="r")
        )
        assert on.world.brokers["broker-a"].topics.get("one") is None
        (two,) = await on.do(on.admin.topic_settings("two"))
        assert (two.broker_name, two.read_queues, two.write_queues, two.perm) == ("broker-a", 4, 2, 4)

    play(scene, brokers=2)


def test_create_topic_refuses_bad_names_and_unknown_places_before_anything_is_done() -> None:
    async def scene(on: Scene) -> None:
        with pytest.raises(MessageError, match="illegal characters"):
            await on.do(on.admin.create_topic("no spaces"))
        with pytest.raises(NotFoundError, match="no cluster 'D'; there is C"):
            await on.do(on.admin.create_topic("orders", cluster="D"))
        with pytest.raises(NotFoundError, match="no broker 'broker-z'; there is broker-a"):
            await on.do(on.admin.create_topic("orders", broker="broker-z"))
        with pytest.raises(InvalidRequestError, match="conflict with system topic"):
            await on.do(on.admin.create_topic("TBW102"))
        assert on.world.broker.topics.get("orders") is None

    play(scene)


def test_create_topic_when_a_broker_is_gone_says_where_it_was_made() -> None:
    async def scene(on: Scene) -> None:
        await on.lose("broker-b")
        with pytest.raises(AdminError, match="could not make topic 'orders' at 1 of 2 servers; broker-b: ") as caught:
            await on.do(on.admin.create_topic("orders"))
        assert [place.broker_name for place in caught.value.done] == ["broker-a"]
        assert caught.value.retryable
        assert on.world.broker.topics.get("orders") is not None

    play(scene, brokers=2)


def test_create_ordered_topic_tells_the_name_servers_its_queues() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("steps", queues=2, ordered=True))
        assert await on.do(on.admin.order_config("steps")) == "broker-a:2;broker-b:2"
        await on.do(on.admin.create_topic("steps", queues=5, ordered=True, broker="broker-b"))
        assert await on.do(on.admin.order_config("steps")) == "broker-a:2;broker-b:5"
        await on.do(on.admin.delete_topic("steps"))
        assert await on.do(on.admin.order_config("steps")) is None

    play(scene, brokers=2, name_servers=2)


def test_update_topic_changes_only_what_is_given() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=4, message_type="DELAY"))
        await on.do(on.admin.update_topic("orders", write_queues=2, perm="rw"))
        await on.do(on.admin.set_topic_permission("orders", "r", broker="broker-b"))
        one, two = await on.do(on.admin.topic_settings("orders"))
        assert (one.read_queues, one.write_queues, one.perm, one.message_type) == (4, 2, 6, "DELAY")
        assert (two.read_queues, two.write_queues, two.perm, two.message_type) == (4, 2, 4, "DELAY")
        with pytest.raises(TopicNotFoundError):
            await on.do(on.admin.update_topic("none", perm="r"))

    play(scene, brokers=2)


def test_create_topics_makes_all_of_them() -> None:
    async def scene(on: Scene) -> None:
        wanted = [TopicSettings(topic=name, read_queues=1, write_queues=1, perm=6) for name in ("a", "b", "c")]
        await on.do(on.admin.create_topics(wanted[:1]))
        await on.do(on.admin.create_topics(wanted))
        assert await on.do(on.admin.list_topics()) == ("a", "b", "c")

    play(scene)


def test_delete_topic_takes_it_from_brokers_and_name_servers() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.send("orders")
        done = await on.do(on.admin.delete_topic("orders"))
        assert len(done) == 2
        with pytest.raises(TopicNotFoundError) as caught:
            await on.do(on.admin.topic_route("orders"))
        assert caught.value.topic == "orders"
        assert await on.do(on.admin.list_topics()) == ()
        await on.do(on.admin.delete_topic("orders"))

    play(scene, brokers=2)


def test_list_topics_leaves_out_what_is_not_the_users() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.member("billing", {"orders": "*"})
        await on.world.advance(1.0)
        assert await on.do(on.admin.list_topics()) == ("orders",)
        assert await on.do(on.admin.list_topics(cluster="C")) == ("orders",)
        assert await on.do(on.admin.list_topics(retry=True)) == ("%RETRY%billing", "orders")
        assert {"orders", "TBW102", "broker-a", "C"} <= set(await on.do(on.admin.list_topics(system=True)))
        assert [each.topic for each in await on.do(on.admin.topics_of_broker("broker-a"))] == [
            "%RETRY%billing",
            "orders",
        ]

    play(scene)


def test_topic_stats_of_all_brokers_and_what_is_missing() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=2))
        for _ in range(3):
            await on.send("orders", queue_id=1)
        await on.send("orders", broker="broker-b")
        stats = await on.do(on.admin.topic_stats("orders"))
        assert [(each.queue, each.min_offset, each.max_offset, each.count) for each in stats.queues] == [
            (queue(queue_id=0), 0, 0, 0),
            (queue(queue_id=1), 0, 3, 3),
            (queue(queue_id=0, broker="broker-b"), 0, 1, 1),
            (queue(queue_id=1, broker="broker-b"), 0, 0, 0),
        ]
        assert stats.count == 4
        assert stats.queues[0].last_update_at is None
        assert stats.queues[1].last_update_ms == on.world.clock.time_ms()
        await on.lose("broker-b")
        stats = await on.do(on.admin.topic_stats("orders"))
        assert len(stats.queues) == 2
        assert [failure.broker_name for failure in stats.failures] == ["broker-b"]

    play(scene, brokers=2)


def test_topic_groups_are_those_online_and_those_with_offsets() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.do(on.admin.create_group("gone"))
        await on.commit("gone", queue(), 0)
        await on.member("billing", {"orders": "*"})
        assert await on.do(on.admin.topic_groups("orders")) == ("billing", "gone")
        assert await on.do(on.admin.topic_clusters("orders")) == ("C",)

    play(scene)


def test_consume_queue_shows_entries() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        for _ in range(3):
            await on.send("orders")
        entries = await on.do(on.admin.consume_queue(queue(), 1, count=5))
        assert [entry.queue_offset for entry in entries] == [1, 2]
        assert entries[0].log_offset + entries[0].size == entries[1].log_offset

    play(scene)


def test_admin_of_a_closed_session_says_so() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.session.close())
        with pytest.raises(ClientStateError):
            await on.do(on.admin.list_topics())
        with pytest.raises(ClientStateError):
            await on.do(on.admin.create_topic("orders"))

    play(scene)


@pytest.mark.parametrize(("given", "perm"), [(6, 6), ("6", 6), ("rw", 6), ("RW-", 6), ("r", 4), ("w", 2), (0, 0)])
def test_parse_perm(given: int | str, perm: int) -> None:
    assert parse_perm(given) == perm


@pytest.mark.parametrize("given", ["", "x", 9, "16"])
def test_parse_perm_when_malformed_raises(given: int | str) -> None:
    with pytest.raises(ConfigError, match="is no permission"):
        parse_perm(given)


def test_perm_text() -> None:
    assert [perm_text(perm) for perm in (0, 2, 4, 6, 7, 14)] == ["---", "-W-", "R--", "RW-", "RWX", "PRW-"]
