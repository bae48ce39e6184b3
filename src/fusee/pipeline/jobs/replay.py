"""Messages of an archive or of topics, sent again: chosen, counted first, at a bounded rate, once, never in circles.

Theory of operation
-------------------
What is to be sent is fixed when the replay begins, so that a replay into its own topic meets no message of its own. It
is divided into chunks, some offsets of each queue. A chunk is one Spark job and one batch of the sink, with the
replay's name and the chunk's number as its id: exactly once on a Fusee broker, where a chunk that was sent already is
recognised; at least once elsewhere. A small file (`state`) holds the plan and what is done; a replay that was
interrupted goes on with the next chunk. The rate is kept by waiting between chunks, which have no more messages than
may be sent in a second; a plan whose chunks have more is refused, since dividing a chunk would give its parts new ids.

Every message carries where it came from (FUSEE_REPLAY_ORIGIN) and how often it was replayed (FUSEE_REPLAYS). One that
was replayed as often as `generations_max` allows already is left out and counted: the loop guard. Messages of one queue
keep their order: chunks have them in the order of their offsets, and they go to one queue.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final

from fusee.clock import SystemClock
from fusee.errors import ConfigError
from fusee.message.properties import RESERVED_NAMES
from fusee.pipeline.jobs.archive import read_archive
from fusee.pipeline.jobs.outcome import Outcome, Silence, Table
from fusee.pipeline.jobs.replay_plan import CHUNK_ROWS, Chunk, ReplayState, plan_chunks
from fusee.pipeline.jobs.selection import Selection
from fusee.pipeline.jobs.tables import NAMES, Place, sql_text
from fusee.pipeline.positions import flat
from fusee.pipeline.registration import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.jobs.outcome import Observer

ORIGIN: Final = "FUSEE_REPLAY_ORIGIN"
REPLAYS: Final = "FUSEE_REPLAYS"
SAMPLES: Final = 20

_clock: Final = SystemClock()


def replay(
    spark: SparkSession,
    *,
    place: Place,
    topics: Sequence[str],
    sink: Mapping[str, str],
    to_topic: str | None = None,
    to_expression: str | None = None,
    selection: Selection | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    state_path: Path | None = None,
    generations_max: int = 1,
    chunk_rows: int = CHUNK_ROWS,
    observer: Observer | None = None,
    is_stopped: Callable[[], bool] | None = None,
) -> Outcome:
    """Sends the chosen messages of these topics to `to_topic`, or each to the topic it came from.

    `to_expression` is SQL over the columns that gives each message its topic. `sink` has options of the sink `fusee`
    (nameServer, delivery, ...). `rate` is in messages a second. With `dry_run` nothing is sent; the outcome says what
    would be, with samples. With `state_path` a replay that was interrupted, or that `is_stopped` stops, goes on where
    it was when it is called again with the same arguments; with others it is refused.
    """
    if rate is not None and rate <= 0:
        raise ConfigError(f"a rate of {rate} messages a second sends nothing: give one above 0, or none")
    if to_topic is not None and to_expression is not None:
        raise ConfigError("to_topic and to_expression contradict each other; give one")
    target = sql_text(to_topic) if to_topic is not None else to_expression or "topic"
    register(spark)
    told_to, chosen = observer or Silence(), selection or Selection()
    asked = {
        "source": dict(place.source),
        "archive": place.archive,
        "topics": list(topics),
        "to": target,
        "selection": chosen.described(),
        "generations_max": generations_max,
    }
    rows_per_chunk = chunk_rows if rate is None or dry_run else max(1, min(chunk_rows, int(rate)))
    told_to.step("finding what is to be sent")
    # A look leaves no state behind, in which its chunks would stand for those of a replay at some rate.
    path = None if dry_run and state_path is not None and not state_path.exists() else state_path
    state = ReplayState.opened(
        path,
        asked,
        lambda: plan_chunks(spark, place, topics, chosen, rows_per_chunk),
        rows_per_chunk=rows_per_chunk,
        rate=None if dry_run else rate,
    )
    if dry_run:
        return _dry_run(spark, place, state, chosen, generations_max, target)
    told_to.step(f"sending {len(state.chunks)} chunks")
    done_before = state.done
    began = _clock.monotonic()
    for number in range(state.done, len(state.chunks)):
        if is_stopped is not None and is_stopped():
            break
        counts = _send(spark, place, state, number, chosen, generations_max, target, sink)
        state.finished(number, counts)
        told_to.advanced(number + 1, len(state.chunks))
        if rate is not None:
            _keep_rate(state.sent - state.sent_before, rate, began, is_stopped)
    return _outcome(state, done_before, _clock.monotonic() - began)


def with_generation(rows: DataFrame) -> DataFrame:
    """The rows with how often each was replayed before."""
    from pyspark.sql import functions as f

    generation = f.coalesce(f.try_element_at("properties", f.lit(REPLAYS)).cast("int"), f.lit(0))
    return rows.withColumn("generation", generation)


def replayable(marked: DataFrame, generations_max: int, target: str) -> DataFrame:
    """The rows that the loop guard lets through, as the sink wants them; `_place` is to order them by."""
    from pyspark.sql import functions as f

    origin = f.concat_ws(
        "/", "topic", "brokerName", f.col("queueId").cast("string"), f.col("queueOffset").cast("string")
    )
    reserved = f.array(*(f.lit(name) for name in sorted(RESERVED_NAMES | {ORIGIN, REPLAYS})))
    own = f.map_filter("properties", lambda name, _: ~f.array_contains(reserved, name))
    added = f.create_map(
        f.lit(ORIGIN),
        f.coalesce(f.try_element_at("properties", f.lit(ORIGIN)), origin),
        f.lit(REPLAYS),
        (f.col("generation") + 1).cast("string"),
    )
    return marked.where(f.col("generation") < generations_max).select(
        f.expr(target).alias("topic"),
        "body",
        "keys",
        "tags",
        f.map_concat(f.coalesce(own, f.create_map().cast("map<string,string>")), added).alias("properties"),
        f.concat_ws("/", "topic", "brokerName", f.col("queueId").cast("string")).alias("orderBy"),
        f.col("queueOffset").alias("_place"),
    )


def _send(
    spark: SparkSession,
    place: Place,
    state: ReplayState,
    number: int,
    selection: Selection,
    generations_max: int,
    target: str,
    sink: Mapping[str, str],
) -> tuple[int, int]:
    """How many of the chunk were sent, and how many the loop guard held back."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation(f"chunk-{number}")
    marked = with_generation(selection.applied(_chunk_rows(spark, place, state.chunks[number]))).observe(
        seen,
        f.count(f.lit(1)).alias("rows"),
        f.count_if(f.col("generation") >= generations_max).alias("held"),
    )
    sent = replayable(marked, generations_max, target)
    # One queue's messages stay together and in order on their way to the sink.
    ordered = sent.repartition(max(1, spark.sparkContext.defaultParallelism), "orderBy").sortWithinPartitions(
        "orderBy", "_place"
    )
    options = {"delivery": "auto", **sink, "txnAppId": f"replay-{state.name}", "txnVersion": str(number)}
    ordered.drop("_place").write.format("fusee").options(**options).mode("append").save()
    counts = seen.get
    return int(counts["rows"]) - int(counts["held"]), int(counts["held"])


