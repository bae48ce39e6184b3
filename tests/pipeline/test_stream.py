"""Streams on Spark from a broker: offsets, limits, restarts, groups, and queues that come and go."""

from __future__ import annotations

import json
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

import fusee.sync
from fusee.message.model import MessageQueue
from fusee.pipeline.lag import LagListener, offsets_behind
from tests.pipeline.topics_of_tests import BROKER, SMALL_LOG, expire, fill, source, stream, texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from fusee.sync import EmbeddedServer


def drain(table: DataFrame, folder: Path, *, name: str = "out") -> list[dict[str, Any]]:
    """Run a stream into Parquet until it has read what was there when it began; the progress of its batches."""
    query = (
        table.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / f"{name}.checkpoint"))
        .option("path", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [json.loads(each.json) for each in query.recentProgress if each.numInputRows]


def written(spark: SparkSession, folder: Path, name: str = "out") -> list[str]:
    return texts(spark.read.schema("body binary").parquet(str(folder / name)).collect())


def test_stream_goes_on_where_it_was_and_tells_a_group(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"orders": 4})
    bodies = fill(server, "orders", range(20))
    table = stream(
        spark, server, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=8, group="reports"
    ).schema("body binary")
    progress = drain(table.load(), tmp_path)
    assert [each["numInputRows"] for each in progress] == [8, 8, 4]
    assert written(spark, tmp_path) == sorted(bodies)
    end = json.loads(json.dumps(progress[-1]["sources"][0]["endOffset"]))
    assert end["to"]["orders"][BROKER] == {str(queue_id): 5 for queue_id in range(4)}
    assert offsets_behind(progress[0]) == {"orders": 12}
    with server.connect() as mq:
        lag = mq.admin.lag("reports", "orders", owners=False)
        assert lag.total == 0
        assert [(group, mark.engine) for group, mark in mq.admin.stream_groups().items()] == [("reports", "spark")]
        bodies += fill(server, "orders", range(20, 27))
        assert mq.admin.lag("reports", "orders", owners=False).total == 7
    progress = drain(table.load(), tmp_path)
    assert [each["numInputRows"] for each in progress] == [7]
    assert written(spark, tmp_path) == sorted(bodies)
    assert drain(table.load(), tmp_path) == []


def test_new_topics_and_queues_are_read_from_their_first_message(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"shop-a": 1})
    bodies = fill(server, "shop-a", range(3), queues=1)
    query = (
        stream(
            spark,
            server,
            subscribePattern="shop-.*",
            startingOffsets="earliest",
            partition__metadata__cache__ttl__ms=100,
        )
        .schema("body binary")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "out"))
        .start()
    )
    try:
        query.processAllAvailable()
        server.create_topics({"shop-b": 2, "shop-a": 3})
        bodies += fill(server, "shop-b", range(4), queues=2)
        bodies += fill(server, "shop-a", range(3, 9), queues=3)
        while len(written(spark, tmp_path)) < len(bodies):
            query.processAllAvailable()
        server.stop_broker()
        server.start_broker()
        bodies += fill(server, "shop-b", range(4, 8), queues=2)
        while len(written(spark, tmp_path)) < len(bodies):
            query.processAllAvailable()
    finally:
        query.stop()
    assert written(spark, tmp_path) == sorted(bodies)


