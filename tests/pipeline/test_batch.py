"""Batch reads on Spark from a broker: rows, columns, options, and what the broker was asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

from fusee.message.model import MessageQueue
from tests.pipeline.topics_of_tests import BROKER, Delivered, fill, source, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer


def test_every_row_comes_once_with_every_column(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 4})
    bodies = fill(server, "orders", range(40))
    table = source(spark, server, subscribe="orders").load()
    rows = table.collect()
    assert texts(rows) == sorted(bodies)
    row = next(row for row in rows if row.keys == "k5")
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == ("orders", BROKER, 1, 1)
    assert (row.tags, row.properties["number"], bytes(row.body)) == ("open", "5", b"orders 5")
    assert row.bornTimestamp <= row.storeTimestamp
    assert row.storeHost == server.broker_address
    assert row.msgId == row.properties["UNIQ_KEY"]
    assert (row.reconsumeTimes, row.delayLevel, row.deliverAt, row.transactionId) == (0, None, None, None)
    assert len({(row.queueId, row.queueOffset) for row in rows}) == len({row.logOffset for row in rows}) == 40

    few = source(spark, server, subscribe="orders").schema("queueOffset bigint, tags string").load()
    assert few.columns == ["queueOffset", "tags"]
    assert few.where("tags = 'paid'").count() == 20


def test_places_by_offset_and_time(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 2, "parts": 1, "other": 1})
    fill(server, "orders", range(20), queues=2)
    fill(server, "parts", range(5), queues=1)
    fill(server, "other", range(5), queues=1)

    def bodies(**options: object) -> list[str]:
        return texts(source(spark, server, **options).schema("body binary").load().collect())

    starts = json.dumps({"orders": {BROKER: {"0": 7, "1": -2}}})
    ends = json.dumps({"orders": {"0": 9, "1": 1}})
    assert bodies(subscribe="orders", startingOffsets=starts, endingOffsets=ends) == [
        "orders 1",
        "orders 14",
        "orders 16",
    ]
    assert len(bodies(subscribePattern="o.*")) == 25
    assert bodies(assign=json.dumps({"orders": [1], "parts": {BROKER: [0]}}), endingOffsets='{"orders": {"1": 1}}') == [
        "orders 1",
        *(f"parts {number}" for number in range(5)),
    ]
    with server.connect() as mq:
        found = mq.admin.message_at(MessageQueue("orders", BROKER, 0), 5)
    late = found.store_timestamp_ms + 1
    by_queue = json.dumps({"orders": {BROKER: {"0": found.store_timestamp_ms}}})
    timed = bodies(subscribe="orders", startingOffsetsByTimestamp=by_queue)
    assert "orders 10" in timed
    assert set(timed) >= {f"orders {number}" for number in range(1, 20, 2)}
    assert bodies(subscribe="orders", endingTimestamp=1) == []
    assert len(bodies(subscribe="orders", endingTimestamp=late + 3_600_000)) == 20
    with pytest.raises(PySparkException, match="has no message stored at .* or later"):
        bodies(subscribe="orders", startingTimestamp=late + 3_600_000)
    assert (
        bodies(subscribe="orders", startingTimestamp=late + 3_600_000, startingOffsetsByTimestampStrategy="latest")
        == []
    )
    with pytest.raises(PySparkException, match="startingOffsets says 99"):
        bodies(subscribe="orders", startingOffsets='{"orders": {"0": 99}}')
    assert len(bodies(subscribe="orders", startingOffsets='{"orders": {"0": 99}}', failOnDataLoss=False)) == 10
    with pytest.raises(PySparkException, match="names queue 7 of 'orders', which is not read"):
        bodies(subscribe="orders", startingOffsets='{"orders": {"7": 0}}')


def test_the_broker_delivers_only_what_filters_let_through(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 4, "parts": 4})
    fill(server, "orders", range(40))
    fill(server, "parts", range(8))
    delivered = Delivered(server)

    def read(group: str, where: str, **options: object) -> int:
        table = source(spark, server, subscribe="orders,parts", group=group, **options).schema(
            "topic string, queueId int, queueOffset bigint, tags string, storeTimestamp timestamp"
        )
        return table.load().where(where).count()

    assert read("all", "true") == 48
    assert sum(delivered.to("all").values()) == 48
    assert read("topic", "topic = 'parts' and queueId in (1, 2)") == 4
    assert delivered.to("topic") == {("parts", 1): 2, ("parts", 2): 2}
    assert read("place", "queueOffset >= 8 and queueOffset < 9") == 4
    assert delivered.to("place") == {("orders", queue_id): 1 for queue_id in range(4)}
    assert read("tags", "tags = 'paid' and topic = 'orders'") == 20
    assert delivered.to("tags") == {("orders", 0): 10, ("orders", 2): 10}
    assert read("time", "storeTimestamp < '2020-01-01'") == 0
    assert delivered.to("time") == {}
    assert read("option", "true", tags="open") == 24
    assert sum(delivered.to("option").values()) == 24


def test_sql_filter_is_evaluated_by_the_broker(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 1})
    fill(server, "orders", range(30), queues=1)
    delivered = Delivered(server)
    table = source(spark, server, subscribe="orders", group="sql", sql="number > 20 AND TAGS = 'paid'").load()
    assert texts(table.collect()) == ["orders 22", "orders 24", "orders 26", "orders 28"]
    assert delivered.to("sql") == {("orders", 0): 4}


def test_rows_in_the_form_of_kafka(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 1})
    fill(server, "orders", range(3), queues=1)
    table = source(spark, server, subscribe="orders", kafkaCompatible=True, includeHeaders=True).load()
    assert table.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    row = table.where("offset = 1").collect()[0]
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition) == (b"k1", b"orders 1", "orders", 0)
    assert ("number", b"1") in [(header.key, bytes(header.value)) for header in row.headers]
    assert "headers" not in source(spark, server, subscribe="orders", kafkaCompatible=True).load().columns
    assert "properties" not in source(spark, server, subscribe="orders", includeProperties=False).load().columns


def test_tasks_follow_the_options(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 4})
    fill(server, "orders", range(40))

    def tasks(**options: object) -> int:
        return source(spark, server, subscribe="orders", **options).schema("queueId int").load().rdd.getNumPartitions()

    assert tasks() == 1
    assert tasks(minPartitions=3) == 3
    assert tasks(maxRecordsPerPartition=5) == 8


def test_sql_view_and_alias(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 2})
    fill(server, "orders", range(10), queues=2)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING rocketmq OPTIONS (nameServer '{server.name_server}', "
        "topic 'orders')"
    )
    found = spark.sql("SELECT tags, count(*) AS n FROM orders GROUP BY tags ORDER BY tags").collect()
    assert [(row.tags, row.n) for row in found] == [("open", 5), ("paid", 5)]


def test_mistakes_are_named(spark: SparkSession, server: EmbeddedServer) -> None:
    with pytest.raises(PySparkException, match="unknown option 'subscribes'; valid for a batch are"):
        source(spark, server, subscribes="orders").load().collect()
    with pytest.raises(PySparkException, match="topic 'nowhere' does not exist"):
        source(spark, server, subscribe="nowhere").load().collect()
    with pytest.raises((AnalysisException, PySparkException), match="there is no column 'bodi'"):
        source(spark, server, subscribe="orders").schema("bodi string").load().collect()
    with pytest.raises((AnalysisException, PySparkException), match="is of type binary, not string"):
        source(spark, server, subscribe="orders").schema("body string").load().collect()


def test_reading_works_where_filters_are_not_pushed(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 1})
    fill(server, "orders", range(4), queues=1)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert source(spark, server, subscribe="orders").load().where("queueOffset > 1").count() == 2
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
