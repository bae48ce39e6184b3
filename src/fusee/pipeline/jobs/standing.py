"""How far brokers are: what groups have committed and which delayed messages wait, live or in a store directory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fusee.clock import SystemClock
from fusee.message import properties as names
from fusee.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from fusee.pipeline.jobs.tables import Place, read_place
from fusee.pipeline.options import read_options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.options import ReadOptions
    from fusee.sync import Connection

WAITING: Final = "waiting"
RECALLED: Final = "recalled"
_NEVER: Final = 2**63 - 1
_BOUNDS_SCHEMA: Final = "brokerName string, queueId int, firstOffset bigint, firstMs bigint"

_clock: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known beside the messages. An archive knows nothing of it."""

    groups: Mapping[tuple[str, str], tuple[int, int]] | None = None
    """Of each group and topic: messages before its offsets that are still there or were, and those behind."""
    delayed: Sequence[tuple[str, int, int | None, int | None]] = field(default_factory=list)
    """Broker and queue of SCHEDULE_TOPIC_XXXX, one for each level: offset of the first that waits, or when stored."""
    now_ms: int | None = None
    """The time to hold delivery times against, where brokers are at work."""


def standing(place: Place, topics: Sequence[str], groups: Sequence[str] = ()) -> Standing:
    """How far these groups, or all, are in these topics, and how far delayed messages are delivered.

    Raises what connecting to a cluster raises, and StoreError when a directory is no store.
    """
    if not place.is_live:
        return Standing()
    options = read_options({"subscribePattern": ".*", **place.source}, reading="batch")
    if options.store:
        return _stored(options.store, topics, groups)
    with _connected(options) as mq:
        now_ms = _clock.time_ms()
        return Standing(_live_groups(mq, topics, groups), _live_levels(mq), now_ms)


def undelivered(
    spark: SparkSession, place: Place, topics: Sequence[str], known: Collection[str], stands: Standing
) -> DataFrame:
    """Messages for these topics that wait for their time, or were taken back: topic, msgId, storedMs, state.

    Some of them may be in their topics already. A broker that does not tell how far it has delivered a level has
    delivered none of it, for all that is known.
    """
    from pyspark.sql import functions as f

    columns = "topic string, msgId string, storedMs bigint, state string"
    found = spark.createDataFrame([], columns)
    real_topic = f.element_at("properties", names.REAL_TOPIC)
    stored_ms = f.unix_millis("storeTimestamp").alias("storedMs")
    if SCHEDULE_TOPIC in known:
        rows = read_place(spark, place, [SCHEDULE_TOPIC]).where(real_topic.isin(*topics))
        bounds = f.broadcast(spark.createDataFrame(stands.delayed, _BOUNDS_SCHEMA))
        levels = rows.select(
            real_topic.alias("topic"), "msgId", stored_ms, "brokerName", "queueId", "queueOffset"
        ).join(bounds, ["brokerName", "queueId"], "left")
        levels = levels.where("coalesce(queueOffset >= firstOffset, storedMs >= firstMs, true)")
        found = found.unionByName(levels.select("topic", "msgId", "storedMs", f.lit(WAITING).alias("state")))
    if TIMER_TOPIC in known:
        timed = read_place(spark, place, [TIMER_TOPIC]).where(real_topic.isin(*topics))
        due_ms = f.element_at("properties", names.TIMER_OUT_MS).try_cast("bigint").alias("dueMs")
        taken_back = f.substring_index(f.element_at("properties", names.TIMER_DEL_UNIQKEY), "_", -1).alias("takenBack")
        rows = timed.select(real_topic.alias("topic"), "msgId", stored_ms, due_ms, taken_back)
        found = found.unionByName(_timed(rows, stands.now_ms))
    return found.dropDuplicates(["topic", "msgId"])


def _timed(rows: DataFrame, now_ms: int | None) -> DataFrame:
    """Those of the timer wheel that are due later than now, or than the last of them was stored; and the recalled."""
    from pyspark.sql import functions as f

    if now_ms is None:
        newest = rows.agg(f.max("storedMs")).first()
        now_ms = newest[0] if newest is not None and newest[0] is not None else 0
    taken = rows.where("takenBack is not null")
    taken = taken.select("topic", f.col("takenBack").alias("msgId"), "storedMs", f.lit(RECALLED).alias("state"))
    waiting = rows.where("takenBack is null").where(f.col("dueMs") > now_ms)
    waiting = waiting.join(taken.select("topic", "msgId"), ["topic", "msgId"], "left_anti")
    return taken.unionByName(waiting.select("topic", "msgId", "storedMs", f.lit(WAITING).alias("state")))


def _connected(options: ReadOptions) -> Connection:
    import fusee.sync
    from fusee.pipeline.blocking_link import client_context

    given = options.tls
    tls = None
    if given is not None:
        tls = client_context(ca_file=given.ca_file, certificate=given.certificate, key=given.key, verify=given.verify)
    return fusee.sync.connect(options.name_servers, tls=tls, mq_client_api_timeout_ms=options.request_timeout_ms)


def _live_groups(
    mq: Connection, topics: Sequence[str], groups: Sequence[str]
) -> dict[tuple[str, str], tuple[int, int]]:
    from fusee.errors import GroupNotFoundError, TopicNotFoundError

    found: dict[tuple[str, str], tuple[int, int]] = {}
    for group in groups or mq.admin.list_groups():
        try:
            queues = mq.admin.lag(group, owners=False).queues
        except (GroupNotFoundError, TopicNotFoundError):
            continue
        for one in queues:
            if one.queue.topic in topics:
                committed, waiting = found.get((group, one.queue.topic), (0, 0))
                found[group, one.queue.topic] = (committed + one.committed_offset, waiting + one.lag)
    return found


def _live_levels(mq: Connection) -> list[tuple[str, int, int | None, int | None]]:
    found: list[tuple[str, int, int | None, int | None]] = []
    for each in mq.admin.delays().levels:
        first_ms = _NEVER if not each.waiting else None
        if each.next_due_ms is not None:
            first_ms = each.next_due_ms - each.delay_ms
        found.append((each.broker_name, each.level - 1, None, first_ms))
    return found


def _stored(directories: Sequence[str], topics: Sequence[str], groups: Sequence[str]) -> Standing:
    from fusee.pipeline.store_dir import named_directories
    from fusee.store.offline.configuration import Configuration
    from fusee.store.offline.files import OfflineStore
    from fusee.store.offline.queue_ends import queue_span

    found: dict[tuple[str, str], tuple[int, int]] = {}
    delayed: list[tuple[str, int, int | None, int | None]] = []
    for broker_name, directory in named_directories(directories).items():
        with OfflineStore(Path(directory)) as store:
            configuration = Configuration(store)
            for one in configuration.committed_offsets():
                if one.topic not in topics or (groups and one.group not in groups):
                    continue
                end = queue_span(store.queue(one.topic, one.queue_id), store.log.min_offset).max_offset
                committed, waiting = found.get((one.group, one.topic), (0, 0))
                found[one.group, one.topic] = (committed + one.queue_offset, waiting + max(end - one.queue_offset, 0))
            delayed += [(broker_name, level - 1, first, None) for level, first in _delay_offsets(configuration).items()]
    return Standing(found, delayed)


def _delay_offsets(configuration: Any) -> dict[int, int]:
    """By level, the offset of the first message that was not delivered when its broker last said so."""
    table = (configuration.value("delayOffset.json") or {}).get("offsetTable")
    if not isinstance(table, dict):
        return {}
    return {int(level): first for level, first in table.items() if str(level).isdecimal() and isinstance(first, int)}
