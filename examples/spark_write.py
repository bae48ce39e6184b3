"""A table written to a topic: columns become messages, rows of one customer keep their order.

    python examples/spark_write.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process. Needs the extra `spark`.
"""

from __future__ import annotations

import os

import fusee.pipeline
import fusee.sync

TOPIC = "example-spark-write"
CUSTOMERS = "array('ada', 'bob', 'cyd', 'dan', 'eve')"


def main(name_servers: str) -> None:
    spark = fusee.pipeline.open_session("local[2]", conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    try:
        orders = spark.range(20).selectExpr(
            "string(id) as body",
            "concat('order-', id) as keys",
            "if(id % 2 = 0, 'paid', 'open') as tags",
            f"{CUSTOMERS}[id % 5] as orderBy",
            "map('shop', 'north') as properties",
        )
        # One partition for each customer: within it the rows are in order.
        writer = orders.repartition(2, "orderBy").sortWithinPartitions(orders.body.cast("int")).write
        writer.format("fusee").mode("append").options(nameServer=name_servers, topic=TOPIC, createTopics=True).save()
    finally:
        spark.stop()

    with fusee.sync.connect(name_servers) as mq, mq.consumer(TOPIC, group="example-spark-write") as messages:
        found = [message for _, message in zip(range(20), messages, strict=False)]
    of_ada = [message.body.decode() for message in found if message.properties["__SHARDINGKEY"] == "ada"]
    print(f"{len(found)} written, {len(of_ada)} of ada in their order: {', '.join(of_ada)}")


if __name__ == "__main__":
    main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server)
