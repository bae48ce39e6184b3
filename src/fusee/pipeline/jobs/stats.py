"""What is in topics: counts and sizes by topic, tag, queue and hour, how evenly queues are used, which keys are hot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fusee.charts import Report, bars, columns
from fusee.pipeline.jobs.outcome import Outcome, Silence, Table
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.tables import Place, read_place
from fusee.pipeline.jobs.task_progress import told

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.jobs.outcome import Observer

TOP: Final = 20
HOURS_MAX: Final = 24 * 366


def stats(
    spark: SparkSession,
    *,
    place: Place,
    topics: Sequence[str],
    selection: Selection | None = None,
    top: int = TOP,
    report_path: Path | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Counts the chosen messages of these topics; with `report_path` also as a page with charts.

    Sizes are those of bodies. Skew of a topic is how many times the fullest of its queues has the messages of an
    average one. Hours are those in which the broker stored a message, in UTC. A message with several keys counts for
    each of them; the share of a key is that of the messages of its topic.
    """
    from pyspark.sql import functions as f

    chosen = selection or Selection()
    rows = chosen.applied(read_place(spark, place, topics)).select(
        "topic",
        "brokerName",
        "queueId",
        "tags",
        "keys",
        f.unix_seconds("storeTimestamp").alias("second"),
        f.length("body").alias("size"),
    )
    rows = rows.persist()
    try:
        with told(spark, observer or Silence(), f"counting {', '.join(topics)}"):
            by_topic = _by_topic(rows)
            by_tag = _counted(rows.groupBy("topic", "tags"), top * len(topics))
            by_hour = _by_hour(rows)
            hot = _hot_keys(rows, top)
    finally:
        rows.unpersist()
    tables = [
        Table(
            "topics",
            ("topic", "messages", "bytes", "average size", "largest", "queues", "skew", "first", "last"),
            tuple(by_topic),
        ),
        Table(
            "tags", ("topic", "tag", "messages", "bytes"), tuple((t, tag or "-", n, size) for t, tag, n, size in by_tag)
        ),
        Table("hours (UTC)", ("hour", "messages", "bytes"), tuple(by_hour)),
        Table("hot keys", ("topic", "key", "messages", "bytes", "share"), tuple(hot)),
    ]
    facts = {
        "messages": sum(row[1] for row in by_topic),
        "bytes": sum(row[2] for row in by_topic),
        "topics": len(by_topic),
        "selection": chosen.described(),
    }
    if report_path is not None:
        _report(facts, tables, by_topic, by_tag, by_hour, hot).save(report_path)
    return Outcome("stats", facts, tables, report_path=None if report_path is None else str(report_path))


def _by_topic(rows: DataFrame) -> list[tuple[Any, ...]]:
    from pyspark.sql import functions as f

    queues = rows.groupBy("topic", "brokerName", "queueId").agg(
        f.count(f.lit(1)).alias("n"),
        f.sum("size").alias("bytes"),
        f.max("size").alias("largest"),
        f.min("second").alias("first"),
        f.max("second").alias("last"),
    )
    found = queues.groupBy("topic").agg(
        f.sum("n"), f.sum("bytes"), f.max("largest"), f.count(f.lit(1)), f.max("n"), f.min("first"), f.max("last")
    )
    return [
        (
            topic,
            n,
            size or 0,
            round((size or 0) / n, 1),
            largest or 0,
            queue_count,
            round(fullest * queue_count / n, 2),
            _hour(first, 60),
            _hour(last, 60),
        )
        for topic, n, size, largest, queue_count, fullest, first, last in found.orderBy(f.desc("sum(n)")).collect()
    ]


def _counted(grouped: Any, limit: int) -> list[tuple[Any, ...]]:
    from pyspark.sql import functions as f

    found = grouped.agg(f.count(f.lit(1)).alias("n"), f.sum("size").alias("bytes")).orderBy(
        f.desc("n"), "topic", "tags"
    )
    return [tuple(row) for row in found.limit(limit).collect()]


def _by_hour(rows: DataFrame) -> list[tuple[str, int, int]]:
    from pyspark.sql import functions as f

    hour = (f.col("second") - f.col("second") % 3600).alias("hour")
    found = rows.groupBy(hour).agg(f.count(f.lit(1)), f.sum("size")).orderBy("hour").limit(HOURS_MAX).collect()
    return [(_hour(row[0], 3600), row[1], row[2] or 0) for row in found]


def _hot_keys(rows: DataFrame, top: int) -> list[tuple[Any, ...]]:
    from pyspark.sql import functions as f

    keyed = rows.where("keys is not null").select("topic", f.explode(f.split("keys", " ")).alias("key"), "size")
    counts = keyed.where("key <> ''").groupBy("topic", "key").agg(f.count(f.lit(1)).alias("n"), f.sum("size"))
    totals: dict[str, int] = dict(rows.groupBy("topic").count().collect())
    found = counts.orderBy(f.desc("n"), "topic", "key").limit(top).collect()
    return [(topic, key, n, size or 0, f"{n / totals[topic]:.1%}") for topic, key, n, size in found]


def _hour(second: int, precision_s: int) -> str:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(second - second % precision_s, UTC)
    return moment.strftime("%Y-%m-%d %H:%M")


def _report(
    facts: dict[str, Any],
    tables: Sequence[Table],
    by_topic: Sequence[tuple[Any, ...]],
    by_tag: Sequence[tuple[Any, ...]],
    by_hour: Sequence[tuple[str, int, int]],
    hot: Sequence[tuple[Any, ...]],
) -> Report:
    report = Report("What is in the topics", facts["selection"])
    report.facts({"messages": f"{facts['messages']:,}", "bytes": f"{facts['bytes']:,}", "topics": facts["topics"]})
    report.chart(columns("Messages by hour", [(hour[5:], n) for hour, n, _ in by_hour], x_unit="UTC"))
    report.chart(columns("Bytes by hour", [(hour[5:], size) for hour, _, size in by_hour], x_unit="UTC"))
    report.chart(bars("Messages by topic", [(row[0], row[1]) for row in by_topic]))
    report.chart(bars("Skew of queues: the fullest beside the average", [(row[0], row[6]) for row in by_topic]))
    report.chart(bars("Messages by tag", [(f"{topic} {tag or '-'}", n) for topic, tag, n, _ in by_tag[:TOP]]))
    report.chart(bars("Bytes by tag", [(f"{topic} {tag or '-'}", size) for topic, tag, _, size in by_tag[:TOP]]))
    if hot:
        report.chart(bars("Hot keys", [(f"{topic} {key}", n) for topic, key, n, *_ in hot]))
        report.chart(bars("Bytes by hot key", [(f"{topic} {key}", size) for topic, key, _, size, _ in hot]))
    for table in tables:
        report.heading(table.title)
        report.table(table.heads, table.rows)
    return report
