from __future__ import annotations

import pytest

from fusee.admin import AdminError
from fusee.admin.views import ExponentialRetry, GroupSettings, SubscriptionView
from fusee.errors import ConfigError, GroupNotFoundError, MessageError, NotSupportedError, TopicNotFoundError
from tests.admin.scene import Scene, play, queue


def test_create_group_sets_what_is_given_everywhere() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_group("billing", retry_max_times=3, consume_broadcast_enable=False))
        one, two = await on.do(on.admin.group_settings("billing"))
        assert (one.broker_name, two.broker_name) == ("broker-a", "broker-b")
        assert (one.retry_max_times, one.consume_broadcast_enable, one.retry_queue_nums) == (3, False, 1)
        assert await on.do(on.admin.list_groups()) == ("billing",)
        assert "TOOLS_CONSUMER" in await on.do(on.admin.list_groups(system=True))

    play(scene, brokers=2)


def test_create_group_refuses_bad_names() -> None:
    async def scene(on: Scene) -> None:
        with pytest.raises(MessageError, match="illegal characters"):
            await on.do(on.admin.create_group("no spaces"))

    play(scene)


def test_retry_policies_travel_both_ways() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_group("listed", retry_delays_ms=[1000, 5000]))
        backoff = ExponentialRetry(initial_ms=2000, max_ms=60_000, multiplier=3)
        await on.do(on.admin.create_group("grown", retry_backoff=backoff))
        (listed,) = await on.do(on.admin.group_settings("listed"))
        (grown,) = await on.do(on.admin.group_settings("grown"))
        assert (listed.retry_delays_ms, listed.retry_backoff) == ((1000, 5000), None)
        assert (grown.retry_delays_ms, grown.retry_backoff) == ((), backoff)
        await on.do(on.admin.update_group("listed", retry_backoff=backoff))
        (listed,) = await on.do(on.admin.group_settings("listed"))
        assert (listed.retry_delays_ms, listed.retry_backoff) == ((), backoff)
        with pytest.raises(ConfigError, match="not both"):
            await on.do(on.admin.create_group("both", retry_backoff=backoff, retry_delays_ms=[1]))

    play(scene)


def test_update_group_keeps_the_rest() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_group("billing", retry_max_times=3, consume_timeout_minutes=2))
        done = await on.do(on.admin.update_group("billing", consume_enable=False, broker="broker-b"))
        assert [place.broker_name for place in done] == ["broker-b"]
        one, two = await on.do(on.admin.group_settings("billing"))
        assert (one.consume_enable, two.consume_enable) == (True, False)
        assert (two.retry_max_times, two.consume_timeout_minutes) == (3, 2)
        with pytest.raises(GroupNotFoundError, match="no broker knows group 'none'"):
            await on.do(on.admin.update_group("none", consume_enable=False))

    play(scene, brokers=2)


def test_group_settings_do_not_make_the_group() -> None:
    async def scene(on: Scene) -> None:
        for _ in range(2):
            with pytest.raises(GroupNotFoundError):
                await on.do(on.admin.group_settings("typo"))

    play(scene)


def test_create_groups_and_move_them_to_another_broker() -> None:
    async def scene(on: Scene) -> None:
        wanted = [GroupSettings(group=name, retry_max_times=5) for name in ("a", "b")]
        await on.do(on.admin.create_groups(wanted, broker="broker-a"))
        kept = await on.do(on.admin.groups_of_broker("broker-a"))
        assert [settings.group for settings in kept] == ["a", "b"]
        await on.do(on.admin.create_groups(kept, broker="broker-b"))
        assert [each.retry_max_times for each in await on.do(on.admin.groups_of_broker("broker-b"))] == [5, 5]

    play(scene, brokers=2)


def test_delete_group_keeps_dead_letters_unless_told() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.do(on.admin.create_topic("%DLQ%billing", queues=1))
        await on.member("billing", {"orders": "*"})
        await on.commit("billing", queue(), 0)
        await on.world.advance(1.0)
        await on.do(on.admin.delete_group("billing", delete_offsets=True))
        topics = await on.do(on.admin.list_topics(retry=True))
        assert topics == ("%DLQ%billing", "orders")
        assert await on.do(on.admin.committed_offsets("billing", "orders")) != ()
        assert all(
            each.committed_offset is None for each in await on.do(on.admin.committed_offsets("billing", "orders"))
        )
        await on.do(on.admin.delete_group("billing", delete_dead_letters=True))
        assert await on.do(on.admin.list_topics(retry=True)) == ("orders",)

    play(scene)


def test_list_groups_when_a_broker_does_not_tell_raises() -> None:
    async def scene(on: Scene) -> None:
        await on.lose("broker-b")
        with pytest.raises(AdminError, match="broker-b"):
            await on.do(on.admin.list_groups())

    play(scene, brokers=2)


def test_group_topics_and_subscription() -> None:
    async def scene(on: Scene) -> None:
        for topic in ("orders", "bills"):
            await on.do(on.admin.create_topic(topic))
        await on.do(on.admin.create_group("billing"))
        await on.commit("billing", queue("bills"), 0)
        assert await on.do(on.admin.group_topics("billing")) == ("bills",)
        assert await on.do(on.admin.subscription("billing", "orders")) is None
        await on.member("billing", {"orders": "a||b"})
        assert await on.do(on.admin.subscription("billing", "orders")) == SubscriptionView(
            topic="orders", expression="a||b"
        )
        with pytest.raises(TopicNotFoundError):
            await on.do(on.admin.subscription("billing", "none"))

    play(scene, brokers=2)


def test_topic_is_forbidden_to_a_group_and_allowed_again() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.do(on.admin.create_group("billing"))
        assert await on.do(on.admin.is_readable("billing", "orders"))
        assert not await on.do(on.admin.set_readable("billing", "orders", False))
        assert not await on.do(on.admin.is_readable("billing", "orders"))
        assert await on.do(on.admin.set_readable("billing", "orders", True))

    play(scene, brokers=2)


def test_consume_mode_where_it_is_not_served_says_so() -> None:
    async def scene(on: Scene) -> None:
        with pytest.raises(NotSupportedError):
            await on.do(on.admin.set_consume_mode("billing", "orders", "POP"))

    play(scene)
