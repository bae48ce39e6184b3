"""The pipeline beside the Java client: what either sends the other reads, on our broker and on the real one."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from fusee.pipeline import open_session
from tests.interop.clients.programs import DELIVERY_TIMEOUT_S
from tests.interop.clients.servers import BROKER_VARIABLE
from tests.interop.clients.stage import Stage, drafts
from tests.interop.harness.cluster import SUBJECT_VARIABLE
from tests.interop.harness.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Toolchain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session(
        "local[2]",
        conf={
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["fusee", "java"])
def make(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stage(make: str, fleet: Fleet, toolchain: Toolchain) -> Iterator[Stage]:
    """Servers of one make; one make at a time."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(BROKER_VARIABLE, make)
        environment.setenv(SUBJECT_VARIABLE, make)
        stage = Stage(fleet, toolchain)
        try:
            yield stage
        finally:
            for program in stage._programs.values():
                program._dialogue.kill()
            stage.servers.broker.kill()
            stage.servers.name_server.kill()


def save(frame: DataFrame, stage: Stage, topic: str, **options: Any) -> None:
    writer = frame.write.format("fusee").mode("append")
    writer.options(nameServer=stage.name_servers, topic=topic, **options).save()


def orders(spark: SparkSession, count: int = 40) -> DataFrame:
    return spark.range(count).selectExpr(
        "concat('body of m-', id, ' é 消息') as body",
        "concat('m-', id) as keys",
        "if(id % 2 = 0, 'red', 'blue') as tags",
        "map('shop', 'north') as properties",
        "concat('c', id % 3) as orderBy",
    )


KEYS = {f"m-{number}" for number in range(40)}


@pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.quick), "auto"])
def test_java_reads_what_spark_wrote(stage: Stage, spark: SparkSession, delivery: str) -> None:
    topic = stage.make_topic(f"spark-{delivery}", queues=4)
    save(orders(spark), stage, topic, delivery=delivery)
    found = stage.await_stored(topic, KEYS)
    assert Counter(message["keys"] for message in found) == Counter(KEYS)
    for message in found:
        number = int(message["keys"].removeprefix("m-"))
        assert message["body"] == f"body of m-{number} é 消息"
        assert message["tags"] == ("red" if number % 2 == 0 else "blue")
    places = {(int(message["keys"].removeprefix("m-")) % 3, message["queueId"]) for message in found}
    assert len(places) == 3


@pytest.mark.quick
@pytest.mark.parametrize(("rows", "size"), [(100_000, 0), (20_000, 1024)], ids=["tiny", "1 KiB"])
def test_either_broker_takes_the_largest_requests(stage: Stage, spark: SparkSession, rows: int, size: int) -> None:
    topic = stage.make_topic(f"spark-large-{size}", queues=1)
    frame = spark.range(rows, numPartitions=2).selectExpr(f"concat(repeat('x', {size}), id) as body")
    save(frame, stage, topic, delivery="at-least-once")

    def is_whole() -> bool:
        stored = spark.read.format("fusee").options(nameServer=stage.name_servers, subscribe=topic).load()
        return stored.selectExpr(f"bigint(substr(string(body), {size + 1}))").distinct().count() == rows

    # Java's broker acknowledges before its consume queues show a message.
    eventually("every row can be read", is_whole, timeout_s=DELIVERY_TIMEOUT_S)


def test_java_reads_what_was_committed_exactly_once(stage: Stage, spark: SparkSession, make: str) -> None:
    topic = stage.make_topic("spark-exactly-once", queues=4)
    if make == "java":
        with pytest.raises(Exception, match="no staged batches"):
            save(orders(spark), stage, topic, delivery="exactly-once")
        assert stage.read(topic) == []
        return
    for version in (0, 0, 1, 1):
        # Each is tried twice, as a driver does that did not hear of its commit.
        save(orders(spark).selectExpr("body", f"concat(keys, '-{version}') as keys"), stage, topic,
             txnAppId="interop", txnVersion=version)  # fmt: skip
    wanted = {f"{key}-{version}" for key in KEYS for version in (0, 1)}
    found = stage.await_stored(topic, wanted)
    assert Counter(message["keys"] for message in found) == Counter(wanted)


def test_delayed_rows_arrive_later(stage: Stage, spark: SparkSession, make: str) -> None:
    topic = stage.make_topic("spark-delayed", queues=4)
    frame = orders(spark, 4).selectExpr("body", "keys", "if(keys = 'm-3', 2, 0) as delayLevel")
    save(frame, stage, topic)
    stage.await_stored(topic, {"m-0", "m-1", "m-2", "m-3"})
    at_ms = int(time.time() * 1000) + 2_000
    exact = orders(spark, 1).selectExpr("body", "'exact' as keys", f"bigint({at_ms}) as deliverAt")
    if make == "fusee":
        with pytest.raises(Exception, match="column deliverAt"):
            save(exact, stage, topic)
        return
    save(exact, stage, topic)
    eventually("the exact time has come", lambda: "exact" in {each["keys"] for each in stage.read(topic)} or None)


def test_spark_reads_what_java_sent_and_sends_it_on(stage: Stage, spark: SparkSession, tmp_path: Path) -> None:
    topic, onward = stage.make_topic("java-to-spark", queues=4), stage.make_topic("java-through-spark", queues=4)
    messages = drafts(topic, 20)
    stage.judge_sends.send(messages)
    stage.await_stored(topic, {draft.keys for draft in messages})
    source = {"nameServer": stage.name_servers, "subscribe": topic}
    rows = spark.read.format("rocketmq").options(**source).load().collect()
    assert {row.keys: bytes(row.body).decode() for row in rows} == {draft.keys: draft.body for draft in messages}
    assert {row.keys: row.tags for row in rows} == {draft.keys: draft.tags or None for draft in messages}
    assert len({(row.queueId, row.queueOffset) for row in rows}) == len(rows) == 20

    stream = (
        spark.readStream.format("fusee").options(**source, startingOffsets="earliest", group="spark-interop").load()
    )
    query = (
        stream.select("body", "keys", "tags")
        .writeStream.format("fusee")
        .options(nameServer=stage.name_servers, topic=onward, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = stage.await_stored(onward, {draft.keys for draft in messages})
    assert Counter(message["keys"] for message in found) == Counter(draft.keys for draft in messages)
    # The broker knows how far the stream is, so its lag shows wherever groups are shown.
    stage.await_committed("spark-interop", topic)
