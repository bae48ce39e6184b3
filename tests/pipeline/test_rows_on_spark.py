"""What rows on real Spark say of messages, also delayed, transacted and delivered again; and what is not read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import fusee.sync
from fusee.message.model import Message, MessageQueue
from fusee.message.properties import DELAY, TIMER_OUT_MS, encode_properties
from fusee.pipeline.blocking_link import BlockingLink
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.admin import GetTopicStats
from fusee.wire.headers.bulk_read import BulkReadRequest
from fusee.wire.headers.send import SendMessageV2
from tests.pipeline.more_brokers import SECOND, fill_second, second_broker
from tests.pipeline.requests_seen import Requests
from tests.pipeline.topics_of_tests import BROKER, fill, source, texts
from tests.pipeline.written import messages_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from fusee.message.model import StoredMessage
    from fusee.sync import EmbeddedServer

COMMITTED, COMPRESSED = 8, 1
RETRIES = "%RETRY%shop"


def send_plainly(
    server: EmbeddedServer, topic: str, body: bytes, *, sys_flag: int = 0, properties: Mapping[str, str] | None = None
) -> None:
    """Send to queue 0 what a client would not send like this."""
    header = SendMessageV2(
        producer_group="tests",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1_700_000_000_123,
        flag=7,
        properties=encode_properties(properties or {}).decode(),
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    link = BlockingLink(server.broker_address, timeout_ms=10_000)
    try:
        answer = link.request(Command.request(RequestCode.SEND_MESSAGE_V2, header, body=body)).command
    finally:
        link.close()
    assert answer.code == ResponseCode.SUCCESS, answer


def in_columns(message: StoredMessage) -> dict[str, Any]:
    """A message as a consumer pulls it, under the names of columns."""
    return {
        "topic": message.topic,
        "brokerName": BROKER,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "logOffset": message.log_offset,
        "keys": " ".join(message.keys) or None,
        "tags": message.tag,
        "body": message.body,
        "properties": dict(message.properties),
        "bornTimestamp": at(message.born_timestamp_ms),
        "storeTimestamp": at(message.store_timestamp_ms),
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "msgId": message.unique_id or message.offset_id,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }


def at(time_ms: int) -> datetime:
    """A time as Spark gives it to Python: of this machine's zone, without saying so."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().replace(tzinfo=None)


def test_every_column_says_what_consumers_and_producers_know(spark: SparkSession, tmp_path: Path) -> None:
    with (
        fusee.sync.embedded(clock="manual", store=tmp_path / "store", topics={"orders": 1}) as server,
        server.connect() as mq,
    ):
        queue = MessageQueue("orders", BROKER, 0)
        plain = mq.send(Message.of("orders", b"plain", tag="t", keys=["a", "b"], flag=3), queue=queue)
        with mq.transaction("orders", b"paid", check=lambda *_: None, group="payers") as transaction:
            pass
        mq.send(Message.of("orders", b"delayed", delay_level=1))
        server.advance(2)
        send_plainly(server, "orders", b"timed", properties={TIMER_OUT_MS: "1700000000456"})
        consumer = mq.consumer("orders", group="shop", consume_from="first")
        with pytest.raises(ValueError, match="too hard"), consumer as messages:
            raise ValueError(f"too hard: {next(iter(messages))}")
        with mq.consumer("orders", group="shop"):
            server.advance(20)

        topics = f"orders,{RETRIES}"
        table = source(spark, server, subscribe=topics).load()
        rows = {(row.topic, row.queueOffset): row.asDict() for row in table.collect()}
        stored = spark.read.format("fusee").option("store", f"{BROKER}={server.store_path}").option("subscribe", topics)
        assert {(row.topic, row.queueOffset): row.asDict() for row in stored.load().collect()} == rows

        for topic in topics.split(","):
            for each in messages_in(server.name_server, topic).values():
                for message in each:
                    row = rows[topic, message.queue_offset]
                    found = {name: row[name] for name in in_columns(message)}
                    assert found | {"body": bytes(row["body"])} == in_columns(message)
        by_body = {bytes(row["body"]): row for (topic, _), row in rows.items() if topic == "orders"}
        assert set(by_body) == {b"plain", b"paid", b"delayed", b"timed"}
        (again,) = (row for (topic, _), row in rows.items() if topic == RETRIES)
        (half,) = (
            each for found in messages_in(server.name_server, "RMQ_SYS_TRANS_HALF_TOPIC").values() for each in found
        )

    first, paid, delayed, timed = (by_body[body] for body in (b"plain", b"paid", b"delayed", b"timed"))
    assert (first["flag"], first["keys"], first["tags"], first["msgId"]) == (3, "a b", "t", plain.message_id)
    assert (first["sysFlag"], first["reconsumeTimes"], first["transactionId"]) == (0, 0, None)
    assert (first["delayLevel"], first["deliverAt"]) == (None, None)
    assert (paid["sysFlag"], paid["transactionId"]) == (COMMITTED, transaction.transaction_id)
    assert paid["preparedTransactionOffset"] == half.log_offset
    assert (delayed["delayLevel"], delayed["properties"][DELAY]) == (1, "1")
    assert (timed["deliverAt"], timed["bornTimestamp"]) == (at(1_700_000_000_456), at(1_700_000_000_123))
    assert (timed["flag"], timed["properties"][TIMER_OUT_MS]) == (7, "1700000000456")
    assert (again["reconsumeTimes"], bytes(again["body"])) == (1, b"plain")
    assert again["msgId"] == plain.message_id


def test_column_that_is_not_asked_for_is_not_decoded(spark: SparkSession, server: EmbeddedServer) -> None:
    """A body that cannot be decompressed fails those who want it, and nobody else."""
    server.create_topics({"orders": 1})
    fill(server, "orders", range(3), queues=1)
    send_plainly(server, "orders", b"never compressed", sys_flag=COMPRESSED)
    asked = source(spark, server, subscribe="orders")
    assert asked.schema("queueOffset bigint, properties map<string,string>").load().count() == 4
    with pytest.raises(PySparkException, match="compress"):
        asked.schema("queueOffset bigint, body binary").load().collect()


def test_brokers_that_a_filter_leaves_out_are_not_asked(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    with second_broker(server, tmp_path / "second") as other, server.connect() as mq:
        mq.admin.create_topic("orders", queues=1)
        fill(server, "orders", range(4), queues=1)
        bodies = fill_second(server, "orders", range(4, 9))
        both = (server, other)
        asked = [Requests(each, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats).headers for each in both]
        read = [Requests(each, RequestCode.BULK_READ, BulkReadRequest).headers for each in both]
        table = source(spark, server, subscribe="orders").schema("brokerName string, body binary").load()
        assert texts(table.where(f"brokerName = '{SECOND}'").collect()) == bodies
        assert (list(map(len, asked)), list(map(len, read))) == ([0, 1], [0, 1])
        assert table.count() == 9
        assert (list(map(len, asked)), list(map(len, read))) == ([1, 2], [1, 2])
