from __future__ import annotations

import pytest

from fusee.admin import AdminError
from fusee.admin.messages import MessageCalls
from fusee.admin.views import Consumption
from fusee.client.received import ReceivedMessage
from fusee.client.trace import TraceRecord, TraceType, encode_record
from fusee.errors import ConfigError, FilterError, MessageError, NotFoundError, TopicNotFoundError
from tests.admin.scene import Scene, play, queue

UNIQUE = "7F00000100002A139A4600000000000{}"


async def browse(admin: MessageCalls, topic: str, **options: object) -> list[bytes]:
    return [message.body async for message in admin.browse(topic, **options)]  # type: ignore[arg-type]


def test_messages_by_key_come_from_all_brokers_oldest_first() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        await on.send("orders", b"1", broker="broker-b", KEYS="red blue")
        await on.world.advance(1.0)
        between_ms = on.world.clock.time_ms()
        await on.send("orders", b"2", KEYS="red")
        await on.send("orders", b"3", KEYS="redder")
        found = await on.do(on.admin.messages_by_key("orders", "red"))
        assert [(message.body, message.broker_name) for message in found] == [(b"1", "broker-b"), (b"2", "broker-a")]
        assert [each.body for each in await on.do(on.admin.messages_by_key("orders", "red", end=between_ms - 1))] == [
            b"1"
        ]
        assert await on.do(on.admin.messages_by_key("orders", "green")) == ()
        assert await on.do(on.admin.messages_by_key("orders", "red", cluster="D")) == ()
        with pytest.raises(TopicNotFoundError):
            await on.do(on.admin.messages_by_key("none", "red"))
        await on.lose("broker-b")
        with pytest.raises(AdminError, match="broker-b"):
            await on.do(on.admin.messages_by_key("orders", "red"))

    play(scene, brokers=2)


def test_message_by_either_id() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        unique_id = UNIQUE.format(1)
        offset_id = await on.send("orders", b"1", broker="broker-b", UNIQ_KEY=unique_id)
        for message in (
            await on.do(on.admin.message(offset_id)),
            await on.do(on.admin.message_by_offset_id(offset_id)),
            await on.do(on.admin.message(unique_id, "orders")),
        ):
            assert (message.body, message.broker_name, message.message_id, message.offset_id) == (
                b"1",
                "broker-b",
                unique_id,
                offset_id,
            )
        (again,) = await on.do(on.admin.messages_by_unique_id("orders", unique_id))
        assert again.offset_id == offset_id
        with pytest.raises(ConfigError, match="say in which topic"):
            await on.do(on.admin.message(unique_id))
        with pytest.raises(NotFoundError, match="has no message with the id"):
            await on.do(on.admin.message(UNIQUE.format(2), "orders"))
        with pytest.raises(NotFoundError, match="has no message at"):
            await on.do(on.admin.message(offset_id[:-1] + "7"))
        with pytest.raises(MessageError):
            await on.do(on.admin.message_by_offset_id("xyz"))

    play(scene, brokers=2)


def test_message_at_an_offset() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        for number in range(3):
            await on.send("orders", b"%d" % number)
        assert (await on.do(on.admin.message_at(queue(), 1))).body == b"1"
        for wrong in (3, 100):
            with pytest.raises(NotFoundError, match="from 0 up to, without, 3"):
                await on.do(on.admin.message_at(queue(), wrong))

    play(scene)


