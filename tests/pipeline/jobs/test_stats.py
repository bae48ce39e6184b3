"""Counts, sizes, skew and hot keys of topics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError
from fusee.message.model import MessageQueue
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.stats import stats
from fusee.pipeline.jobs.tables import Place
from fusee.sync import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer


def test_stats_counts_by_topic_tag_hour_and_key(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    with server.connect() as mq:
        mq.admin.create_topic("orders", read_queues=2, write_queues=2)
        for number in range(10):
            # Nine of ten into the first queue.
            queue = MessageQueue("orders", "embedded", 1 if number == 9 else 0)
            key = "hot" if number < 8 else f"k{number}"
            mq.send("orders", b"x" * (number + 1), tag="ab"[number % 2], keys=[key, "all"], queue=queue)
    report = tmp_path / "stats.html"
    outcome = stats(spark, place=Place({"nameServer": server.name_server}), topics=["orders"], report_path=report)
    topics, tags, hours, keys = outcome.tables
    name, messages, size, average, largest, queues, skew, _, _ = topics.rows[0]
    assert (name, messages, size, average, largest, queues, skew) == ("orders", 10, 55, 5.5, 10, 2, 1.8)
    assert sorted((row[1], row[2], row[3]) for row in tags.rows) == [("a", 5, 25), ("b", 5, 30)]
    assert sum(int(str(row[1])) for row in hours.rows) == 10
    assert keys.heads == ("topic", "key", "messages", "bytes", "share")
    assert keys.rows[:2] == (("orders", "all", 10, 55, "100.0%"), ("orders", "hot", 8, 36, "80.0%"))
    assert sorted(keys.rows[2:]) == [("orders", "k8", 1, 9, "10.0%"), ("orders", "k9", 1, 10, "10.0%")]
    assert sum(int(str(row[2])) for row in hours.rows) == 55
    html = report.read_text()
    assert "Messages by hour" in html
    assert "hot" in html


def test_stats_of_store_directories_counts_what_their_brokers_have(spark: SparkSession, tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 1)):
        with embedded(store=tmp_path / name, topics={"orders": 1}) as server, server.connect() as mq:
            for number in range(count):
                mq.send("orders", b"x" * (number + 1), tag="paid", key="hot")
    place = Place({"store": f"broker-a={tmp_path / 'a'},{tmp_path / 'b'}"})
    topics, tags, hours, keys = stats(spark, place=place, topics=["orders"]).tables
    assert topics.rows[0][:7] == ("orders", 4, 7, 1.8, 3, 2, 1.5)
    assert tags.rows == (("orders", "paid", 4, 7),)
    assert sum(int(str(row[1])) for row in hours.rows) == 4
    assert keys.rows == (("orders", "hot", 4, 7, "100.0%"),)


def test_stats_of_a_selection(spark: SparkSession, server: EmbeddedServer) -> None:
    with server.connect() as mq:
        for number in range(6):
            mq.send("orders", b"x", tag="ab"[number % 2], keys=[f"k{number % 3}", "z"], properties={"n": str(number)})
    place = Place({"nameServer": server.name_server})

    def counted(**chosen: object) -> object:
        return stats(spark, place=place, topics=["orders"], selection=Selection(**chosen)).facts["messages"]  # type: ignore[arg-type]

    now = datetime.now(UTC)
    assert counted(tags=("a",)) == 3
    assert counted(keys=("k0",)) == 2
    assert counted(where="properties['n'] >= '4'") == 2
    assert counted(since=now - timedelta(minutes=5)) == 6
    assert counted(until=now - timedelta(minutes=5)) == 0
    with pytest.raises(ConfigError, match="cannot be understood"):
        counted(where="no such column")


def test_selection_without_time_zone_or_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        Selection(since=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ConfigError, match="not before"):
        Selection(since=datetime(2026, 1, 2, tzinfo=UTC), until=datetime(2026, 1, 1, tzinfo=UTC))