def test_expired_offsets_fail_or_are_skipped(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    server.create_topics({"orders": 1})
    fill(server, "orders", range(5), queues=1)
    table = stream(spark, server, subscribe="orders", startingOffsets="earliest").schema("body binary")
    drain(table.load(), tmp_path)
    with server.connect() as mq:
        mq.admin.delete_topic("orders")
    server.create_topics({"orders": 1})
    fill(server, "orders", range(2), queues=1)
    with pytest.raises(StreamingQueryException, match="ends at 2 now, and 5 was to be read next"):
        drain(table.load(), tmp_path)
    assert drain(table.option("failOnDataLoss", "false").load(), tmp_path) == []
    fill(server, "orders", [7], queues=1)
    drain(table.option("failOnDataLoss", "false").load(), tmp_path)
    assert written(spark, tmp_path) == sorted([*(f"orders {number}" for number in range(5)), "orders 7"])


def test_messages_that_expired_fail_a_query_or_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with fusee.sync.embedded(store=store, topics={"orders": 1}, **SMALL_LOG) as server:
        queue = MessageQueue("orders", BROKER, 0)
        table = stream(spark, server, subscribe="orders", startingOffsets="earliest").schema("body binary")
        read = fill(server, "orders", range(3), queues=1)
        drain(table.load(), tmp_path)
        sent = fill(server, "orders", range(3, 300), queues=1)
        first = expire(server, store, queue)
        assert first > 3
        with pytest.raises(StreamingQueryException, match=f"begins at {first} now, and 3 was to be read next"):
            drain(table.load(), tmp_path)
        drain(table.option("failOnDataLoss", "false").load(), tmp_path)
        assert written(spark, tmp_path) == sorted([*read, *sent[first - 3 :]])

        begin = json.dumps({"orders": {BROKER: {"0": 1}}})
        batch = source(spark, server, subscribe="orders", startingOffsets=begin).schema("body binary")
        with pytest.raises(PySparkException, match="startingOffsets says 1"):
            batch.load().collect()
        assert texts(batch.option("failOnDataLoss", "false").load().collect()) == sorted(sent[first - 3 :])


def test_lag_is_told_after_each_batch_of_a_query(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    server.create_topics({"orders": 2, "parts": 1})
    fill(server, "orders", range(20), queues=2)
    fill(server, "parts", range(4), queues=1)
    told: Queue[tuple[str, dict[str, int]]] = Queue()
    listener = LagListener(lambda query, behind: told.put((query, behind)))
    spark.streams.addListener(listener)
    try:
        table = stream(
            spark, server, subscribe="orders,parts", startingOffsets="earliest", maxOffsetsPerTrigger=12
        ).schema("body binary")
        query = (
            table.load()
            .writeStream.format("noop")
            .queryName("nightly")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        first, second = told.get(timeout=60), told.get(timeout=60)
    finally:
        spark.streams.removeListener(listener)
    assert first == ("nightly", {"orders": 10, "parts": 2})
    assert second == ("nightly", {"orders": 0, "parts": 0})


def test_latest_begins_after_what_is_there_and_keeps_it_through_failed_batches(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    """Batch 0 fails, and so does the first with messages; what is sent while the query is down is not lost."""
    server.create_topics({"orders": 2})
    fill(server, "orders", range(10), queues=2)
    seen: list[str] = []
    failures = {0: "the sink is not ready", 1: "the disk of the sink is full"}

    def take(batch: DataFrame, number: int) -> None:
        if number in failures:
            raise RuntimeError(failures.pop(number))
        seen.extend(texts(batch.collect()))

    def start() -> StreamingQuery:
        return (
            stream(spark, server, subscribe="orders")
            .schema("body binary")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )

    with pytest.raises(StreamingQueryException, match="the sink is not ready"):
        start().awaitTermination()
    sent = fill(server, "orders", range(10, 16), queues=2)
    with pytest.raises(StreamingQueryException, match="the disk of the sink is full"):
        start().awaitTermination()
    sent += fill(server, "orders", range(16, 20), queues=2)
    query = start()
    query.processAllAvailable()
    query.stop()
    assert sorted(seen) == sorted(sent)


def test_limits_by_bytes_and_waiting_for_enough(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    server.create_topics({"orders": 2})
    fill(server, "orders", range(60), queues=2)
    with server.connect() as mq:
        size = mq.admin.message_at(MessageQueue("orders", BROKER, 0), 5).store_size
    table = stream(spark, server, subscribe="orders", startingOffsets="earliest", maxBytesPerTrigger=size * 20)
    counts = [each["numInputRows"] for each in drain(table.schema("body binary").load(), tmp_path, name="bytes")]
    assert sum(counts) == 60
    assert 3 <= len(counts) <= 4

    seen: list[int] = []
    query = (
        stream(
            spark,
            server,
            subscribe="orders",
            startingOffsets="earliest",
            minOffsetsPerTrigger=70,
            maxTriggerDelay="10m",
        )
        .schema("body binary")
        .load()
        .writeStream.foreachBatch(lambda batch, number: seen.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        assert seen == [60]
        fill(server, "orders", range(5), queues=2)
        query.processAllAvailable()
        assert seen == [60]
        fill(server, "orders", range(70), queues=2)
        while len(seen) < 2:
            query.processAllAvailable()
        assert seen == [60, 75]
    finally:
        query.stop()
