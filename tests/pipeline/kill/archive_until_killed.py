"""Two streams from a topic, into Parquet and exactly once into another topic, until they are killed or told to end.

    python -m tests.pipeline.kill.archive_until_killed NAME_SERVER FOLDER MASTER WAY [--rest]

It prints a line for each batch that both have done. With `--rest` they read what there is, and it prints what is in
Parquet. WAY is `local` or `sent`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.pipeline.kill.streams import ONE_BY_ONE, READS, WRITES, session, tell_batches

# A row says where it was read, so that none can be taken for another.
ROW = "concat_ws(' ', brokerName, queueId, queueOffset, string(body)) as body"
FOR_GOOD = 10**9


def main(name_server: str, folder: str, master: str, way: str, *flags: str) -> None:
    spark = session(master)
    is_rest = "--rest" in flags
    rows = (
        spark.readStream.format("fusee")
        .option("nameServer", name_server)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000 if is_rest else 300)
        .option("minPartitions", 2)
        .option("group", "archive")
        .options(**READS[way])
        .load()
        .selectExpr(ROW)
    )
    writers = {
        Path(folder, "checkpoint"): rows.writeStream.format("parquet").option("path", f"{folder}/out"),
        Path(folder, "copies"): rows.writeStream.format("fusee").options(
            nameServer=name_server,
            topic="copies",
            delivery="exactly-once",
            **WRITES[way],
            **({} if is_rest else ONE_BY_ONE),
        ),
    }
    trigger: dict[str, Any] = {"availableNow": True} if is_rest else {"processingTime": "0 seconds"}
    queries = {
        checkpoint: writer.trigger(**trigger).option("checkpointLocation", str(checkpoint)).start()
        for checkpoint, writer in writers.items()
    }
    if not is_rest:
        tell_batches(queries, FOR_GOOD)
    for query in queries.values():
        query.awaitTermination()
    for row in spark.read.parquet(f"{folder}/out").collect():
        sys.stdout.write(f"{row['body']}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
