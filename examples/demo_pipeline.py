"""A topic as a table of Spark: a live aggregation, an archive, SQL over both: part of `make demo`."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import fusee.sync
from examples.demo_report import out
from fusee.charts import bars, columns
from fusee.cli.spark_job import spark_session
from fusee.pipeline.jobs.archive import archive
from fusee.pipeline.jobs.queries import query
from fusee.pipeline.jobs.tables import Place

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from examples.demo_report import Chapter

TOPIC = "sales"
REGIONS = {"europe": 5, "america": 3, "asia": 2}
LIVE = 600
LIVE_PAUSE = 0.01
LATER = 300
PATIENCE = 180.0

# By key, once: a send that was tried again may have been stored twice.
STATEMENT = """\
select region, count(*) as sales, sum(amount) as total
from (
  select distinct keys, tags as region, int(get_json_object(string(body), '$.amount')) as amount
  from sales
)
group by region order by total desc"""


class Shop:
    """Sells, and keeps books of its own to compare with."""

    def __init__(self, mq: fusee.sync.Connection) -> None:
        self._mq = mq
        self._chance = random.Random(7)
        self.count: Counter[str] = Counter()
        self.total: Counter[str] = Counter()

    def sell(self, number: int, pause: float = 0.0) -> None:
        for _ in range(number):
            (region,) = self._chance.choices(list(REGIONS), list(REGIONS.values()))
            amount = self._chance.randint(1, 100)
            key = f"sale-{sum(self.count.values())}"
            self._mq.send(TOPIC, json.dumps({"amount": amount}), tag=region, key=key)
            self.count[region] += 1
            self.total[region] += amount
            time.sleep(pause)


def play(name_servers: str, folder: Path, chapter: Chapter) -> None:
    settings = ["spark.sql.shuffle.partitions=2", f"spark.sql.warehouse.dir={folder / 'warehouse'}"]
    begun = time.perf_counter()
    with spark_session("local[2]", settings, "demo") as spark, fusee.sync.connect(name_servers) as mq:
        took = time.perf_counter() - begun
        chapter.done(f"Spark {spark.version} runs after {took:.1f} s; no jar, no connector to install")
        mq.admin.create_topic(TOPIC, queues=2)
        shop = Shop(mq)
        aggregate_live(spark, name_servers, folder, shop, chapter)
        archive_and_query(spark, name_servers, folder, shop, chapter)


def aggregate_live(spark: SparkSession, name_servers: str, folder: Path, shop: Shop, chapter: Chapter) -> None:
    """Sales by second and region, while they are made."""
    stream = (
        spark.readStream.format("fusee")
        .option("nameServer", name_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("group", "dashboard")
        .load()
        .selectExpr("date_trunc('second', storeTimestamp) as second", "tags")
        .groupBy("second", "tags")
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName("by_second")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    seller = threading.Thread(target=shop.sell, args=(LIVE, LIVE_PAUSE))
    seller.start()
    begun = time.perf_counter()
    counted = 0
    with out.status("a stream counts sales by second while they are made") as status:
        while counted < LIVE:
            if stream.exception() is not None or time.perf_counter() - begun > PATIENCE:
                raise SystemExit(f"the stream counted {counted} of {LIVE}: {stream.exception() or 'it takes too long'}")
            stream.processAllAvailable()
            counted = spark.sql("select sum(count) from by_second").collect()[0][0] or 0
            status.update(f"a stream counts sales by second while they are made: {counted:,} of {LIVE:,}")
    seller.join()
    batches = stream.lastProgress["batchId"] + 1 if stream.lastProgress else 0
    rows = spark.sql("select second, sum(count) from by_second group by second order by second").collect()
    stream.stop()
    chapter.done(f"a stream counted {counted:,} sales by second and region while they were made, in {batches} batches")
    chapter.fact("counted by a stream while they were made", f"{counted:,}")
    chapter.charts.append(
        columns("Sales by second, as the stream saw them", [(f"{s:%M:%S}", float(n)) for s, n in rows])
    )


def archive_and_query(spark: SparkSession, name_servers: str, folder: Path, shop: Shop, chapter: Chapter) -> None:
    source, kept = {"nameServer": name_servers}, str(folder / "archive")
    with out.status("archiving to Parquet"):
        archive(spark, to=kept, topics=[TOPIC], source=source)
    files = [path for path in (folder / "archive").rglob("*.parquet") if path.is_file()]
    chapter.done(
        f"archived to Parquet by topic, date and hour, exactly once: {len(files)} file{'s' * (len(files) != 1)}"
    )
    shop.sell(LATER)
    with out.status("SQL over archive and topic"):
        begun = time.perf_counter()
        rows = query(spark, STATEMENT, place=Place(source, kept)).collect()
        took = time.perf_counter() - begun
    assert {row["region"]: row["sales"] for row in rows} == shop.count
    assert {row["region"]: row["total"] for row in rows} == shop.total
    chapter.done(f"SQL over the archive and the {LATER} that came since, as one table, in {took:.1f} s:")
    for row in rows:
        out.print(f"    {row['region']:8} {row['sales']:6,} sales {row['total']:8,}")
    sold = sum(shop.count.values())
    chapter.fact("archived, then found by SQL with what came since", f"{LIVE:,}, {sold:,}")
    chapter.charts.append(
        bars("Sales by region: SQL over archive and live topic", [(r["region"], float(r["total"])) for r in rows])
    )
