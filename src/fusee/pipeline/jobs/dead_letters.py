"""Dead letters in bulk: of all groups, grouped by what they have in common, and handed to a replay.

RocketMQ keeps no reason with a dead letter. What can be told of one is the group that could not consume it, the
topic it was sent to, its tag, and how often it was tried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fusee.charts import Report, bars
from fusee.errors import ConfigError
from fusee.message.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC
from fusee.message.topics import DLQ_PREFIX, dlq_topic
from fusee.pipeline.jobs.outcome import Outcome, Silence, Table
from fusee.pipeline.jobs.queries import topics_of
from fusee.pipeline.jobs.replay import replay
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.tables import Place, read_place, sql_text
from fusee.pipeline.jobs.task_progress import told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.jobs.outcome import Observer

CAUSES_MAX: Final = 200
ORIGIN_TOPIC: Final = f"coalesce(properties['{DLQ_ORIGIN_TOPIC}'], properties['{RETRY_TOPIC}'], topic)"


def dead_letters(
    spark: SparkSession,
    *,
    place: Place,
    groups: Sequence[str] = (),
    selection: Selection | None = None,
    report_path: Path | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """The dead letters of these groups, or of all, by cause: most first, at most `CAUSES_MAX`. Facts are of all."""
    from pyspark.sql import functions as f

    chosen = selection or Selection()
    topics = _topics(spark, place, groups)
    causes: list[tuple[Any, ...]] = []
    letters, group_count, cause_count = 0, 0, 0
    if topics:
        rows = caused(chosen.applied(read_place(spark, place, topics)))
        with told(spark, observer or Silence(), f"counting dead letters of {len(topics)} groups"):
            found = rows.groupBy("group", "originTopic", "tags", "reconsumeTimes").agg(
                f.count(f.lit(1)).alias("n"),
                f.date_format(f.min("storeTimestamp"), "yyyy-MM-dd HH:mm:ss"),
                f.date_format(f.max("storeTimestamp"), "yyyy-MM-dd HH:mm:ss"),
                f.first("msgId"),
            )
            found = found.persist()
            try:
                totals = found.agg(f.sum("n"), f.count_distinct("group"), f.count(f.lit(1))).first()
                assert totals is not None
                letters, group_count, cause_count = totals
                causes = [tuple(row) for row in found.orderBy(f.desc("n")).limit(CAUSES_MAX).collect()]
            finally:
                found.unpersist()
    table = Table(
        "dead letters by cause",
        ("group", "sent to", "tag", "tries", "messages", "first", "last", "one of them"),
        tuple(causes),
    )
    facts = {
        "dead letters": letters or 0,
        "groups": group_count,
        "causes": cause_count,
    }
    if report_path is not None:
        report = Report("Dead letters", chosen.described())
        report.facts(facts)
        report.chart(bars("By cause", [(f"{row[0]}: {row[1]} {row[2] or '-'}", row[4]) for row in causes]))
        report.table(table.heads, table.rows)
        report.save(report_path)
    return Outcome("dead letters", facts, [table], report_path=None if report_path is None else str(report_path))


def replay_dead_letters(
    spark: SparkSession,
    *,
    place: Place,
    group: str,
    sink: Mapping[str, str],
    to_topic: str | None = None,
    origin_topic: str | None = None,
    selection: Selection | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    state_path: Path | None = None,
    generations_max: int = 3,
    observer: Observer | None = None,
    is_stopped: Callable[[], bool] | None = None,
) -> Outcome:
    """Sends the dead letters of a group again, to the topics they were sent to at first, or to `to_topic`.

    `origin_topic` takes only those of one topic. Everything else is as for a `replay`; a message that was replayed
    `generations_max` times already stays where it is.
    """
    chosen = selection or Selection()
    if origin_topic is not None:
        condition = f"{ORIGIN_TOPIC} = {sql_text(origin_topic)}"
        chosen = replace(chosen, where=f"({chosen.where}) and {condition}" if chosen.where else condition)
    return replay(
        spark,
        place=place,
        topics=_topics(spark, place, [group]),
        sink=sink,
        to_topic=to_topic,
        to_expression=None if to_topic is not None else ORIGIN_TOPIC,
        selection=chosen,
        rate=rate,
        dry_run=dry_run,
        state_path=state_path,
        generations_max=generations_max,
        observer=observer,
        is_stopped=is_stopped,
    )


def caused(rows: DataFrame) -> DataFrame:
    """Dead letters with the group they are of and the topic they were sent to."""
    from pyspark.sql import functions as f

    return rows.withColumns(
        {"group": f.substring("topic", len(DLQ_PREFIX) + 1, 1000), "originTopic": f.expr(ORIGIN_TOPIC)}
    )


def _topics(spark: SparkSession, place: Place, groups: Sequence[str]) -> list[str]:
    there = [topic for topic in topics_of(spark, place) if topic.startswith(DLQ_PREFIX)]
    if not groups:
        return there
    wanted = [dlq_topic(group) for group in groups]
    missing = [topic for topic in wanted if topic not in there]
    if missing:
        names = ", ".join(topic.removeprefix(DLQ_PREFIX) for topic in there) or "none"
        raise ConfigError(
            f"{missing[0].removeprefix(DLQ_PREFIX)} has no dead letters and never had; groups that have: {names}"
        )
    return wanted
