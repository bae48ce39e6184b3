"""One Spark session that does what it is told: a line of JSON comes in, a line of JSON goes out.

It runs in the environments of both contenders, so it needs nothing but pyspark and, for our side, fusee. A task names a
source and its options, a sink and its options, and how: `batch`, `stream` (AvailableNow, until the data is read) or
`live` (micro-batches for some seconds while a producer is at work). The first thing written is a line that says that
the session is up.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"  # both contenders
)


def session(arguments: argparse.Namespace) -> SparkSession:
    """A session of our own settings, or of Kafka's with its jars and the same quick checkpoints."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(arguments.master).appName("benchmark")
    if arguments.jars:
        builder = builder.config("spark.jars", arguments.jars)
        builder = builder.config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINTS)
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    else:
        from fusee.pipeline import configure

        builder = configure(builder, message_bytes=arguments.message_bytes)
    builder = builder.config("spark.driver.memory", "3g").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    if not arguments.jars and not arguments.plain_checkpoints:
        from fusee.pipeline import register

        register(spark)
    from benchmarks.spark.ready_source import ReadySource

    spark.dataSource.register(ReadySource)
    return spark


def batch(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """Reads and writes everything once."""
    frame = _load(spark.read.format(task["source"]).options(**task["options"]), task)
    began = time.perf_counter()
    writer = _selected(frame, task).write.format(task["sink"]).options(**task.get("sink_options", {}))
    writer.mode(task.get("mode", "append")).save()
    return {"seconds": time.perf_counter() - began}


def count(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """How many rows there are: whether what is measured is what was meant."""
    return {"rows": _load(spark.read.format(task["source"]).options(**task["options"]), task).count()}


def stream(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """A query from its start to its end, with all that there is."""
    folder = tempfile.mkdtemp(prefix="checkpoint-")
    try:
        frame = _load(spark.readStream.format(task["source"]).options(**task["options"]), task)
        began = time.perf_counter()
        writer = frame.writeStream.format(task["sink"]).options(**task.get("sink_options", {}))
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "rows": sum(one.numInputRows for one in query.recentProgress)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def live(spark: SparkSession, task: dict[str, Any]) -> dict[str, Any]:
    """Micro-batches as fast as they come: after `settle_s`, for `record_s`, their durations and the age of rows."""
    from pyspark.sql import functions as f

    folder = tempfile.mkdtemp(prefix="checkpoint-")
    ages: list[tuple[float, int, float, float]] = []

    def taken(rows: DataFrame, _: int) -> None:
        found = rows.agg(f.count("*"), f.min("timestamp").cast("double"), f.max("timestamp").cast("double")).first()
        if found is not None and found[0]:
            ages.append((time.time(), found[0], found[1], found[2]))

    try:
        frame = _load(spark.readStream.format(task["source"]).options(**task["options"]), task)
        writer = frame.writeStream.option("checkpointLocation", folder).trigger(processingTime="0 seconds")
        writer = writer.foreachBatch(taken) if task["sink"] == "foreachBatch" else writer.format(task["sink"])
        query = writer.start()
        try:
            until = time.time() + task["settle_s"]
            while time.time() < until and query.isActive:
                time.sleep(0.2)
            begin = time.time()
            first = query.lastProgress.batchId if query.lastProgress else 0
            durations: dict[int, tuple[float, int]] = {}
            parts: dict[int, dict[str, int]] = {}
            while time.time() < begin + task["record_s"] and query.isActive:
                time.sleep(1.0)
                for one in query.recentProgress:
                    if one.numInputRows and one.batchId > first:
                        durations[one.batchId] = (one.batchDuration, one.numInputRows)
                        parts[one.batchId] = dict(one.durationMs)
            end = time.time()
            failure = query.exception()
            if failure is not None:
                raise failure
        finally:
            query.stop()
        return {
            "durations_ms": [duration for duration, _ in durations.values()],
            "rows_per_batch": [rows for _, rows in durations.values()],
            "parts_ms": _medians(list(parts.values())),
            "ages": [one for one in ages if begin <= one[0] <= end],
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _medians(batches: list[dict[str, int]]) -> dict[str, float]:
    """Where a micro-batch spends its time, as Spark divides it."""
    names = {name for batch in batches for name in batch}
    return {name: median(batch.get(name, 0) for batch in batches) for name in sorted(names)}


def _load(reader: Any, task: dict[str, Any]) -> Any:
    if task.get("schema"):
        reader = reader.schema(task["schema"])
    return reader.load(task["path"]) if task.get("path") else reader.load()


def _selected(frame: DataFrame, task: dict[str, Any]) -> DataFrame:
    return frame.selectExpr(*task["select"]) if task.get("select") else frame


TASKS = {"batch": batch, "count": count, "stream": stream, "live": live}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--jars", default="", help="the connector's jars; without them the session is Fusee's")
    parser.add_argument(
        "--plain-checkpoints", action="store_true", help="our session writes checkpoints as Hadoop does"
    )
    parser.add_argument("--message-bytes", type=int, help="tell our session how large messages are that it writes")
    arguments = parser.parse_args()
    # What Spark prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    spark = session(arguments)
    answers.write(json.dumps({"spark": spark.version}) + "\n")
    for line in sys.stdin:
        task = json.loads(line)
        try:
            answer = TASKS[task["task"]](spark, task)
        except Exception as error:  # noqa: BLE001  whatever Spark raises is told to the one who asked
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        answers.write(json.dumps(answer) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
