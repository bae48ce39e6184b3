"""A stream from files to a topic, exactly once: a batch that Spark does again is not written again.

    python examples/spark_exactly_once.py

It talks to the cluster at NAMESRV_ADDR, of Fusee's brokers; without that, to a server inside this process. Needs the
extra `spark`.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import fusee.pipeline
import fusee.sync

TOPIC = "example-spark-exactly-once"


def main(name_servers: str) -> None:
    spark = fusee.pipeline.open_session("local[2]", conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        for number in range(3):
            (folder / "in" / f"{number}.txt").write_text("".join(f"order {number}-{row}\n" for row in range(100)))

        def run() -> None:
            orders = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
            writer = orders.selectExpr("value as body").writeStream.format("fusee").option("nameServer", name_servers)
            writer = writer.options(topic=TOPIC, createTopics=True, delivery="exactly-once")
            writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination()

        def count() -> str:
            read = spark.read.format("fusee").option("nameServer", name_servers).option("subscribe", TOPIC)
            bodies = Counter(bytes(row["body"]) for row in read.schema("body binary").load().collect())
            times = "each once" if set(bodies.values()) == {1} else "some again"
            return f"{len(bodies)} of 300 orders, {times}"

        try:
            run()
            print(count())
            # As if the driver had died after the broker's commit, before Spark had written it down.
            for path in (folder / "checkpoint" / "commits").glob("*2*"):
                path.unlink()
            run()
            print("the last batch again:", count().replace(" orders", ""))
        finally:
            spark.stop()


if __name__ == "__main__":
    main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server)
