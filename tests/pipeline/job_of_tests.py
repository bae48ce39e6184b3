"""A program that runs the same batch and the same stream on any Spark, and prints what it found.

    python -m tests.pipeline.job_of_tests MASTER NAME_SERVER FOLDER

MASTER is a master of Spark, or `sc://...` for a server of Spark Connect, where the source is found by its name alone.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from fusee.pipeline import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def session(master: str) -> SparkSession:
    if master.startswith("sc://"):
        made: SparkSession = SparkSession.builder.remote(master).getOrCreate()
        return made
    conf = {
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
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


def main(master: str, name_server: str, folder: str) -> None:
    spark = session(master)
    try:
        options = {"nameServer": name_server, "subscribe": "orders", "minPartitions": "4"}
        batch = summary(spark.read.format("fusee").options(**options).load())
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
        streamed = summary(spark.read.parquet(f"{folder}/out"))
        json.dump({"batch": batch, "stream": streamed}, sys.stdout)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
