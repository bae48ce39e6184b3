"""A program that does the same work on any Spark, and prints what it found: reads, a stream, a write, two jobs.

    python -m tests.pipeline.job_of_tests MASTER NAME_SERVER FOLDER

MASTER is a master of Spark, or `sc://...` for a server of Spark Connect, where the source is found by its name alone
and the job that needs files is left out. What is written goes to the topic that has the name of FOLDER. It imports
nothing of the tests, so `spark-submit` can run it as a file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from fusee.pipeline import open_session
from fusee.pipeline.jobs.archive import archive, read_archive
from fusee.pipeline.jobs.stats import stats
from fusee.pipeline.jobs.tables import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CORES = 2


def session(master: str) -> SparkSession:
    if master.startswith("sc://"):
        made: SparkSession = SparkSession.builder.remote(master).getOrCreate()
        return made
    conf = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(CORES),
        # Work begins when every executor is there, so that each has its part.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    return open_session(master, app="job of tests", conf=conf)


def summary(table: DataFrame) -> list[list[Any]]:
    rows = table.selectExpr("tags", "queueId", "queueOffset", "string(body) as body").groupBy("tags", "queueId")
    found = rows.agg({"*": "count", "queueOffset": "sum", "body": "max"}).orderBy("tags", "queueId").collect()
    return [list(row) for row in found]


def readers(table: DataFrame) -> int:
    """How many executors had a part in reading a table: each has a process of its own that Python workers come from."""
    executor = f.udf(os.getppid, "int").asNondeterministic()
    return table.select(executor().alias("executor")).distinct().count()


def counted(spark: SparkSession, source: dict[str, str]) -> list[list[Any]]:
    """The tables of the job `stats`, their rows in one order."""
    outcome = stats(spark, place=Place(source), topics=["orders"])
    return [sorted(list(row) for row in table.rows) for table in outcome.tables]


def archived(spark: SparkSession, source: dict[str, str], folder: str) -> dict[str, Any]:
    """What the job `archive` has put into a folder."""
    outcome = archive(spark, to=folder, topics=["orders"], source={**source, "maxOffsetsPerTrigger": "150"})
    ends = next(table.rows for table in outcome.tables if table.title == "archived up to")
    return {"ends": [list(row) for row in ends], "rows": summary(read_archive(spark, folder))}


def main(master: str, name_server: str, folder: str) -> None:
    spark = session(master)
    try:
        here = {"nameServer": name_server}
        options = {**here, "subscribe": "orders", "minPartitions": "4"}
        orders = spark.read.format("fusee").options(**options).load()
        found: dict[str, Any] = {"batch": summary(orders), "readers": readers(orders)}
        query = (
            spark.readStream.format("fusee")
            .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="150")
            .load()
            .writeStream.format("parquet")
            .option("path", f"{folder}/out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found["stream"] = summary(spark.read.parquet(f"{folder}/out"))
        copies = orders.select("body", "tags", "keys").write.format("fusee").mode("append")
        copies.options(**here, topic=Path(folder).name, delivery="exactly-once").save()
        found["stats"] = counted(spark, here)
        if not master.startswith("sc://"):
            found["archive"] = archived(spark, here, f"{folder}/archive")
        json.dump(found, sys.stdout)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
