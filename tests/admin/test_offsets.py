from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fusee.admin import Admin, AdminError
from fusee.admin.views import BrokerAddress, OffsetChange, OffsetChanges
from fusee.errors import ConfigError, GroupNotFoundError, TopicNotFoundError, UnavailableError
from tests.admin.scene import Scene, play, queue


def changes(found: OffsetChanges) -> list[tuple[int, int | None, int]]:
    return [(each.queue.queue_id, each.before, each.after) for each in found.changes]


async def committed(on: Scene, group: str = "billing") -> list[int | None]:
    return [each.committed_offset for each in await on.do(on.admin.committed_offsets(group, "orders"))]


async def filled(on: Scene, group: str = "billing") -> int:
    """A topic of two queues, five messages ten seconds apart in queue 0, two in queue 1; when the third came."""
    await on.do(on.admin.create_topic("orders", queues=2))
    await on.do(on.admin.create_group(group))
    third_ms = 0
    for number in range(5):
        if number == 2:
            third_ms = on.world.clock.time_ms()
        await on.send("orders", queue_id=0)
        if number < 2:
            await on.send("orders", queue_id=1)
        await on.world.advance(10.0)
    return third_ms


def test_committed_offsets_tell_apart_zero_and_nothing() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        await on.commit("billing", queue(), 0)
        found = await on.do(on.admin.committed_offsets("billing", "orders"))
        assert [each.committed_offset for each in found] == [0, None]

    play(scene)


def test_reset_offsets_to_a_time() -> None:
    async def scene(on: Scene) -> None:
        third_ms = await filled(on)
        await on.commit("billing", queue(), 5)
        for when in (third_ms, datetime.fromtimestamp(third_ms / 1000, UTC)):
            planned = await on.do(on.admin.reset_offsets("billing", "orders", when, dry_run=True))
            assert planned.is_dry_run
            assert changes(planned) == [(0, 5, 2), (1, None, 2)]
        assert await committed(on) == [
            5,
            None,
        ]
        done = await on.do(on.admin.reset_offsets("billing", "orders", third_ms))
        assert changes(done) == [(0, 5, 2), (1, None, 2)]
        assert (done.is_told, done.is_dry_run) == (True, False)
        assert await committed(on) == [
            2,
            2,
        ]

    play(scene)


def test_reset_offsets_to_the_ends_and_skip() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        assert changes(await on.do(on.admin.reset_offsets("billing", "orders", "last"))) == [(0, None, 5), (1, None, 2)]
        assert changes(await on.do(on.admin.reset_offsets("billing", "orders", "first"))) == [(0, 5, 0), (1, 2, 0)]
        assert changes(await on.do(on.admin.skip_messages("billing", "orders"))) == [(0, 0, 5), (1, 0, 2)]
        with pytest.raises(ConfigError, match="'first' or 'last'"):
            await on.do(on.admin.reset_offsets("billing", "orders", "middle"))  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="is negative"):
            await on.do(on.admin.reset_offsets("billing", "orders", -1))

    play(scene)


def test_reset_offsets_of_what_is_not_there_raises() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        with pytest.raises(GroupNotFoundError):
            await on.do(on.admin.reset_offsets("typo", "orders", "last"))
        with pytest.raises(TopicNotFoundError):
            await on.do(on.admin.reset_offsets("billing", "none", "last"))

    play(scene)


def test_reset_offsets_when_a_broker_is_away_says_where() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        await on.lose("broker-b")
        with pytest.raises(AdminError, match="broker-b"):
            await on.do(on.admin.reset_offsets("billing", "orders", "last"))

    play(scene, brokers=2)


def test_reset_offsets_by_a_broker_that_tells_its_members() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        member, _ = await on.member("billing", {"orders": "*"})
        for number in (0, 1):
            await on.commit("billing", queue(queue_id=number), 1)
        done = await on.do(on.admin.reset_offsets("billing", "orders", "last"))
        assert done.is_told
        await on.world.settle()
        assert member.resets == [{queue(queue_id=0): 5, queue(queue_id=1): 2}]

    play(scene, use_server_side_reset_offset=False)


