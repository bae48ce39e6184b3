"""SQL over topics: views of them, joined.

    python examples/spark_sql.py

It talks to the cluster at NAMESRV_ADDR; without that, to a server inside this process. Needs the extra `spark`.
"""

from __future__ import annotations

import os

import fusee.pipeline
import fusee.sync

TOPICS = {"orders": "example-spark-orders", "payments": "example-spark-payments"}


def main(name_servers: str) -> None:
    with fusee.sync.connect(name_servers) as mq:
        for topic in TOPICS.values():
            mq.admin.create_topic(topic)
        for number in range(6):
            mq.send(TOPICS["orders"], f"a book for {number * 2 + 5}.50", key=f"order-{number}")
        for number in (1, 4):
            mq.send(TOPICS["payments"], "by card", key=f"order-{number}")

    spark = fusee.pipeline.open_session("local[2]", conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    try:
        for name, topic in TOPICS.items():
            spark.sql(
                f"CREATE TEMPORARY VIEW {name} USING fusee OPTIONS (nameServer '{name_servers}', subscribe '{topic}')"
            )
        unpaid = spark.sql(
            "SELECT keys, string(body) AS what FROM orders ANTI JOIN payments USING (keys) ORDER BY keys"
        ).collect()
        for row in unpaid:
            print(f"{row['keys']}: {row['what']}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(os.environ.get("NAMESRV_ADDR") or fusee.sync.embedded().name_server)
