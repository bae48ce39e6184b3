"""SQL over topics that are live, archived, or both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError
from fusee.pipeline.jobs.archive import archive
from fusee.pipeline.jobs.queries import named_in, query
from fusee.pipeline.jobs.tables import Place, sql_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer


def test_query_over_live_topics(spark: SparkSession, server: EmbeddedServer) -> None:
    with server.connect() as mq:
        for number in range(9):
            mq.send("orders", b"o", tag=["paid", "open", "paid"][number % 3])
        mq.send("pay-ments", b"p", tag="paid")
    place = Place({"nameServer": server.name_server})
    rows = query(spark, "select tags, count(*) n from orders group by tags order by tags", place=place).collect()
    assert [tuple(row) for row in rows] == [("open", 3), ("paid", 6)]
    joined = query(
        spark, "select count(*) from orders join `pay-ments` p on orders.tags = p.tags", place=place
    ).collect()
    assert joined[0][0] == 6


def test_query_over_archive_and_live_has_no_message_twice(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    with server.connect() as mq:
        for number in range(8):
            mq.send("orders", b"%d" % number)
        archive(spark, to=str(tmp_path / "a"), topics=["orders"], source={"nameServer": server.name_server})
        for number in range(8, 12):
            mq.send("orders", b"%d" % number)
    statement = "select cast(cast(body as string) as int) n from orders order by n"
    source = {"nameServer": server.name_server}
    both = query(spark, statement, place=Place(source, str(tmp_path / "a"))).collect()
    assert [row.n for row in both] == list(range(12))
    archived = query(spark, statement, place=Place({}, str(tmp_path / "a"))).collect()
    assert [row.n for row in archived] == list(range(8))


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("select * from oders", r"Tables are topics, and there are: .*orders"),
        ("select nothing from orders", "cannot be run"),
        ("selekt 1", "cannot be understood"),
    ],
)
def test_query_that_cannot_be_run_says_what_there_is(
    spark: SparkSession, server: EmbeddedServer, statement: str, said: str
) -> None:
    with server.connect() as mq:
        mq.send("orders", b"x")
    with pytest.raises(ConfigError, match=said):
        query(spark, statement, place=Place({"nameServer": server.name_server})).collect()


def test_named_in_takes_whole_names_only() -> None:
    topics = ["orders", "orders-again", "order", "%DLQ%billing"]
    assert named_in("select * from ORDERS where x", topics) == ["orders"]
    assert named_in("select * from `orders-again`", topics) == ["orders-again"]
    assert named_in("select * from `%DLQ%billing`", topics) == ["%DLQ%billing"]


def test_sql_text_is_a_literal(spark: SparkSession) -> None:
    text = 'it\'s a \\ "test"'
    found = spark.sql(f"select {sql_text(text)}").first()
    assert found is not None
    assert found[0] == text


def test_place_without_anything_says_so() -> None:
    with pytest.raises(ConfigError, match="where are the messages"):
        Place()
