"""Store directories read by Spark: the rows that the broker gives, of a store at work, of several, of a torn one."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import fusee.sync
from fusee.message.model import MessageQueue
from tests.pipeline.test_stream import drain, written
from tests.pipeline.topics_of_tests import BROKER, fill, source, texts
from tests.store.offline_stores import patch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader

    from fusee.sync import EmbeddedServer


def stored(spark: SparkSession, store: str, **options: object) -> DataFrameReader:
    """A batch read of directories."""
    made = spark.read.format("fusee").option("store", store)
    return made.options(**{name: str(value) for name, value in options.items()})


def everything(table: DataFrame) -> list[dict[str, Any]]:
    """All columns of all rows, in the order of their places."""
    rows = [row.asDict(recursive=True) for row in table.collect()]
    return sorted(rows, key=lambda row: (row["topic"], row["brokerName"], row["queueId"], row["queueOffset"]))


def test_a_store_at_work_has_the_rows_that_its_broker_gives(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "live"
    with fusee.sync.embedded(store=folder, topics={"orders": 4, "parts": 2}) as server:
        fill(server, "orders", range(60))
        fill(server, "parts", range(10), queues=2)
        with server.connect() as mq:
            mq.send("orders", b"x" * 20_000, queue=MessageQueue("orders", BROKER, 0))
        named = f"{BROKER}={folder}"
        asked = everything(source(spark, server, subscribe="orders,parts").load())
        assert len(asked) == 71
        assert everything(stored(spark, named, subscribe="orders,parts").load()) == asked
        assert everything(stored(spark, named, subscribe="orders,parts", minPartitions=3).load()) == asked

        some = stored(spark, named, subscribe="orders").schema("queueOffset bigint, tags string").load()
        assert some.where("tags = 'paid' and queueOffset >= 5").count() == 20
        assert texts(stored(spark, named, subscribe="parts", tags="paid").load().collect()) == [
            f"parts {number}" for number in range(0, 10, 2)
        ]

        fill(server, "parts", range(10, 14), queues=2)
        again = everything(source(spark, server, subscribe="orders,parts").load())
        assert everything(stored(spark, named, subscribe="orders,parts").load()) == again
        assert len(again) == len(asked) + 4


def test_stores_of_several_brokers_are_one_cluster(spark: SparkSession, tmp_path: Path) -> None:
    bodies: list[str] = []
    with ExitStack() as running:
        for name, numbers in (("a", range(10)), ("b", range(10, 25))):
            server = running.enter_context(
                fusee.sync.embedded(store=tmp_path / name, topics={"orders": 2}, auto_create_topic_enable=False)
            )
            bodies += fill(server, "orders", numbers, queues=2)
    table = stored(spark, f"broker-a={tmp_path / 'a'},broker-b={tmp_path / 'b'}", subscribe="orders").load()
    assert texts(table.collect()) == sorted(bodies)
    assert {row.brokerName: row["count"] for row in table.groupBy("brokerName").count().collect()} == {
        "broker-a": 10,
        "broker-b": 15,
    }
    assert table.where("brokerName = 'broker-b' and queueId = 1").count() == 7


def test_a_stream_over_a_store_goes_on_as_it_grows(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "live"
    with fusee.sync.embedded(store=folder, topics={"orders": 2}) as server:
        bodies = fill(server, "orders", range(12), queues=2)
        table = (
            spark.readStream.format("fusee")
            .option("store", f"{BROKER}={folder}")
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 8)
            .schema("body binary")
        )
        assert [each["numInputRows"] for each in drain(table.load(), tmp_path)] == [8, 4]
        bodies += fill(server, "orders", range(12, 17), queues=2)
        assert [each["numInputRows"] for each in drain(table.load(), tmp_path)] == [5]
        assert written(spark, tmp_path) == sorted(bodies)


def last_place(server: EmbeddedServer) -> int:
    """Where the last message of the topic begins in the log."""
    with server.connect() as mq:
        return max(message.log_offset for message in mq.admin.browse("orders"))


def test_a_torn_tail_is_left_out_and_damage_is_told(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    with fusee.sync.embedded(store=folder, topics={"orders": 1}) as server:
        bodies = fill(server, "orders", range(20), queues=1)
        place = last_place(server)
    torn = tmp_path / "torn"
    shutil.copytree(folder, torn)
    segment = torn / "commitlog" / f"{0:020d}"
    patch(segment, place + 60, bytes(2_000))
    rows = stored(spark, f"{BROKER}={torn}", subscribe="orders").load().collect()
    assert texts(rows) == sorted(bodies[:-1])
    assert texts(stored(spark, f"{BROKER}={folder}", subscribe="orders").load().collect()) == sorted(bodies)

    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    content = (damaged / "commitlog" / f"{0:020d}").read_bytes()
    patch(damaged / "commitlog" / f"{0:020d}", content.index(b"orders 7"), b"0rders 7")
    with pytest.raises(PySparkException, match="is damaged"):
        stored(spark, f"{BROKER}={damaged}", subscribe="orders").load().collect()
