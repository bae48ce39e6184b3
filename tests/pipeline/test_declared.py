"""Declared pipelines: the examples run, go on where they were, and mistakes are told with their place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from fusee.errors import ConfigError, FuseeError
from fusee.pipeline.declared import is_sparks_own, read_pipeline, run_sparks_own, start_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.sync import Connection, EmbeddedServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


def placed(tmp_path: Path, name: str, server: EmbeddedServer) -> Path:
    """An example in a folder of its own, for this server."""
    for path in EXAMPLES.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    file = tmp_path / name
    file.write_text(file.read_text().replace("127.0.0.1:9876", server.name_server))
    return file


def run(spark: SparkSession, file: Path) -> dict[str, int]:
    return {one.name: one.rows for one in start_pipeline(spark, read_pipeline(file)).wait()}


def read_all(server: EmbeddedServer, topic: str) -> list[bytes]:
    with server.connect() as mq:
        return sorted(message.body for message in mq.admin.browse(topic))


def test_topic_to_parquet_goes_on_where_it_was(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    file = placed(tmp_path, "to_parquet.yaml", server)
    with server.connect() as mq:
        for number in range(10):
            mq.send("orders", b"%d" % number, key=f"k{number}", tag="paid")
        assert run(spark, file) == {"files": 10}
        mq.send("orders", b"10")
    assert run(spark, file) == {"files": 1}
    rows = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(int(row.text) for row in rows) == list(range(11))
    assert {str(row.day) for row in rows} == {str(rows[0].storeTimestamp.date())}


def test_totals_by_minute_are_written_when_their_minute_is_over(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    file = placed(tmp_path, "totals_by_minute.yaml", server)
    text = file.read_text()
    file.write_text(text.replace("delay: 1 minute", "delay: 0 seconds").replace("'1 minute'", "'1 second'"))
    with server.connect() as mq:
        for _ in range(2):
            for amount in (1, 2, 3):
                mq.send("orders", json.dumps({"amount": amount}).encode())
            run(spark, file)
            newest = _newest(mq)
            while _newest(mq) <= newest // 1000 * 1000 + 1000:
                mq.send("orders", b'{"amount": 0}')
    run(spark, file)
    rows = spark.read.parquet(str(tmp_path / "totals")).collect()
    assert sum(row.amount for row in rows) == 12
    assert len({row.minute for row in rows}) == len(rows)


def _newest(mq: Connection) -> int:
    return max(message.born_timestamp_ms for message in mq.admin.browse("orders"))


def test_orders_are_joined_with_their_payments(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    file = placed(tmp_path, "paid_orders.yaml", server)
    with server.connect() as mq:
        mq.admin.create_topic("paid-orders")
        for number in range(6):
            mq.send("orders", b"order %d" % number, key=f"k{number}")
            if number % 2:
                mq.send("payments", b"paid", key=f"k{number}")
    run(spark, file)
    assert read_all(server, "paid-orders") == [b"order 1", b"order 3", b"order 5"]
    run(spark, file)
    assert len(read_all(server, "paid-orders")) == 3


def test_topic_to_topic_by_a_function(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    file = placed(tmp_path, "enrich.yaml", server)
    with server.connect() as mq:
        mq.admin.create_topic("orders-enriched")
        for number, customer in enumerate(["c1", "c2", "c9"]):
            mq.send("orders", b"order %d" % number, key=f"k{number}", properties={"customer": customer})
    assert run(spark, file) == {"enriched": 3}
    found = [json.loads(body) for body in read_all(server, "orders-enriched")]
    assert [(one["order"], one["name"]) for one in found] == [
        ("order 0", "Ada"),
        ("order 1", "Grace"),
        ("order 2", "?"),
    ]


def test_a_sink_that_no_stream_feeds_is_written_at_once(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    with server.connect() as mq:
        mq.send("orders", b"x", tag="paid")
    file = tmp_path / "p.yaml"
    file.write_text(
        f"""
sources: {{orders: {{topic: orders, nameServer: "{server.name_server}", stream: false}}}}
steps: {{counts: {{sql: "select tags, count(*) n from orders group by tags"}}}}
sinks: {{counts: {{from: counts, format: json, path: ./counts, mode: overwrite}}}}
"""
    )
    assert run(spark, file) == {"counts": 0}
    assert [tuple(row) for row in spark.read.json(str(tmp_path / "counts")).collect()] == [(1, "paid")]


def test_batches_and_rows_are_counted_beyond_those_that_spark_remembers(
    spark: SparkSession, server: EmbeddedServer, tmp_path: Path
) -> None:
    with server.connect() as mq:
        for number in range(7):
            mq.send("orders", b"%d" % number)
    file = tmp_path / "p.yaml"
    source = f'topic: orders, nameServer: "{server.name_server}", startingOffsets: earliest, maxOffsetsPerTrigger: 2'
    file.write_text(f"sources: {{orders: {{{source}}}}}\nsinks: {{out: {{from: orders, format: noop}}}}\n")
    remembered = "spark.sql.streaming.numRecentProgressUpdates"
    spark.conf.set(remembered, "2")
    try:
        (done,) = start_pipeline(spark, read_pipeline(file)).wait()
    finally:
        spark.conf.unset(remembered)
    assert (done.batches, done.rows) == (4, 7)


def test_a_sink_that_fails_is_named(spark: SparkSession, server: EmbeddedServer, tmp_path: Path) -> None:
    with server.connect() as mq:
        mq.send("orders", b"x")
    file = tmp_path / "p.yaml"
    file.write_text(
        f"""
