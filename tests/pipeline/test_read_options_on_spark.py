"""Options of reading on real Spark, proved by what the broker was asked and what it delivered."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import fusee.sync
from fusee.wire.codes import RequestCode
from fusee.wire.headers.admin import GetTopicStats
from fusee.wire.headers.bulk_read import BulkReadRequest
from fusee.wire.headers.pull import PullMessage
from tests.pipeline.requests_seen import Requests
from tests.pipeline.topics_of_tests import BROKER, Delivered, fill, source, texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer


def read(spark: SparkSession, server: EmbeddedServer, **options: object) -> list[str]:
    """The bodies of the topic orders, or of others that the options name."""
    asked = {"subscribe": "orders", **options} if "assign" not in options else options
    return texts(source(spark, server, **asked).schema("body binary").load().collect())


def orders(*numbers: int) -> list[str]:
    return sorted(f"orders {number}" for number in numbers)


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[tuple[EmbeddedServer, int, int]]:
    """Messages 0 to 7 in two queues, and 8 to 15 an hour later; the times of storing (ms) of both."""
    with fusee.sync.embedded(clock="manual", store=tmp_path / "store", topics={"orders": 2}) as server:
        fill(server, "orders", range(8), queues=2)
        early = int(server.now.timestamp() * 1000)
        server.advance(3600)
        fill(server, "orders", range(8, 16), queues=2)
        yield server, early, int(server.now.timestamp() * 1000)


def test_times_cut_between_what_was_stored_before_and_after(
    spark: SparkSession, apart: tuple[EmbeddedServer, int, int]
) -> None:
    server, early, late = apart
    first, second = orders(*range(8)), orders(*range(8, 16))
    assert read(spark, server, startingTimestamp=late) == second
    assert read(spark, server, startingTimestamp=early, endingTimestamp=late) == first
    assert read(spark, server, startingTimestamp=early + 1, endingTimestamp=late) == []

    later = json.dumps({"orders": {BROKER: {"0": late}}})
    sooner = json.dumps({"orders": {"1": late}})
    zero, one = range(0, 16, 2), range(1, 16, 2)
    assert read(spark, server, startingOffsetsByTimestamp=later, endingOffsetsByTimestamp=sooner) == orders(
        *zero[4:], *one[:4]
    )
    too_late = json.dumps({"orders": {"0": late + 1}})
    with pytest.raises(PySparkException, match=f"queue 0 of 'orders' on {BROKER} has no message stored at {late + 1}"):
        read(spark, server, startingOffsetsByTimestamp=too_late)
    skipped = {"startingOffsetsByTimestamp": too_late, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(spark, server, **skipped) == orders(*one)


def test_a_store_is_cut_by_times_like_its_broker(spark: SparkSession, apart: tuple[EmbeddedServer, int, int]) -> None:
    server, early, _ = apart
    stored = spark.read.format("fusee").option("store", str(server.store_path)).option("subscribe", "orders")
    timed = stored.option("startingTimestamp", early + 1).schema("body binary").load()
    assert texts(timed.collect()) == orders(*range(8, 16))


def test_broker_delivers_only_the_time_that_a_query_asks_for(
    spark: SparkSession, apart: tuple[EmbeddedServer, int, int]
) -> None:
    server, early, late = apart
    between = f"timestamp_millis({(early + late) // 2})"
    delivered = Delivered(server)
    for group, where, numbers in (
        ("after", f"storeTimestamp >= {between}", range(8, 16)),
        ("before", f"storeTimestamp < {between}", range(8)),
        ("at", f"storeTimestamp = timestamp_millis({late})", range(8, 16)),
    ):
        table = source(spark, server, subscribe="orders", group=group).schema("body binary, storeTimestamp timestamp")
        assert texts(table.load().where(where).collect()) == orders(*numbers)
        assert delivered.to(group) == {("orders", 0): 4, ("orders", 1): 4}, where


def test_offsets_of_queues_that_a_filter_leaves_out_may_be_named(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 4})
    fill(server, "orders", range(40))
    starts = json.dumps({"orders": {BROKER: {"0": 7, "1": 3}}})
    ends = json.dumps({"orders": {"0": 9, "3": 4}})
    table = source(spark, server, subscribe="orders", startingOffsets=starts, endingOffsets=ends).load()
    assert texts(table.where("queueId = 0").collect()) == orders(28, 32)


def test_assigned_queue_that_does_not_exist_is_told(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 2})
    with pytest.raises(PySparkException, match=f"queue 7 of 'orders', which does not exist; there are: {BROKER}/0"):
        read(spark, server, assign='{"orders": [0, 7]}')
    with pytest.raises(PySparkException, match="queue 0 of 'orders' on elsewhere, which does not exist"):
        read(spark, server, assign='{"orders": {"elsewhere": [0]}}')


def test_pulls_ask_for_as_many_messages_as_pull_batch_size_says(spark: SparkSession) -> None:
    with fusee.sync.embedded(topics={"orders": 1}, bulk_read_enable=False) as server:
        fill(server, "orders", range(40), queues=1)
        pulls = Requests(server, RequestCode.PULL_MESSAGE, PullMessage)
        assert read(spark, server) == orders(*range(40))
        assert max(pull.max_messages for pull in pulls.headers) == 32
        pulls.headers.clear()
        assert read(spark, server, pullBatchSize=7) == orders(*range(40))
        assert max(pull.max_messages for pull in pulls.headers) == 7
        assert len(pulls.headers) >= 6


def test_bytes_are_sent_when_local_reads_are_off(spark: SparkSession, tmp_path: Path) -> None:
    with fusee.sync.embedded(topics={"orders": 1}, store=tmp_path / "store") as server:
        fill(server, "orders", range(9), queues=1)
        asked = Requests(server, RequestCode.BULK_READ, BulkReadRequest)
        assert read(spark, server) == orders(*range(9))
        assert [each.local for each in asked.headers] == [True]
        asked.headers.clear()
        assert read(spark, server, localReads=False) == orders(*range(9))
        assert [each.local for each in asked.headers] == [False]


def test_failed_requests_are_tried_again_as_the_options_say(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 1})
    fill(server, "orders", range(3), queues=1)
    asked = Requests(server, RequestCode.BULK_READ, BulkReadRequest)
    asked.refused = 2
    few = {"fetchOffset.numRetries": 2, "fetchOffset.retryIntervalMs": 250}
    assert read(spark, server, **few) == orders(0, 1, 2)
    waits = [later - sooner for sooner, later in pairwise(asked.times)]
    assert len(waits) == 2
    assert waits[0] >= 0.25
    assert waits[1] >= 0.5
    asked.refused = 2
    with pytest.raises(PySparkException, match="refused by a test"):
        read(spark, server, **few | {"fetchOffset.numRetries": 1})
    assert len(asked.times) == 5


def test_answers_are_waited_for_as_long_as_the_options_say(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 1})
    fill(server, "orders", range(3), queues=1)
    once = {"fetchOffset.numRetries": 0}
    reads = Requests(server, RequestCode.BULK_READ, BulkReadRequest)
    reads.unanswered = 1
    with pytest.raises(PySparkException, match="did not answer within 300 ms"):
        read(spark, server, pullTimeoutMs=300, **once)
    questions = Requests(server, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats)
    questions.unanswered = 1
    with pytest.raises(PySparkException, match=r"request code 202 within 0\."):
        read(spark, server, requestTimeoutMs=400, **once)
    assert read(spark, server, requestTimeoutMs=400, pullTimeoutMs=300) == orders(0, 1, 2)
