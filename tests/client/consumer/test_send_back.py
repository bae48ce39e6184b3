"""Messages sent back: by the broker that has them, or as a copy that keeps everything the message was."""

from __future__ import annotations

from fusee.client.consumer.send_back import SendBack
from fusee.client.received import ReceivedMessage
from fusee.message.compression import compress, compressed_sys_flag
from fusee.message.flags import CompressionType
from tests.client.consumer.stage import DEAD, GROUP, RETRIES, Notes, Stage, stage
from tests.client.test_received import stored

PLAIN = b"again and " * 200
ZLIB = CompressionType.ZLIB


def compressed(**properties: str) -> ReceivedMessage:
    message = stored(compress(PLAIN, ZLIB), sys_flag=compressed_sys_flag(0, ZLIB), properties=properties)
    return ReceivedMessage.of(message, "broker-a", is_from_batch=True)


def test_copy_when_made_keeps_body_flag_and_properties() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        consumer = await on.consumer(notes)
        await on.world.advance(3)
        way = SendBack(consumer._session, GROUP, max_reconsume_times=16)
        properties = {"TAGS": "paid", "KEYS": "k", "UNIQ_KEY": "U1", "TRAN_MSG": "true", "x": "y"}
        assert await on.world.do(way.send(compressed(**properties), 1))
        await on.world.advance(2)
        (got,) = notes.messages
        assert (got.body, got.flag, got.tag, got.keys, got.message_id) == (PLAIN, 5, "paid", ("k",), "U1")
        assert (got.topic, got.queue.topic, got.reconsume_times) == ("orders", RETRIES, 1)
        assert (got.properties["ORIGIN_MESSAGE_ID"], got.properties["x"]) == ("U1", "y")
        assert got.transaction_id is None
        assert len(got.stored().body) < len(PLAIN)

    stage(scene)


def test_copy_when_declared_dead_is_a_dead_letter() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer(Notes())
        await on.world.advance(3)
        way = SendBack(consumer._session, GROUP, max_reconsume_times=16)
        assert await on.world.do(way.send(compressed(UNIQ_KEY="U1"), -1))
        await on.world.advance(1)
        assert [message.unique_id for message in on.world.stored(DEAD)] == ["U1"]

    stage(scene)


def test_copy_when_no_broker_takes_it_stays_with_the_caller() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer(Notes())
        await on.world.advance(3)
        way = SendBack(consumer._session, GROUP, max_reconsume_times=16)
        on.world.kill("broker-a")
        assert not await on.world.do(way.send(compressed(UNIQ_KEY="U1"), 0))
        await on.world.start_broker("broker-a")

    stage(scene)
