from __future__ import annotations

import pytest

from fusee.admin.views import QueuePosition, SubscriptionView
from fusee.errors import ConsumerOfflineError
from tests.admin.scene import Publisher, Scene, play, queue


def test_consumers_are_found_at_every_broker_and_told_once() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        _, first = await on.member("billing", {"orders": "a||b"})
        _, second = await on.member("billing", {"orders": "a||b"})
        online = await on.do(on.admin.consumers("billing"))
        assert [client.client_id for client in online.clients] == sorted([first, second])
        assert [client.brokers for client in online.clients] == [("broker-a", "broker-b")] * 2
        assert [client.language for client in online.clients] == ["PYTHON"] * 2
        assert SubscriptionView(topic="orders", expression="a||b") in online.subscriptions
        assert (online.consume_type, online.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert not online.is_pull
        assert not online.is_broadcast

    play(scene, brokers=2)


def test_consumers_when_nobody_is_online_raises() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_group("billing"))
        for group in ("billing", "never"):
            with pytest.raises(ConsumerOfflineError):
                await on.do(on.admin.consumers(group))

    play(scene, brokers=2)


def test_consumer_tells_what_it_does() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        _, client_id = await on.member("billing", {"orders": "*"}, [queue(queue_id=1), queue(queue_id=0)])
        view = await on.do(on.admin.consumer("billing", client_id))
        assert view.client_id == client_id
        assert [(each.queue, each.committed_offset, each.cached_count, each.last_pull_ms) for each in view.queues] == [
            (queue(queue_id=0), 3, 2, 11),
            (queue(queue_id=1), 3, 2, 11),
        ]
        assert [(each.topic, each.consume_ok_tps) for each in view.rates] == [("orders", 2.5)]
        assert view.properties == {"PROP_CONSUMEORDERLY": "false"}
        with pytest.raises(ConsumerOfflineError, match=f"'x' is no member of group 'billing'; online are {client_id}"):
            await on.do(on.admin.consumer("billing", "x"))

    play(scene)


def test_consumers_at_work_names_owners_and_those_who_do_not_tell() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        _, first = await on.member("billing", {"orders": "*"}, [queue(queue_id=0)])
        silent, second = await on.member("billing", {"orders": "*"}, [queue(queue_id=1)])
        silent.answers = False
        at_work = await on.do(on.admin.consumers_at_work("billing"))
        assert at_work.owners == {queue(queue_id=0): first}
        assert [failure.broker_name for failure in at_work.failures] == [second]

    play(scene)


def test_member_offsets_of_all_and_of_one() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        _, first = await on.member("billing", {"orders": "*"}, [queue(queue_id=1), queue(queue_id=0)])
        _, second = await on.member("billing", {"orders": "*"})
        found = {each.client_id: each.positions for each in await on.do(on.admin.member_offsets("billing", "orders"))}
        assert found == {
            first: tuple(QueuePosition(queue=queue(queue_id=number), queue_offset=7) for number in (0, 1)),
            second: (),
        }
        (one,) = await on.do(on.admin.member_offsets("billing", "orders", client_id=first))
        assert one.client_id == first

    play(scene, brokers=2)


def test_producers_of_a_group_and_of_all() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        assert (await on.do(on.admin.producers("shop", "orders"))).producers == ()
        session = await on.world.session()
        session.register_producer("shop", Publisher())
        for name in on.world.brokers:
            await on.do(session.heartbeat(on.world.address(name)))
        (found,) = (await on.do(on.admin.producers("shop", "orders"))).producers
        assert (found.client_id, found.brokers, found.group) == (session.client_id, ("broker-a", "broker-b"), "shop")
        (again,) = (await on.do(on.admin.all_producers())).producers
        assert (again.client_id, again.brokers) == (session.client_id, ("broker-a", "broker-b"))
        assert again.last_update_ms == on.world.clock.time_ms()
        await on.lose("broker-b")
        view = await on.do(on.admin.all_producers())
        assert [failure.broker_name for failure in view.failures] == ["broker-b"]
        view = await on.do(on.admin.producers("shop", "orders"))
        assert [failure.broker_name for failure in view.failures] == ["broker-b"]
        assert len(view.producers) == 1

    play(scene, brokers=2)