def test_reset_offsets_when_nobody_is_online_to_be_told_writes_them() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        for number in (0, 1):
            await on.commit("billing", queue(queue_id=number), 1)
        done = await on.do(on.admin.reset_offsets("billing", "orders", "last"))
        assert not done.is_told
        assert changes(done) == [(0, 1, 5), (1, 1, 2)]
        assert await committed(on) == [
            5,
            2,
        ]

    play(scene, use_server_side_reset_offset=False)


def test_reset_offsets_again_before_anybody_pulled() -> None:
    async def scene(on: Scene) -> None:
        third_ms = await filled(on)
        await on.do(on.admin.reset_offsets("billing", "orders", "last"))
        await on.do(on.admin.reset_offsets("billing", "orders", third_ms))
        assert await committed(on) == [2, 2]

    play(scene)


def test_set_offset_of_one_queue() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        done = await on.do(on.admin.set_offset("billing", queue(), 3))
        assert done.is_told
        assert done.changes == (OffsetChange(queue=queue(), before=None, after=3),)
        assert await committed(on) == [
            3,
            None,
        ]
        for wrong in (-1, 6):
            with pytest.raises(ConfigError, match="has the offsets 0 to 5"):
                await on.do(on.admin.set_offset("billing", queue(), wrong))

    play(scene)


def test_set_offset_where_the_broker_cannot_reset_one_queue_moves_no_other() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        for number in (0, 1):
            await on.commit("billing", queue(queue_id=number), 2)
        done = await on.do(on.admin.set_offset("billing", queue(), 4))
        assert not done.is_told
        assert await committed(on) == [
            4,
            2,
        ]

    play(scene, use_server_side_reset_offset=False)


def test_clone_offsets_of_one_topic_and_of_all() -> None:
    async def scene(on: Scene) -> None:
        await filled(on)
        await on.do(on.admin.create_topic("bills", queues=1))
        await on.do(on.admin.create_group("copy"))
        await on.commit("billing", queue(), 4)
        await on.commit("billing", queue("bills"), 0)
        assert await on.do(on.admin.clone_offsets("billing", "copy", "orders")) == ("orders",)
        assert await on.do(on.admin.group_topics("copy")) == ("orders",)
        assert await on.do(on.admin.clone_offsets("billing", "copy")) == ("bills", "orders")
        assert await on.do(on.admin.group_topics("copy")) == ("bills", "orders")
        assert (await on.do(on.admin.committed_offsets("copy", "orders")))[0].committed_offset == 4

    play(scene)


def test_offset_at_time() -> None:
    async def scene(on: Scene) -> None:
        third_ms = await filled(on)
        assert await on.do(on.admin.offset_at_time(queue(), third_ms)) == 2
        assert await on.do(on.admin.offset_at_time(queue(), third_ms - 1, upper=True)) == 1
        assert await on.do(on.admin.offset_at_time(queue(), datetime(2100, 1, 1, tzinfo=UTC))) == 5

    play(scene)


def test_offsets_when_a_master_is_away_are_not_told_or_moved_in_part() -> None:
    """The name server still knows the queues by the slave; to leave them out would look like success."""

    class Masterless(Admin):
        async def brokers(self, **options: Any) -> tuple[BrokerAddress, ...]:
            return tuple(place for place in await super().brokers(**options) if place.broker_name != "broker-b")

    async def scene(on: Scene) -> None:
        await filled(on)
        admin = Masterless(on.session)
        with pytest.raises(UnavailableError, match="broker-b has queues of topic 'orders' but no master") as caught:
            await on.do(admin.reset_offsets("billing", "orders", "last"))
        assert (caught.value.topic, caught.value.retryable) == ("orders", True)
        with pytest.raises(UnavailableError, match="broker-b"):
            await on.do(admin.committed_offsets("billing", "orders"))
        everything = await on.do(on.admin.messages_between("orders"))
        assert await on.do(_ids(admin)) == [message.message_id for message in everything]

    play(scene, brokers=2)


async def _ids(admin: Admin) -> list[str]:
    return [message.message_id async for message in admin.browse("orders")]
