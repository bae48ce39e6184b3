"""Were messages lost, doubled, late? What was produced, stored, delivered and consumed, held against each other.

Theory of operation
-------------------
Four things tell of a message, each in its own way. The *store* has it, or has not. The *trace* has what producers and
consumers said: sent with success (Pub), handed to a consumer (SubBefore), consumed with success (SubAfter); only of
messages whose clients trace. *Offsets* say how far a group is in each queue. The message's own unique id (msgId) is
what they have in common.

    lost         a producer was told that it is stored, and no record has its id. Messages of before the oldest that the
                 broker still has are left out: they may have expired; so are those of the next two lines.
    not yet due  it is delayed, and its broker has not delivered it to its topic yet.
    withheld     consumers are not to have it: it is of a transaction that was rolled back or is open, which is one
                 whose producer has not said COMMIT (EndTransaction); or it was recalled.
    duplicated   more than one record of a topic has its id: a producer sent it again after a time-out.
    consumed twice   a group said more than once that it consumed it.
    late         it was handed to a group later than `late_ms` after it was stored.
    waiting      it is behind the group's offset.

Where there is no trace, what only a trace can tell is unknown, and is shown so, never as 0.

The world goes on while an audit looks. So traces are read first, then how far brokers are, then what is delayed, and
the topics last: what a trace tells of is stored by then, and what was delivered is where it was delivered to.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fusee.charts import Report, bars, columns
from fusee.errors import FuseeError
from fusee.message.topics import TRACE_TOPIC, is_system_topic
from fusee.pipeline.jobs.outcome import Outcome, Silence, Table
from fusee.pipeline.jobs.queries import topics_of
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.standing import RECALLED, WAITING, standing, undelivered
from fusee.pipeline.jobs.tables import Place, read_place
from fusee.pipeline.jobs.task_progress import told
from fusee.pipeline.jobs.traces import trace_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.jobs.outcome import Observer

LATE_MS: Final = 60_000
SAMPLES: Final = 20
PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999, 1.0)
UNKNOWN: Final = "unknown"
_CLOCKS_APART: Final = timedelta(hours=1)
_LOST: Final = "lost"
_WITHHELD: Final = "withheld"
_SPANS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000)


@dataclass(frozen=True, slots=True)
class _Found:
    topics: list[tuple[Any, ...]]
    groups: list[tuple[Any, ...]]
    latencies: list[tuple[Any, ...]]
    lost: list[tuple[Any, ...]]
    doubled: list[tuple[Any, ...]]
    spans: list[tuple[str, int]]


def audit(
    spark: SparkSession,
    *,
    place: Place,
    topics: Sequence[str],
    groups: Sequence[str] = (),
    trace_topic: str = TRACE_TOPIC,
    late_ms: int = LATE_MS,
    selection: Selection | None = None,
    report_path: Path | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Reconciles these topics, for these groups or for all that traces and offsets tell of.

    The outcome is good when nothing was lost. A selection by time is of the time of storing; what was produced goes by
    the producers' clocks, and traces of consumers are taken from all times.
    """
    chosen, told_to = selection or Selection(), observer or Silence()
    known = topics_of(spark, place)
    missing = [topic for topic in topics if topic not in known]
    if missing:
        own = [topic for topic in known if not is_system_topic(topic)]
        raise FuseeError(f"there is no topic {missing[0]!r}; there are {', '.join(own) or 'none'}")
    kept: list[DataFrame] = []
    try:
        with told(spark, told_to, f"reconciling {', '.join(topics)}"):
            traces = None
            if trace_topic in known:
                traces = _kept(trace_rows(read_place(spark, place, [trace_topic])), kept)
                traces = None if traces.isEmpty() else traces
            stands = standing(place, topics, groups)
            aside = _kept(undelivered(spark, place, topics, known, stands), kept)
            stored = _kept(_stored(chosen.applied(read_place(spark, place, topics))), kept)
            ids = stored
            if chosen != Selection():
                # The clocks of producers decide what is looked for, so what they sent may lie on either side of the
                # chosen time.
                since = None if chosen.since is None else chosen.since - _CLOCKS_APART
                ids = _kept(_stored(Selection(since=since).applied(read_place(spark, place, topics))), kept)
            found = _reconcile(
                stored,
                traces,
                topics,
                groups,
                stands.groups,
                late_ms,
                ids=ids,
                aside=aside,
                chosen=chosen,
            )
    finally:
        for frame in kept:
            frame.unpersist()
    return _outcome(found, traces is not None, late_ms, chosen, report_path)


