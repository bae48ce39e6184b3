"""Writing on real Spark to a real broker."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import fusee.sync
from fusee.client.selection import java_hash
from fusee.message.model import StoredMessage
from fusee.pipeline.session import batches_of, open_session
from tests.pipeline.written import bodies_in, messages_in

_numbers = itertools.count()


@pytest.fixture
def topic(server: fusee.sync.EmbeddedServer) -> str:
    name = f"written-{next(_numbers)}"
    server.create_topics({name: 4})
    return name


def save(frame: DataFrame, server: fusee.sync.EmbeddedServer, **options: Any) -> None:
    frame.write.format("fusee").mode("append").options(nameServer=server.name_server, **options).save()


def found_in(server: fusee.sync.EmbeddedServer, topic: str) -> list[StoredMessage]:
    return [message for each in messages_in(server.name_server, topic).values() for message in each]


def run(frame: DataFrame, server: fusee.sync.EmbeddedServer, folder: Path, **options: Any) -> StreamingQuery:
    """A query over everything that is there; ended when this returns."""
    writer = frame.writeStream.format("fusee").options(nameServer=server.name_server, **options)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    return query


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once", "auto"])
def test_every_column_reaches_the_message(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str, delivery: str
) -> None:
    rows = [
        Row(
            topic=topic,
            body=b"body-%d" % number,
            keys=f"k{number}",
            tags="even" if number % 2 == 0 else None,
            properties={"shop": "north", "TAGS": "?"},
            orderBy=f"o{number % 5}",
            delayLevel=18 if number == 7 else 0,
            flag=number,
        )
        for number in range(40)
    ]
    schema = (
        "topic string, body binary, keys string, tags string, properties map<string,string>, orderBy string, "
        "delayLevel int, flag int"
    )
    save(spark.createDataFrame(rows, schema).coalesce(2), server, delivery=delivery)
    found = {message.body: message for message in found_in(server, topic)}
    assert len(found) == 39
    for number in set(range(40)) - {7}:
        message = found[b"body-%d" % number]
        properties = dict(message.properties)
        key = properties.pop("IDEMPOTENCE_KEY", None)
        assert (key is not None) == (delivery == "at-least-once")
        wanted = {"KEYS": f"k{number}", "shop": "north", "__SHARDINGKEY": f"o{number % 5}"}
        assert properties == wanted | ({"TAGS": "even"} if number % 2 == 0 else {})
        assert message.flag == number
        assert message.queue_id == abs(java_hash(f"o{number % 5}")) % 4
    waiting = [each for each in found_in(server, "SCHEDULE_TOPIC_XXXX") if each.properties["REAL_TOPIC"] == topic]
    assert [message.body for message in waiting] == [b"body-7"]


def test_rows_go_to_the_topics_they_name(spark: SparkSession, server: fusee.sync.EmbeddedServer) -> None:
    frame = spark.range(30).selectExpr("concat('named-', id % 3) as topic", "cast(id as string) as value")
    save(frame, server, createTopics=True, createQueues=2)
    for number in range(3):
        assert bodies_in(server.name_server, f"named-{number}") == sorted(b"%d" % each for each in range(number, 30, 3))
        assert len(messages_in(server.name_server, f"named-{number}")) == 2


@pytest.mark.parametrize(("message_bytes", "rows"), [(1, 9_000), (1_000, 9_000), (4 << 20, 60)])
def test_rows_arrive_however_large_they_were_said_to_be(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str, message_bytes: int, rows: int
) -> None:
    told = batches_of(message_bytes)
    before = {name: spark.conf.get(name) for name in told}
    frame = spark.range(rows, numPartitions=2).selectExpr("cast(lpad(cast(id as string), 1000, '.') as binary) as body")
    try:
        open_session(message_bytes=message_bytes)  # the session at hand takes over what it says
        assert {name: spark.conf.get(name) for name in told} == told
        save(frame, server, topic=topic)
    finally:
        for name, value in before.items():
            assert value is not None
            spark.conf.set(name, value)
    assert bodies_in(server.name_server, topic) == sorted(str(row).rjust(1000, ".").encode() for row in range(rows))


def test_idempotence_keys_name_partition_and_row(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str
) -> None:
    save(spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as body"), server, topic=topic, batchBytes=300)
    keys = {message.properties["IDEMPOTENCE_KEY"]: int(message.body) for message in found_in(server, topic)}
    assert len(keys) == 100
    assert len({key.split("/")[0] for key in keys}) == 1
    assert {tuple(map(int, key.split("/")[1:])): body for key, body in keys.items()} == {
        (0, body // 50, body % 50): body for body in range(100)
    }


@pytest.mark.parametrize(
    ("options", "columns", "mode", "words"),
    [
        ({"topik": "x"}, "'a' as body", "append", "unknown option 'topik'"),
        ({"topic": "t"}, "'a' as body, 1 as queueId", "append", "column 'queueId' cannot be written"),
        ({"topic": "t"}, "'a' as body", "overwrite", "only appended to"),
        ({}, "'a' as body", "append", "which topic"),
        ({"topic": "never-made", "numRetries": "0"}, "'a' as body", "append", "createTopics"),
    ],
)
def test_error_reaches_the_user(
    spark: SparkSession,
    server: fusee.sync.EmbeddedServer,
    options: dict[str, str],
    columns: str,
    mode: str,
    words: str,
) -> None:
    writer = spark.range(1).selectExpr(*columns.split(", ")).write.format("fusee").mode(mode)
    with pytest.raises(PySparkException, match=words):
        writer.options(nameServer=server.name_server, **options).save()


def test_task_that_fails_leaves_nothing_behind_exactly_once(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str
) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "if(id = 99, raise_error('this row is bad'), cast(id as string)) as body"
    )
    with pytest.raises(PySparkException, match="this row is bad"):
        save(frame, server, topic=topic, delivery="exactly-once", batchBytes=200)
    assert found_in(server, topic) == []
    save(spark.range(3).selectExpr("cast(id as string) as body"), server, topic=topic, delivery="exactly-once")
    assert bodies_in(server.name_server, topic) == [b"0", b"1", b"2"]


def test_write_with_a_transaction_version_is_done_once(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str
) -> None:
    for version, first in ((0, 0), (0, 0), (1, 10), (0, 0), (1, 10)):
        frame = spark.range(first, first + 10).selectExpr("cast(id as string) as body")
        save(frame, server, topic=topic, txnAppId=f"job-{topic}", txnVersion=version)
    assert bodies_in(server.name_server, topic) == sorted(b"%d" % number for number in range(20))


def stream(spark: SparkSession, folder: Path, *, batches: int) -> DataFrame:
    """Files that come one batch after the other."""
    folder.mkdir(exist_ok=True)
    for number in range(batches):
        (folder / f"{number}.txt").write_text("".join(f"{number}-{row}\n" for row in range(50)))
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))


WANTED = sorted(f"{number}-{row}".encode() for number in range(3) for row in range(50))


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_stream_writes_each_batch_and_a_second_run_only_what_is_new(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str, tmp_path: Path, delivery: str
) -> None:
    query = run(stream(spark, tmp_path / "in", batches=2), server, tmp_path / "c", topic=topic, delivery=delivery)
    run(stream(spark, tmp_path / "in", batches=3), server, tmp_path / "c", topic=topic, delivery=delivery)
    assert bodies_in(server.name_server, topic) == WANTED
    keys = [message.properties.get("IDEMPOTENCE_KEY") for message in found_in(server, topic)]
    if delivery == "at-least-once":
        assert len(set(keys)) == 150
        assert {str(key).rsplit("/", 2)[0] for key in keys} == {f"{query.id}/{batch}" for batch in range(3)}
    else:
        assert set(keys) == {None}


def test_batch_that_spark_forgot_is_not_written_again_exactly_once(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str, tmp_path: Path
) -> None:
    """As after a crash between the commit of the sink and Spark's own note of it."""
    given = {"topic": topic, "delivery": "exactly-once"}
    run(stream(spark, tmp_path / "in", batches=3), server, tmp_path / "c", **given)
    (tmp_path / "c" / "commits" / "2").unlink()
    (tmp_path / "c" / "commits" / ".2.crc").unlink(missing_ok=True)
    run(stream(spark, tmp_path / "in", batches=3), server, tmp_path / "c", **given)
    assert bodies_in(server.name_server, topic) == WANTED


def test_foreach_batch_with_a_transaction_is_exactly_once(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str, tmp_path: Path
) -> None:
    def write(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            save(frame.selectExpr("value as body"), server, topic=topic, txnAppId="each", txnVersion=batch_id)

    writer = stream(spark, tmp_path / "in", batches=3).writeStream.foreachBatch(write)
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination(120)
    assert bodies_in(server.name_server, topic) == WANTED


def test_alias_and_columns_of_the_kafka_sink(
    spark: SparkSession, server: fusee.sync.EmbeddedServer, topic: str
) -> None:
    frame = spark.sql("select 'k' as key, 'v' as value")
    frame.write.format("rocketmq").mode("append").options(nameServer=server.name_server, topic=topic).save()
    (found,) = found_in(server, topic)
    assert (found.body, found.properties["KEYS"]) == (b"v", "k")
