"""A topic as a table of Spark: read, count by tag, and only the columns that are needed.

    python examples/spark_batch.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process. Needs the extra `spark`.
"""

from __future__ import annotations

import os

import fusee.pipeline
import fusee.sync

TOPIC = "example-spark-batch"


def main(name_servers: str) -> None:
    with fusee.sync.connect(name_servers) as mq:
        mq.admin.create_topic(TOPIC)
        for number in range(90):
            mq.send(TOPIC, f"order {number}", tag=("paid", "open", "sent")[number % 3], key=str(number))

    spark = fusee.pipeline.open_session("local[2]", conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    try:
        orders = {"nameServer": name_servers, "subscribe": TOPIC}
        # Only tags are decoded and moved, and the broker leaves out what has another tag.
        tags = spark.read.format("fusee").options(**orders).schema("tags string").load()
        counted = tags.where("tags in ('paid', 'open')").groupBy("tags").count().orderBy("tags").collect()
        print({row["tags"]: row["count"] for row in counted})
        found = spark.read.format("fusee").options(**orders).load().where("keys = '42'").collect()
        print("order of key 42:", bytes(found[0]["body"]).decode())
    finally:
        spark.stop()


if __name__ == "__main__":
    main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server)