def _kept(frame: DataFrame, kept: list[DataFrame]) -> DataFrame:
    """The frame as it is at this moment, and from now on."""
    frame = frame.persist()
    kept.append(frame)
    frame.count()
    return frame


def _stored(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.select(
        "topic",
        "msgId",
        "brokerName",
        "queueId",
        "queueOffset",
        f.unix_millis("bornTimestamp").alias("bornMs"),
        f.unix_millis("storeTimestamp").alias("storedMs"),
    )


def _within(rows: DataFrame, column: str, chosen: Selection) -> DataFrame:
    """The rows whose milliseconds are in the chosen time."""
    from pyspark.sql import functions as f

    if chosen.since is not None:
        rows = rows.where(f.col(column) >= int(chosen.since.timestamp() * 1000))
    if chosen.until is not None:
        rows = rows.where(f.col(column) < int(chosen.until.timestamp() * 1000))
    return rows


def _reconcile(
    stored: DataFrame,
    traces: DataFrame | None,
    topics: Sequence[str],
    groups: Sequence[str],
    offsets: Mapping[tuple[str, str], tuple[int, int]] | None,
    late_ms: int,
    *,
    ids: DataFrame,
    aside: DataFrame,
    chosen: Selection,
) -> _Found:
    """`ids` is what a send may be found in, at least what is `stored`; `aside` is what is not delivered."""
    from pyspark.sql import functions as f

    summed = stored.groupBy("topic").agg(f.count(f.lit(1)).alias("n"), f.count_distinct("msgId").alias("ids"))
    of_topic = {row.topic: row for row in summed.collect()}
    doubled = stored.groupBy("topic", "msgId").agg(f.count(f.lit(1)).alias("times")).where("times > 1")
    doubled_rows = [tuple(row) for row in doubled.orderBy(f.desc("times"), "msgId").limit(SAMPLES).collect()]
    latencies = [
        ("producer to broker", *_percentiles(stored.select((f.col("storedMs") - f.col("bornMs")).alias("ms"))))
    ]
    lost_rows: list[tuple[Any, ...]] = []
    group_rows: list[tuple[Any, ...]] = []
    spans: list[tuple[str, int]] = []
    produced: dict[str, int] = {}
    missing: dict[tuple[str, str], int] = {}
    waiting = _within(aside, "storedMs", chosen).where(f.col("state") == WAITING)
    waiting = waiting.join(ids.select("topic", "msgId"), ["topic", "msgId"], "left_anti")
    not_due: dict[str, int] = dict(waiting.groupBy("topic").count().collect())
    if traces is not None:
        sent = _within(traces.where("kind = 'Pub' and success"), "saidMs", chosen)
        sent = sent.where(f.col("sentTo").isin(*topics)).dropDuplicates(["sentTo", "msgId"])
        produced = dict(sent.groupBy("sentTo").count().collect())
        gone = _missing(sent, traces, ids, aside)
        missing = {(topic, fate): count for topic, fate, count in gone.groupBy("sentTo", "fate").count().collect()}
        if any(fate == _LOST for _, fate in missing):
            lost = gone.where(f.col("fate") == _LOST).orderBy("saidMs", "msgId").limit(SAMPLES)
            lost_rows = [tuple(row) for row in lost.select("sentTo", "msgId", "saidMs", "group").collect()]
        delivered = _delivered(traces, stored, groups)
        group_rows = _group_rows(delivered, traces, stored, offsets, late_ms)
        first = delivered.select((f.col("firstMs") - f.col("storedMs")).alias("ms"))
        latencies.append(("broker to consumer", *_percentiles(first)))
        costs = traces.where("kind = 'SubAfter'").select(f.col("costMs").alias("ms"))
        latencies.append(("time in the listener", *_percentiles(costs)))
        spans = _spans(first)
    elif offsets:
        group_rows = [
            (group, topic, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, committed, waiting_there)
            for (group, topic), (committed, waiting_there) in sorted(offsets.items())
        ]
    topic_rows = []
    for topic in topics:
        row = of_topic.get(topic)
        count = row.n if row is not None else 0
        told_of = traces is not None
        topic_rows.append(
            (
                topic,
                produced.get(topic, 0) if told_of else UNKNOWN,
                count,
                not_due.get(topic, 0),
                missing.get((topic, _WITHHELD), 0) if told_of else UNKNOWN,
                missing.get((topic, _LOST), 0) if told_of else UNKNOWN,
                count - row.ids if row is not None else 0,
            )
        )
    return _Found(topic_rows, group_rows, latencies, lost_rows, doubled_rows, spans)


def _missing(sent: DataFrame, traces: DataFrame, ids: DataFrame, aside: DataFrame) -> DataFrame:
    """Sends that a producer was told of as stored, whose id no record of the topic has, and why that is (`fate`)."""
    from pyspark.sql import functions as f

    there = ids.select(f.col("topic").alias("sentTo"), "msgId").distinct()
    queues = ids.groupBy("topic", "brokerName", "queueId").agg(
        f.min("storedMs").alias("oldest"), f.min("queueOffset").alias("firstOffset")
    )
    span = queues.groupBy(f.col("topic").alias("sentTo")).agg(
        f.min("oldest").alias("oldest"), f.max("firstOffset").alias("firstOffset")
    )
    committed = traces.where("kind = 'EndTransaction' and state = 'COMMIT'")
    committed = committed.select("msgId", f.lit(True).alias("isCommitted")).distinct()
    put_aside = aside.select(f.col("topic").alias("sentTo"), "msgId", f.col("state").alias("asideAs"))
    fate = (
        f.when(f.col("asideAs") == WAITING, WAITING)
        .when(f.col("asideAs") == RECALLED, _WITHHELD)
        .when(f.expr("messageType = 'HALF' and isCommitted is null"), _WITHHELD)
        .when(f.expr("oldest is null or firstOffset = 0 or saidMs >= oldest"), _LOST)
        .otherwise("expired")
    )
    gone = sent.drop("state").join(there, ["sentTo", "msgId"], "left_anti").join(f.broadcast(span), "sentTo", "left")
    gone = gone.join(committed, "msgId", "left").join(put_aside, ["sentTo", "msgId"], "left")
    return gone.withColumn("fate", fate)


def _delivered(traces: DataFrame, stored: DataFrame, groups: Sequence[str]) -> DataFrame:
    """Of each group and message: when it was first handed to a consumer, and when it was stored."""
    from pyspark.sql import functions as f

    handed = traces.where("kind = 'SubBefore'")
    if groups:
        handed = handed.where(f.col("group").isin(*groups))
    first = handed.groupBy("group", "msgId").agg(f.min("saidMs").alias("firstMs"), f.max("retryTimes").alias("retries"))
    return first.join(stored.dropDuplicates(["msgId"]).select("msgId", "topic", "storedMs"), "msgId")


def _group_rows(
    delivered: DataFrame,
    traces: DataFrame,
    stored: DataFrame,
    offsets: Mapping[tuple[str, str], tuple[int, int]] | None,
    late_ms: int,
) -> list[tuple[Any, ...]]:
    from pyspark.sql import functions as f

    requests = traces.where("kind = 'SubBefore'").select("requestId", "msgId", f.col("group").alias("handedTo"))
    ends = traces.where("kind = 'SubAfter' and success").select("requestId", "msgId", "group")
    consumed = (
        ends.join(requests.dropDuplicates(["requestId", "msgId"]), ["requestId", "msgId"], "left")
        .select("msgId", f.coalesce(f.nullif("group", f.lit("")), "handedTo").alias("group"))
        .groupBy("group", "msgId")
        .agg(f.count(f.lit(1)).alias("times"))
    )
    joined = delivered.join(consumed, ["group", "msgId"], "left")
    found = joined.groupBy("group", "topic").agg(
        f.count(f.lit(1)),
        f.count("times"),
        f.count_if(f.col("times") > 1),
        f.count_if(f.col("firstMs") - f.col("storedMs") > late_ms),
    )
    rows = []
    seen = set()
    for group, topic, handed, done, twice, late in found.orderBy("group", "topic").collect():
        seen.add((group, topic))
        committed, waiting = (offsets or {}).get((group, topic), (UNKNOWN, UNKNOWN))
        rows.append((group, topic, handed, done, twice, late, committed, waiting))
    rows += [
        (group, topic, 0, 0, 0, 0, *places)
        for (group, topic), places in sorted((offsets or {}).items())
        if (group, topic) not in seen
    ]
    return rows


def _percentiles(spans: DataFrame) -> tuple[Any, ...]:
    from pyspark.sql import functions as f

    row = spans.agg(f.count("ms"), f.percentile_approx("ms", list(PERCENTILES), 10_000)).first()
    assert row is not None
    return (row[0], *(row[1] or [UNKNOWN] * len(PERCENTILES)))


def _spans(first: DataFrame) -> list[tuple[str, int]]:
    """How many were handed out within so many milliseconds, for a chart."""
    from pyspark.sql import functions as f

    bound = f.lit(None)
    for limit in reversed(_SPANS_MS):
        bound = f.when(f.col("ms") <= limit, limit).otherwise(bound)
    counts: dict[int | None, int] = dict(first.groupBy(bound.alias("bound")).count().collect())
    named = [(f"{limit} ms" if limit < 1000 else f"{limit // 1000} s", counts.get(limit, 0)) for limit in _SPANS_MS]
    return [*named, ("later", counts.get(None, 0))]


def _outcome(found: _Found, has_trace: bool, late_ms: int, selection: Selection, report_path: Path | None) -> Outcome:
    lost_count = sum(row[5] for row in found.topics) if has_trace else None
    tables = [
        Table(
            "topics",
            ("topic", "produced", "stored", "not yet due", "withheld", "lost", "duplicates"),
            tuple(found.topics),
        ),
        Table(
            "groups",
            (
                "group",
                "topic",
                "delivered",
                "consumed",
                "consumed twice",
                f"later than {late_ms / 1000:g} s",
                "committed",
                "waiting",
            ),
            tuple(found.groups),
        ),
        Table(
            "milliseconds",
            ("from - to", "messages", *(f"p{share * 100:g}" if share < 1 else "most" for share in PERCENTILES)),
            tuple(found.latencies),
        ),
        Table("lost: some of them", ("topic", "message id", "sent at (ms)", "producer group"), tuple(found.lost)),
        Table("duplicates: some of them", ("topic", "message id", "times"), tuple(found.doubled)),
    ]
    facts: dict[str, Any] = {
        "stored": sum(row[2] for row in found.topics),
        "lost": UNKNOWN if lost_count is None else lost_count,
        "not yet due": sum(row[3] for row in found.topics),
        "duplicates": sum(row[6] for row in found.topics),
        "selection": selection.described(),
    }
    if not has_trace:
        facts["trace"] = "none: what was produced and delivered is unknown; turn it on in clients (enable_trace)"
    if report_path is not None:
        report = Report("Audit", selection.described())
        report.facts({name: f"{value:,}" if isinstance(value, int) else value for name, value in facts.items()})
        report.chart(bars("Stored, by topic", [(row[0], row[2]) for row in found.topics]))
        if found.spans:
            report.chart(columns("From broker to consumer", found.spans, y_unit="messages"))
        chart = [(str(row[0]), float(row[4])) for row in found.latencies if row[4] != UNKNOWN]
        report.chart(bars("99th percentile", chart, unit="ms"))
        for table in tables:
            if table.rows:
                report.heading(table.title)
                report.table(table.heads, table.rows)
        report.save(report_path)
    return Outcome(
        "audit",
        facts,
        tables,
        report_path=None if report_path is None else str(report_path),
        is_good=not lost_count,
    )