def test_browse_merges_queues_in_the_order_of_storing() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=2))
        times: list[int] = []
        for number in range(90):
            times.append(on.world.clock.time_ms())
            broker = "broker-b" if number % 3 == 0 else "broker-a"
            await on.send(
                "orders", b"%d" % number, queue_id=number % 2, broker=broker, TAGS="even" if number % 2 == 0 else "odd"
            )
            await on.world.advance(0.01)
        every = [b"%d" % number for number in range(90)]
        assert await on.do(browse(on.admin, "orders")) == every
        assert await on.do(browse(on.admin, "orders", begin=times[10], end=times[20])) == every[10:21]
        assert await on.do(browse(on.admin, "orders", limit=5)) == every[:5]
        assert await on.do(browse(on.admin, "orders", tags="even", begin=times[1])) == every[2::2]
        assert await on.do(browse(on.admin, "orders", sql="TAGS = 'odd'")) == every[1::2]
        assert await on.do(browse(on.admin, "orders", queue=queue(broker="broker-b"))) == every[::6]
        between = await on.do(on.admin.messages_between("orders", times[80], limit=3))
        assert [message.body for message in between] == every[80:83]

    play(scene, brokers=2, enable_property_filter=True)


def test_browse_stops_where_the_topic_ended_when_it_began() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        for number in range(40):
            await on.send("orders", b"%d" % number)
        found = on.admin.browse("orders").__aiter__()
        seen = 0
        while seen < 100:
            message = await on.do(anext(found, None))
            if message is None:
                break
            seen += 1
            await on.send("orders", b"more")
        assert seen == 40

    play(scene)


def test_browse_refuses_what_cannot_be() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        with pytest.raises(ConfigError, match="not one of topic"):
            await on.do(browse(on.admin, "orders", queue=queue("bills")))
        with pytest.raises(FilterError):
            await on.do(browse(on.admin, "orders", sql="a >"))
        with pytest.raises(TopicNotFoundError):
            await on.do(browse(on.admin, "none"))

    play(scene)


def test_trace_of_a_message_is_put_together() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("traces", queues=1))
        sent = TraceRecord(
            kind=TraceType.PUB, timestamp_ms=10, group="shop", topic="orders", message_id="M1", keys="k1"
        )
        other = TraceRecord(
            kind=TraceType.PUB, timestamp_ms=11, group="shop", topic="orders", message_id="M2", keys="k2"
        )
        done = TraceRecord(kind=TraceType.SUB_BEFORE, timestamp_ms=5, group="billing", request_id="R", message_id="M1")
        await on.send("traces", (encode_record(sent) + encode_record(other)).encode(), KEYS="M1 k1 M2 k2")
        await on.send("traces", encode_record(done).encode(), KEYS="M1")
        found = await on.do(on.admin.trace("M1", trace_topic="traces"))
        assert [(record.kind, record.timestamp_ms, record.message_id) for record in found] == [
            (TraceType.SUB_BEFORE, 5, "M1"),
            (TraceType.PUB, 10, "M1"),
        ]
        assert [record.message_id for record in await on.do(on.admin.trace("k2", trace_topic="traces"))] == ["M2"]
        assert await on.do(on.admin.trace("M3", trace_topic="traces")) == ()

    play(scene)


def test_message_status_of_every_group() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        message = await on.do(on.admin.message(await on.send("orders", TAGS="a")))
        for group in ("asleep", "waiting", "done"):
            await on.do(on.admin.create_group(group))
            await on.commit(group, queue(), 0 if group == "waiting" else 1)
        await on.member("filtered", {"orders": "b"})
        await on.member("done", {"orders": "a||b"})
        await on.member("pulled", {"orders": "*"}, consume_type="CONSUME_ACTIVELY")
        await on.member("broadcast", {"orders": "*"}, message_model="BROADCASTING")
        await on.commit("filtered", queue(), 1)
        found = await on.do(on.admin.message_status(message))
        assert {each.group: (each.consumption, each.is_online) for each in found} == {
            "asleep": (Consumption.CONSUMED, False),
            "broadcast": (Consumption.BROADCAST, True),
            "done": (Consumption.CONSUMED, True),
            "filtered": (Consumption.FILTERED, True),
            "pulled": (Consumption.PULLED, True),
            "waiting": (Consumption.WAITING, False),
        }

    play(scene)


def test_received_messages_keep_the_queue_they_lie_in() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders"))
        message = await on.do(on.admin.message(await on.send("orders", queue_id=3)))
        assert isinstance(message, ReceivedMessage)
        assert message.queue == queue(queue_id=3)

    play(scene)
