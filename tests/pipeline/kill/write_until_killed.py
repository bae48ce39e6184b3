"""Two streams of numbers into two topics, exactly once and at least once, until they are killed or have enough.

    python -m tests.pipeline.kill.write_until_killed NAME_SERVER FOLDER BATCHES

It prints the number of each batch that the exactly-once stream has done, and ends when both have done BATCHES.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from fusee.pipeline import open_session

ROWS = 60
TOPICS = {"exactly-once": "once", "at-least-once": "often"}


def main(name_server: str, folder: str, batches: str) -> None:
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
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
        .selectExpr("cast(value as string) as body", "concat('k', value % 7) as keys")
    )
    queries = [
        numbers.writeStream.format("fusee")
        .options(nameServer=name_server, topic=topic, delivery=delivery, batchBytes=500)
        .option("checkpointLocation", f"{folder}/{topic}")
        .start()
        for delivery, topic in TOPICS.items()
    ]
    done = -1
    while any(done_batches(folder, topic) < int(batches) for topic in TOPICS.values()):
        for query in queries:
            if not query.isActive:
                raise SystemExit(str(query.exception()))
        threading.Event().wait(0.05)
        last = done_batches(folder, "once")
        if last != done:
            done = last
            sys.stdout.write(f"{done}\n")
            sys.stdout.flush()
    for query in queries:
        query.stop()


def done_batches(folder: str, topic: str) -> int:
    """How many batches Spark knows to be done."""
    names = [path.name for path in Path(folder, topic, "commits").glob("[0-9]*")]
    return 1 + max(map(int, names), default=-1)


if __name__ == "__main__":
    main(*sys.argv[1:])
