"""A stream from a topic into Parquet that says which batch it has done, until it is killed or told to end.

    python -m tests.pipeline.kill.archive_until_killed NAME_SERVER FOLDER [--rest]

With `--rest` it reads what there is, and ends.
"""

from __future__ import annotations

import sys
import threading

from fusee.pipeline import open_session


def main(name_server: str, folder: str, *flags: str) -> None:
    # Four tries of a task: a worker that is killed is no failure of the job.
    spark = open_session(
        "local[2,4]",
        conf={
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
        },
    )
    writer = (
        spark.readStream.format("fusee")
        .option("nameServer", name_server)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 60)
        .option("minPartitions", 2)
        .option("group", "archive")
        .load()
        .selectExpr("brokerName", "queueId", "queueOffset", "string(body) as body")
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    if "--rest" in flags:
        writer.trigger(availableNow=True).start().awaitTermination()
        for row in spark.read.parquet(f"{folder}/out").collect():
            sys.stdout.write(f"{row['queueId']} {row['queueOffset']} {row['body']}\n")
        return
    query = writer.start()
    done = -1
    while query.isActive:
        threading.Event().wait(0.05)
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != done:
            done = progress["batchId"]
            sys.stdout.write(f"{done}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
