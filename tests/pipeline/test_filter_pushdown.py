"""Each scan of a table reads what its own query asks for, though filters are pushed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fusee.message.model import MessageQueue
from fusee.pipeline.filter_pushdown import SETTING, push_filters
from tests.pipeline.topics_of_tests import BROKER, Delivered, fill, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer


def test_filter_of_one_scan_does_not_narrow_another_of_the_same_table(
    spark: SparkSession, server: EmbeddedServer
) -> None:
    server.create_topics({"orders": 4})
    fill(server, "orders", range(40))
    delivered = Delivered(server)
    table = source(spark, server, subscribe="orders", group="table").schema("queueId int, queueOffset bigint").load()
    first, second = table.where("queueId = 0"), table.where("queueId = 1")
    assert first.count() == 10
    assert delivered.to("table") == {("orders", 0): 10}
    assert table.count() == 40
    assert table.where("queueId = 2 or queueId = 3").count() == 20
    counts = first.union(second).groupBy("queueId").count().collect()
    assert {row["queueId"]: row["count"] for row in counts} == {0: 10, 1: 10}
    joined = first.alias("a").join(table.alias("b"), "queueOffset")
    assert joined.count() == 40


def test_queries_of_one_view_each_read_what_they_ask_for(spark: SparkSession, server: EmbeddedServer) -> None:
    server.create_topics({"orders": 4})
    fill(server, "orders", range(40))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders USING rocketmq "
        f"OPTIONS (nameServer '{server.name_server}', topic 'orders')"
    )

    def counted(query: str) -> tuple[int, ...]:
        (row,) = spark.sql(query).collect()
        return tuple(row)

    assert counted("select count(*) from orders where queueId = 0 and tags = 'paid'") == (10,)
    assert counted("select count(*) from orders") == (40,)
    part = "(select count(*) from orders where queueId = {})"
    assert counted(f"select {part.format(1)}, {part.format('2 or queueId = 3')}, count(*) from orders") == (10, 20, 40)
    with server.connect() as mq:
        mq.send("orders", b"one more", queue=MessageQueue("orders", BROKER, 0))
    assert counted("select count(*) from orders") == (41,)


def test_session_is_prepared_once_and_its_own_word_counts(spark: SparkSession) -> None:
    inside = cast("Any", spark)._jsparkSession
    before = inside.extensions().buildOptimizerRules(inside).size()
    assert push_filters(spark)
    assert inside.extensions().buildOptimizerRules(inside).size() == before == 1
    other = spark.newSession()
    other.conf.set(SETTING, "false")
    assert push_filters(other)
    assert other.conf.get(SETTING) == "false"
    assert spark.conf.get(SETTING) == "true"


def test_session_elsewhere_pushes_nothing() -> None:
    class OfConnect:
        """A session of Spark Connect, which has no Java here."""

    assert not push_filters(cast("SparkSession", OfConnect()))
