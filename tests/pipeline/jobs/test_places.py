"""Where jobs read: topics, archives and stores together, also when one of them no longer has what another has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import fusee.sync
from fusee.errors import FuseeError
from fusee.pipeline.jobs.archive import archive, read_archive
from fusee.pipeline.jobs.queries import query
from fusee.pipeline.jobs.replay import replay
from fusee.pipeline.jobs.stats import stats
from fusee.pipeline.jobs.tables import Place, read_place
from tests.cli.scene import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fusee.sync import EmbeddedServer

BROKER = "embedded"


def send(server: EmbeddedServer, topic: str, numbers: range) -> None:
    """Returns when the queues have them: a store directory shows what was dispatched."""
    with server.connect() as mq:
        queues = {result.queue: result.queue_offset for result in (mq.send(topic, b"%d" % one) for one in numbers)}
        wait_for(lambda: all(one.max_offset > queues.get(one.queue, -1) for one in mq.admin.topic_stats(topic).queues))


def bodies(rows: DataFrame) -> list[int]:
    return sorted(int(bytes(row.body)) for row in rows.select("body").collect())


def everything(rows: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, rows.select("topic", "brokerName", "queueId", "queueOffset", "body", "msgId").collect()))


def test_archive_of_a_store_directory_has_its_rows_and_adds_only_what_is_new(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, to = {"store": f"{BROKER}={tmp_path / 'store'}"}, str(tmp_path / "archive")
    with fusee.sync.embedded(store=tmp_path / "store", topics={"orders": 2}) as server:
        here = Place({"nameServer": server.name_server})
        send(server, "orders", range(20))
        assert archive(spark, to=to, topics=["orders"], source=store).facts["new rows"] == 20
        assert everything(read_archive(spark, to)) == everything(read_place(spark, here, ["orders"]))

        send(server, "orders", range(20, 27))
        both = read_place(spark, Place(store, to), ["orders"])
        assert bodies(both) == list(range(27))
        assert archive(spark, to=to, topics=["orders"], source=store).facts["new rows"] == 7
        assert everything(read_archive(spark, to)) == everything(read_place(spark, here, ["orders"]))


def test_jobs_read_a_store_directory_as_they_read_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    with fusee.sync.embedded(store=tmp_path / "store", topics={"orders": 2, "again": 2}) as server:
        send(server, "orders", range(12))
        store = Place({"store": f"{BROKER}={tmp_path / 'store'}"})
        found = query(spark, "select count(*) n, count(distinct queueId) q from orders", place=store).collect()
        assert [tuple(row) for row in found] == [(12, 2)]
        counted = stats(spark, place=store, topics=["orders"])
        assert counted.facts["messages"] == 12
        here = {"nameServer": server.name_server}
        sent = replay(spark, place=store, topics=["orders"], sink=here, to_topic="again", chunk_rows=5)
        assert sent.facts["sent"] == 12
        assert bodies(read_place(spark, Place(here), ["again"])) == list(range(12))


def test_archive_and_source_together_when_a_topic_was_deleted_has_what_is_archived(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    source, to = {"nameServer": server.name_server}, str(tmp_path / "archive")
    for topic in ("orders", "parts"):
        send(server, topic, range(8))
    archive(spark, to=to, topics=["orders", "parts"], source=source)
    send(server, "parts", range(8, 10))
    with server.connect() as mq:
        mq.admin.delete_topic("orders")
    place = Place(source, to)
    assert bodies(query(spark, "select body from orders", place=place)) == list(range(8))
    joined = "select body from orders union all select body from parts"
    assert bodies(query(spark, joined, place=place)) == sorted([*range(8), *range(10)])
    assert bodies(read_place(spark, place, ["orders", "parts"])) == sorted([*range(8), *range(10)])
    assert stats(spark, place=place, topics=["orders"]).facts["messages"] == 8
    looked = replay(spark, place=place, topics=["orders", "parts"], sink=source, to_topic="again", dry_run=True)
    assert looked.facts["would be sent"] == 18
    with pytest.raises(PySparkException, match="nowhere"):
        read_place(spark, place, ["orders", "nowhere"]).count()


def test_archive_and_source_together_when_a_broker_is_gone_has_its_rows_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    to = str(tmp_path / "archive")
    for name, numbers in (("first", range(5)), ("second", range(5, 12))):
        with fusee.sync.embedded(store=tmp_path / name, topics={"orders": 2}) as server:
            send(server, "orders", numbers)
            archive(spark, to=to, topics=["orders"], source={"store": str(tmp_path / name)})
            send(server, "orders", range(20, 22))
    # The archive has queues of both, and what is live is of one of them.
    place = Place({"store": str(tmp_path / "second")}, to)
    assert bodies(read_place(spark, place, ["orders"])) == [*range(12), 20, 21]
    looked = replay(spark, place=place, topics=["orders"], sink={}, to_topic="again", dry_run=True)
    assert looked.facts["would be sent"] == 14


def test_archive_of_another_topic_when_the_checkpoint_is_lost_leaves_the_first_as_it_is(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    source, to = {"nameServer": server.name_server}, tmp_path / "archive"
    for topic in ("orders", "parts"):
        send(server, topic, range(6))
    archive(spark, to=str(to), topics=["orders"], source=source)
    shutil.rmtree(to / "_checkpoint")
    assert archive(spark, to=str(to), topics=["parts"], source=source).facts["new rows"] == 6
    # The checkpoint now knows one topic, and the catalog both.
    send(server, "orders", range(6, 9))
    assert archive(spark, to=str(to), topics=["orders", "parts"], source=source).facts["new rows"] == 3
    assert bodies(read_archive(spark, str(to))) == sorted([*range(9), *range(6)])


def test_archive_of_a_topic_that_is_not_there_names_it(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    send(server, "orders", range(2))
    source, to = {"nameServer": server.name_server}, str(tmp_path / "archive")
    archive(spark, to=to, topics=["orders"], source=source)
    with pytest.raises(FuseeError, match="oders"):
        archive(spark, to=to, topics=["oders"], source=source)