sources: {{orders: {{topic: orders, nameServer: "{server.name_server}", startingOffsets: earliest}}}}
steps: {{bad: {{sql: "select raise_error('no') as body from orders"}}}}
sinks: {{out: {{from: bad, format: noop}}}}
"""
    )
    with pytest.raises(FuseeError, match="sink 'out' of pipeline 'p'"):
        run(spark, file)

    running = start_pipeline(spark, read_pipeline(file))
    with pytest.raises(StreamingQueryException):
        running.queries["out"].awaitTermination()
    with pytest.raises(FuseeError, match="sink 'out' of pipeline 'p'"):
        running.wait()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "declares no pipeline"),
        ("sources: {a: {topic: t}}", "at least one source and one sink"),
        ("surces: {}", "unknown surces; there are checkpoints"),
        ("sources: {a: {topic: t}}\nsinks: {s: {from: b}}", "is from 'b'; there are a"),
        ("sources: {a: {topic: t}}\nsinks: {s: {topic: x}}", "which source or step feeds it"),
        ("sources: {a: {topic: t}}\nsteps: {b: {}}\nsinks: {s: {from: b}}", "give either sql or python"),
        ("sources: {a: {topic: t}}\nsteps: {b: {python: x, from: c}}\nsinks: {s: {from: b}}", "does not stand before"),
        ("sources: {a: {topic: t, watermark: 1}}\nsinks: {s: {from: a}}", "watermark is"),
        ("sources: {1a: {topic: t}}\nsinks: {s: {from: 1a}}", "is no name"),
        ("sources: {a: {topic: t}, b: 1}\nsinks: {}", "written as NAME"),
        ("sources: {a: {format: rate, topic: t}}\nsinks: {s: {from: a}}", "topic is for sources of the format fusee"),
        ("a: [", "is no YAML"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_pipeline(file)


def test_steps_that_cannot_be_made_are_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def number(spark):\n    return 1\n")
    for step, said in (
        ('sql: "select nothing from a"', "nothing"),
        ("python: nowhere.py:f", "there is no file"),
        ("python: steps.py:missing", "has no function 'missing'"),
        ("python: steps.py", "FILE:FUNCTION"),
        ("python: steps.py:number", "not a DataFrame"),
    ):
        file = tmp_path / "p.yaml"
        file.write_text(
            f"sources: {{a: {{format: rate}}}}\nsteps: {{b: {{{step}}}}}\nsinks: {{s: {{from: b, format: noop}}}}"
        )
        with pytest.raises(ConfigError, match=said):
            start_pipeline(spark, read_pipeline(file))


@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_sparks_own_runner_reads_a_topic_and_writes_to_one(server: EmbeddedServer, tmp_path: Path) -> None:
    folder = tmp_path / "declarative"
    shutil.copytree(EXAMPLES / "declarative", folder)
    program = folder / "transformations" / "orders.py"
    program.write_text(program.read_text().replace("127.0.0.1:9876", server.name_server))
    file = folder / "spark-pipeline.yml"
    file.write_text(file.read_text().replace("file:///tmp/fusee-paid-orders", f"file://{tmp_path / 'storage'}"))
    assert is_sparks_own(file)
    server.create_topics({"orders": 2, "paid-orders": 1})
    with server.connect() as mq:
        for number in range(10):
            mq.send("orders", b"order %d" % number, key=f"k{number}", tag=("paid", "open")[number % 2])
    assert run_sparks_own(file, conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"}) == 0
    assert read_all(server, "paid-orders") == [b"order %d" % number for number in range(0, 10, 2)]
    (table,) = (folder / "spark-warehouse").glob("orders_by_tag")
    counts = {row["tags"]: row["count"] for row in pq.read_table(table).to_pylist()}
    assert counts == {"paid": 5, "open": 5}


def test_a_file_for_sparks_own_pipelines_is_recognised(tmp_path: Path) -> None:
    file = tmp_path / "spark-pipeline.yml"
    file.write_text("name: x\nstorage: file:///tmp/x\nlibraries: [{glob: {include: 'transformations/**'}}]")
    assert is_sparks_own(file)
