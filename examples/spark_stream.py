"""A topic as a stream of Spark: exactly once into Parquet, and a group that shows how far it is.

    python examples/spark_stream.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process. Needs the extra `spark`.
"""

from __future__ import annotations

import os
import tempfile

import fusee.pipeline
import fusee.sync

TOPIC, GROUP = "example-spark-stream", "example-spark-stream"


def main(name_servers: str, folder: str) -> None:
    spark = fusee.pipeline.open_session("local[2]", conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})

    def archive() -> None:
        """Everything that has come since the last call."""
        query = (
            spark.readStream.format("fusee")
            .option("nameServer", name_servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("group", GROUP)
            .load()
            .selectExpr("topic", "queueOffset", "storeTimestamp", "cast(body as string) as body")
            .writeStream.option("checkpointLocation", f"{folder}/checkpoint")
            .option("path", f"{folder}/orders")
            .trigger(availableNow=True)  # leave this out, and the query runs until it is stopped
            .start()
        )
        query.awaitTermination()

    try:
        with fusee.sync.connect(name_servers) as mq:
            mq.admin.create_topic(TOPIC)
            for first in (0, 50):
                for number in range(first, first + 50):
                    mq.send(TOPIC, f"order {number}")
                archive()
                count = spark.read.parquet(f"{folder}/orders").count()
                lag = mq.admin.lag(GROUP, TOPIC, owners=False).total
                print(f"{count} archived, the group is {lag} behind")
    finally:
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server, folder)
