"""Options of reading in streams on real Spark, proved by rows, tasks and what the broker delivered."""

from __future__ import annotations

import json
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import fusee.sync
from tests.pipeline.topics_of_tests import BROKER, Delivered, fill, stream, texts

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from fusee.sync import EmbeddedServer


def drained(table: DataFrame, folder: Path) -> list[Row]:
    """The rows that are there, and which task read each."""
    found: list[Row] = []

    def take(batch: DataFrame, number: int) -> None:
        found.extend(batch.selectExpr("*", "spark_partition_id() as task").collect())

    writer = table.writeStream.foreachBatch(take).option("checkpointLocation", str(folder))
    writer.trigger(availableNow=True).start().awaitTermination(120)
    return found


def test_stream_reads_the_tags_from_the_offsets_in_tasks_of_the_size_that_it_is_told(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"orders": 2})
    fill(server, "orders", range(40), queues=2, tags=("paid", "open", "paid", "late"))
    delivered = Delivered(server)
    table = stream(
        spark,
        server,
        subscribe="orders",
        tags="paid || late",
        startingOffsets=json.dumps({"orders": {BROKER: {"0": 15, "1": -2}}}),
        maxRecordsPerPartition=10,
        includeProperties=False,
        group="tags",
    )
    rows = drained(table.load(), tmp_path / "checkpoint")
    assert texts(rows) == sorted(f"orders {number}" for number in (*range(30, 40, 2), *range(3, 40, 4)))
    assert delivered.to("tags") == {("orders", 0): 5, ("orders", 1): 10}
    assert "properties" not in rows[0].asDict()
    assert len({row.task for row in rows}) == 3


def test_stream_reads_one_queue_from_a_time_by_sql_in_the_form_of_kafka(spark: SparkSession, tmp_path: Path) -> None:
    with fusee.sync.embedded(clock="manual", topics={"orders": 2}) as server:
        fill(server, "orders", range(20), queues=2)
        server.advance(3600)
        late = int(server.now.timestamp() * 1000)
        fill(server, "orders", range(20, 40), queues=2)
        delivered = Delivered(server)
        options: dict[str, Any] = {"sql": "number > 32", "kafkaCompatible": True, "includeHeaders": True}
        assigned = stream(spark, server, assign='{"orders": [1]}', startingTimestamp=late, group="sql", **options)
        rows = drained(assigned.load(), tmp_path / "checkpoint")
        assert sorted(bytes(row.value) for row in rows) == [b"orders 33", b"orders 35", b"orders 37", b"orders 39"]
        assert {(row.topic, row.partition, row.timestamp.timestamp() * 1000) for row in rows} == {("orders", 1, late)}
        assert sorted(row.offset for row in rows) == [16, 17, 18, 19]
        assert ("number", b"33") in [(each.key, bytes(each.value)) for row in rows for each in row.headers]
        assert delivered.to("sql") == {("orders", 1): 4}

        by_queue = json.dumps({"orders": {"0": late, "1": late + 1}})
        timed = stream(spark, server, subscribe="orders", startingOffsetsByTimestamp=by_queue, tags="paid")
        with pytest.raises(StreamingQueryException, match=f"no message stored at {late + 1} ms or later"):
            drained(timed.load(), tmp_path / "failed")
        skipping = timed.option("startingOffsetsByTimestampStrategy", "latest")
        rows = drained(skipping.load(), tmp_path / "skipped")
        assert texts(rows) == sorted(f"orders {number}" for number in range(20, 40, 2))


def test_stream_that_waits_for_enough_messages_goes_on_with_fewer_after_the_longest_delay(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"orders": 1})
    sent = fill(server, "orders", range(3), queues=1)
    seen: Queue[list[str]] = Queue()
    table = stream(
        spark, server, subscribe="orders", startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="300ms"
    ).schema("body binary")
    query = (
        table.load()
        .writeStream.foreachBatch(lambda batch, number: seen.put(texts(batch.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        assert seen.get(timeout=60) == sent
        sent = fill(server, "orders", [3], queues=1)
        assert seen.get(timeout=60) == sent
    finally:
        query.stop()


def test_stream_is_told_that_an_assigned_queue_does_not_exist(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"orders": 2})
    table = stream(spark, server, assign='{"orders": [2]}').load()
    with pytest.raises(StreamingQueryException, match="names queue 2 of 'orders', which does not exist"):
        drained(table, tmp_path / "checkpoint")
