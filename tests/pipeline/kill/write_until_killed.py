"""Two streams of numbers into two topics, exactly once and at least once, until they are killed or have enough.

    python -m tests.pipeline.kill.write_until_killed NAME_SERVER FOLDER WAY BATCHES

It prints a line for each batch that both have done, and ends when that are BATCHES. WAY is `local` or `sent`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pipeline.kill.streams import ONE_BY_ONE, WRITES, session, tell_batches

ROWS = 300
TOPICS = {"exactly-once": "once", "at-least-once": "often"}


def main(name_server: str, folder: str, way: str, batches: str) -> None:
    # Four tries of a task: a worker that is killed is no failure of the job.
    spark = session("local[2,4]")
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
        .selectExpr("cast(value as string) as body", "concat('k', value % 7) as keys")
    )
    queries = {
        Path(folder, topic): numbers.writeStream.format("fusee")
        .options(nameServer=name_server, topic=topic, delivery=delivery, **WRITES[way], **ONE_BY_ONE)
        .option("checkpointLocation", f"{folder}/{topic}")
        .start()
        for delivery, topic in TOPICS.items()
    }
    tell_batches(queries, int(batches))
    for query in queries.values():
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
