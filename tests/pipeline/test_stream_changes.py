"""Streams on real Spark while brokers appear and topics vanish, and their lag wherever lags are shown."""

from __future__ import annotations

import asyncio
from queue import Queue
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from fusee.metrics.exposition import Looking
from fusee.metrics.sources import BrokerSource
from fusee.sync.portal import portal
from tests.console.world import browsing
from tests.pipeline.more_brokers import fill_second, second_broker
from tests.pipeline.test_stream import drain
from tests.pipeline.topics_of_tests import fill, stream, texts

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from fusee.sync import EmbeddedServer


def begin(
    spark: SparkSession, server: EmbeddedServer, checkpoint: Path, seen: Queue[str], **options: object
) -> StreamingQuery:
    """A query that tells each body; it soon knows of new topics."""
    options = {"startingOffsets": "earliest", "partition__metadata__cache__ttl__ms": 50, **options}
    table = stream(spark, server, **options).schema("body binary").load()

    def take(batch: DataFrame, number: int) -> None:
        for text in texts(batch.collect()):
            seen.put(text)

    return table.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint)).start()


def told(seen: Queue[str], count: int) -> list[str]:
    """The next so many, sorted."""
    return sorted(seen.get(timeout=60) for _ in range(count))


def test_broker_that_appears_during_a_query_is_read_from_its_first_message(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    seen: Queue[str] = Queue()
    server.create_topics({"orders": 1})
    sent = fill(server, "orders", range(3), queues=1)
    query = begin(spark, server, tmp_path / "checkpoint", seen, subscribe="orders")
    try:
        assert told(seen, 3) == sent
        with second_broker(server, tmp_path / "second"), server.connect() as mq:
            mq.admin.create_topic("orders", queues=1)
            there = fill_second(server, "orders", range(3, 7))
            assert told(seen, 4) == there
            here = fill(server, "orders", range(7, 9), queues=1)
            assert told(seen, 2) == here
        # and is not missed when it has gone
        here = fill(server, "orders", [9], queues=1)
        assert told(seen, 1) == here
    finally:
        query.stop()
    assert seen.empty()


def test_topic_that_is_deleted_and_made_anew_during_a_query_fails_it_or_is_read_on(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    seen: Queue[str] = Queue()
    strict: Queue[str] = Queue()
    server.create_topics({"orders": 1, "parts": 1})
    sent = fill(server, "orders", range(5), queues=1)
    queries = [
        begin(spark, server, tmp_path / "lax", seen, subscribe="orders,parts", failOnDataLoss=False),
        begin(spark, server, tmp_path / "strict", strict, subscribe="orders,parts"),
    ]
    try:
        assert told(seen, 5) == told(strict, 5) == sent
        with server.connect() as mq:
            mq.admin.delete_topic("orders")
        parts = fill(server, "parts", range(2), queues=1)
        assert told(seen, 2) == told(strict, 2) == parts
        server.create_topics({"orders": 1})
        with pytest.raises(StreamingQueryException, match="ends at 0 now, and 5 was to be read next"):
            queries[1].awaitTermination(60)
        last = fill(server, "orders", [7], queues=1)
        fill(server, "parts", [2], queues=1)
        while (text := seen.get(timeout=60)) != "parts 2":
            assert text in last
    finally:
        for query in queries:
            query.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_topic_that_is_deleted_before_its_batch_is_read_fails_a_query_or_is_left_out(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path, fails: bool
) -> None:
    seen: list[str] = []
    server.create_topics({"orders": 1, "parts": 1})
    fill(server, "orders", range(5), queues=1)
    parts = fill(server, "parts", range(3), queues=1)

    def take(batch: DataFrame, number: int) -> None:
        with server.connect() as mq:
            mq.admin.delete_topic("orders")
        seen.extend(texts(batch.collect()))

    few = {"fetchOffset__numRetries": 1, "fetchOffset__retryIntervalMs": 1}
    table = stream(
        spark, server, subscribe="orders,parts", startingOffsets="earliest", failOnDataLoss=fails, **few
    ).schema("body binary")
    writer = table.load().writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    if fails:
        with pytest.raises(StreamingQueryException, match="offsets 0 to 4 of topic 'orders'.* are not there"):
            query.awaitTermination(60)
        assert seen == []
    else:
        query.awaitTermination(60)
        assert seen == parts


def test_lag_of_a_stream_shows_in_commands_console_and_metrics(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    server.create_topics({"orders": 2})
    fill(server, "orders", range(20), queues=2)
    drain(stream(spark, server, subscribe="orders", startingOffsets="earliest", group="reports").load(), tmp_path)
    fill(server, "orders", range(7), queues=2)

    with server.connect() as mq:
        assert mq.admin.lag("reports", "orders", owners=False).total == 7
    with browsing(server.name_server) as browser:
        while browser.console.context.history.figures is None:
            browser.get("/ready")
        (line,) = browser.api("/pipelines")["groups"]["value"]
        assert (line["group"], line["engine"], line["topics"], line["lag"]["value"]) == (
            "reports",
            "spark",
            ["orders"],
            7,
        )
        assert browser.api("/groups/reports")["lag"] == 7
    figures, _ = Looking(portal().run(asyncio.get_running_loop), [BrokerSource(server._target.broker)]).metrics()
    (lag,) = (
        line.rpartition(" ")[2]
        for line in figures.decode().splitlines()
        if line.startswith("rocketmq_consumer_lag_messages{") and 'consumer_group="reports"' in line
    )
    assert float(lag) == 7