def _chunk_rows(spark: SparkSession, place: Place, chunk: Chunk) -> DataFrame:
    """The rows of one chunk, with the columns of the source."""
    if chunk.hours:
        return _archived_rows(spark, place, chunk)
    options = {**place.source, "assign": chunk.assign, "startingOffsets": chunk.starting, "endingOffsets": chunk.ending}
    return spark.read.format("fusee").options(**options).load().select(*NAMES)


def _archived_rows(spark: SparkSession, place: Place, chunk: Chunk) -> DataFrame:
    from pyspark.sql import functions as f

    assert place.archive is not None
    starts, ends = flat(json.loads(chunk.starting)), flat(json.loads(chunk.ending))
    ranges = [(queue.topic, queue.broker_name, queue.queue_id, start, ends[queue]) for queue, start in starts.items()]
    # A join, and not a condition for each queue: there may be thousands. The files' own statistics serve the filter.
    limits = spark.createDataFrame(ranges, "topic string, brokerName string, queueId int, _start bigint, _end bigint")
    rows = read_archive(spark, place.archive, topics={queue.topic for queue in starts}, hours=chunk.hours)
    offset = f.col("queueOffset")
    rows = rows.where((offset >= min(starts.values())) & (offset < max(ends.values())))
    rows = rows.join(f.broadcast(limits), ["topic", "brokerName", "queueId"])
    return rows.where((offset >= f.col("_start")) & (offset < f.col("_end"))).select(*NAMES)


def _keep_rate(sent: int, rate: float, began: float, is_stopped: Callable[[], bool] | None) -> None:
    """Waits until so many messages are not too many for the time since the beginning."""
    pause = threading.Event()
    while (ahead := sent / rate - (_clock.monotonic() - began)) > 0:
        if is_stopped is not None and is_stopped():
            return
        pause.wait(min(ahead, 0.2))


def _dry_run(
    spark: SparkSession,
    place: Place,
    state: ReplayState,
    selection: Selection,
    generations_max: int,
    target: str,
) -> Outcome:
    from pyspark.sql import functions as f

    would: dict[str, list[int]] = {}
    held_count = 0
    samples: list[tuple[object, ...]] = []
    for chunk in state.chunks[state.done :]:
        marked = with_generation(selection.applied(_chunk_rows(spark, place, chunk)))
        sent = replayable(marked, generations_max, target)
        held_count += marked.where(f.col("generation") >= generations_max).count()
        for row in sent.groupBy("topic").agg(f.count(f.lit(1)), f.sum(f.length("body"))).collect():
            sums = would.setdefault(row[0], [0, 0])
            sums[0] += row[1]
            sums[1] += row[2] or 0
        if len(samples) < SAMPLES:
            some = sent.select("topic", "keys", "tags", f.element_at("properties", ORIGIN), f.length("body"))
            samples += [tuple(row) for row in some.limit(SAMPLES - len(samples)).collect()]
    facts: dict[str, Any] = {
        "would be sent": sum(sums[0] for sums in would.values()),
        "held back by the loop guard": held_count,
        "selection": selection.described(),
    }
    tables = [
        Table(
            "would be sent", ("to topic", "messages", "bytes"), tuple((t, *sums) for t, sums in sorted(would.items()))
        ),
        Table("the first of them", ("to topic", "keys", "tags", "origin", "bytes"), tuple(samples)),
    ]
    return Outcome("replay, dry run", facts, tables)


def _outcome(state: ReplayState, done_before: int, seconds: float) -> Outcome:
    facts: dict[str, Any] = {
        "sent": state.sent,
        "held back by the loop guard": state.held,
        "chunks": f"{state.done} of {len(state.chunks)}",
        "seconds": round(seconds, 1),
    }
    if done_before:
        facts["done by an earlier run"] = f"{done_before} chunks"
    if state.done < len(state.chunks):
        facts["to go on"] = "run it again with the same state file"
    table = Table("chunks of this run", ("chunk", "sent", "held back"), tuple(state.counted(done_before)))
    return Outcome("replay", facts, [table], is_good=state.done == len(state.chunks))
