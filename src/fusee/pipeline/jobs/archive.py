"""Topics to Parquet, by topic, date and hour: once or for good, exactly once, in files of a size that is good to read.

    archive(spark, topics=["orders"], to="/data/archive", source={"nameServer": "127.0.0.1:9876"})

A stream fills the archive batch by batch, each a change of the `catalog`. What the archive holds is read by
`read_archive`; any program that reads Parquet can read its folders as well. Hours are those in which the broker stored
a message, in UTC.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from fusee.clock import SystemClock
from fusee.errors import ConfigError, FuseeError
from fusee.message.model import MessageQueue
from fusee.pipeline.jobs.catalog import CHECKPOINT, HOUR, ArchivedFile, Catalog, Entry, written
from fusee.pipeline.jobs.folders import Folder
from fusee.pipeline.jobs.outcome import Outcome, Silence, Table
from fusee.pipeline.jobs.task_progress import told
from fusee.pipeline.options import read_options
from fusee.pipeline.positions import StreamOffset, nested
from fusee.pipeline.registration import register
from fusee.pipeline.schema import COLUMNS, columns_of, ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from fusee.clock import Clock
    from fusee.pipeline.jobs.outcome import Observer

GROUP: Final = "fusee-archive"
FILE_SIZE: Final = 128 << 20
ROWS_PER_BATCH: Final = 1_000_000
PARTITION_COLUMNS: Final = ("topic", "date", "hour")
ARCHIVE_SCHEMA: Final = f"{ddl(columns_of())}, date string, hour int"
_POLL_S: Final = 1

_clock: Clock = SystemClock()


def archive(
    spark: SparkSession,
    *,
    to: str,
    topics: Sequence[str] = (),
    source: Mapping[str, str],
    continuous: bool = False,
    every_s: float = 60.0,
    rows_per_batch: int = ROWS_PER_BATCH,
    file_size: int = FILE_SIZE,
    compact_after: bool = True,
    observer: Observer | None = None,
    is_stopped: Callable[[], bool] | None = None,
) -> Outcome:
    """Brings the archive up to what the topics hold now; with `continuous` goes on until `is_stopped` says so.

    `source` has options of the source `fusee` (nameServer or store, subscribePattern, tags, group, ...). A first run
    begins at the first message that is still there, a later one where the last one ended, also when the checkpoint is
    lost. Small files of an hour are put together afterwards (`compact`); a continuous archive does so after its batches
    too, with hours that are over. Raises FuseeError when another writer is at work.
    """
    register(spark)
    told_to = observer or Silence()
    folder = Folder(spark, to)
    catalog = Catalog(folder)
    catalog.finish()
    first = catalog.next_number
    merged: list[tuple[str, int, int]] = []

    def take(rows: DataFrame, batch_id: int) -> None:
        _take(rows, batch_id, folder, catalog, file_size)
        if continuous and compact_after:
            merged.extend(_compact(spark, folder, catalog, file_size, Silence(), _is_closed(catalog)))

    query = _start(spark, folder, catalog, take, topics, source, continuous, every_s, rows_per_batch)
    told_to.step(f"archiving to {folder.root}")
    try:
        _follow(query, told_to, is_stopped or (lambda: False))
    finally:
        query.stop()
    # A stop may have cut a change short.
    catalog.refresh()
    catalog.finish()
    if compact_after:
        merged += _compact(spark, folder, catalog, file_size, told_to)
    return _outcome("archive", folder, catalog, catalog.entries[first:], merged)


def compact(
    spark: SparkSession, *, archive_path: str, file_size: int = FILE_SIZE, observer: Observer | None = None
) -> Outcome:
    """Puts small files of the same topic and hour together, so that each has about `file_size` bytes."""
    told_to = observer or Silence()
    folder = Folder(spark, archive_path)
    catalog = _existing(folder)
    catalog.finish()
    first = catalog.next_number
    merged = _compact(spark, folder, catalog, file_size, told_to)
    return _outcome("compaction", folder, catalog, catalog.entries[first:], merged)


def read_archive(
    spark: SparkSession,
    archive_path: str,
    *,
    topics: Collection[str] | None = None,
    hours: Collection[str] | None = None,
) -> DataFrame:
    """The rows of an archive at this moment: the columns of the source, `date` and `hour`.

    A change of the archive shows whole or not at all. With `topics`, or with `hours` (as the catalog's HOUR), the files
    of others are not looked at.
    """
    folder = Folder(spark, archive_path)
    rows = spark.createDataFrame([], ARCHIVE_SCHEMA)
    for root, paths in _existing(folder).resolve(topics=topics, hours=hours).items():
        rows = rows.unionByName(_rows(spark, root, paths))
    return rows.select(*(column.name for column in COLUMNS), "date", "hour")


def catalog_outcome(spark: SparkSession, archive_path: str) -> Outcome:
    """What is archived up to which offset, by topic and by queue."""
    folder = Folder(spark, archive_path)
    return _outcome("archive", folder, _existing(folder), (), [])


def _start(
    spark: SparkSession,
    folder: Folder,
    catalog: Catalog,
    take: Callable[[DataFrame, int], None],
    topics: Sequence[str],
    source: Mapping[str, str],
    continuous: bool,
    every_s: float,
    rows_per_batch: int,
) -> StreamingQuery:
    options = {"failOnDataLoss": "true", **({} if "store" in source else {"group": GROUP}), **source}
    if topics:
        options["subscribe"] = ",".join(topics)
    if "startingOffsets" not in options:
        positions = _positions(catalog, options)
        if not _is_known(folder, positions):
            folder.delete(CHECKPOINT)
        options["startingOffsets"] = json.dumps(nested(positions)) if positions else "earliest"
    options.setdefault("maxOffsetsPerTrigger", str(rows_per_batch))
    if options.get("kafkaCompatible") == "true" or options.get("includeProperties") == "false":
        raise ConfigError("an archive has every column: leave kafkaCompatible and includeProperties out")

    writer = spark.readStream.format("fusee").options(**options).load().writeStream
    writer = writer.foreachBatch(take).option("checkpointLocation", folder.uri(CHECKPOINT)).queryName("fusee-archive")
    trigger: dict[str, Any] = (
        {"processingTime": f"{max(every_s, 0.1):g} seconds"} if continuous else {"availableNow": True}
    )
    return writer.trigger(**trigger).start()


def _positions(catalog: Catalog, options: Mapping[str, str]) -> dict[MessageQueue, int]:
    """Where the queues that are read now are behind what is archived; the archive may know more queues."""
    positions = catalog.positions()
    if not positions:
        return {}
    from fusee.pipeline.reading import open_view

    asked = read_options(options, reading="stream")
    view = open_view(asked)
    try:
        return {queue: positions[queue] for queue in view.queues(asked.topics) if queue in positions}
    finally:
        view.close()


def _is_known(folder: Folder, positions: Mapping[MessageQueue, int]) -> bool:
    """Whether the checkpoint, if there is one, knows all these queues.

    A stream reads one that it does not know from its beginning. That can be one that is archived already, when the
    checkpoint was lost and the stream that made the next one did not read it.
    """
    numbers = [name for name in folder.names(f"{CHECKPOINT}/offsets") if name.isdigit()]
    if not numbers:
        return True
    written_down = folder.read(f"{CHECKPOINT}/offsets/{max(numbers, key=int)}").splitlines()
    return positions.keys() <= StreamOffset.from_json(json.loads(written_down[-1])).to.keys()


def _take(rows: DataFrame, batch_id: int, folder: Folder, catalog: Catalog, file_size: int) -> None:
    """One batch of the stream becomes one change of the catalog, or is recognised as one that already is."""
    spark = rows.sparkSession
    query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    if catalog.has_batch(query_id, batch_id):
        return
    number = catalog.next_number
    entry = Entry(
        number=number,
        kind="batch",
        query_id=query_id,
        batch_id=batch_id,
        made_at_ms=_clock.time_ms(),
        attempt=uuid4().hex,
    )
    added = _stage(_by_hour(rows), folder, entry, f"b{number:012}")
    if not added:
        return
    root = folder.uri(entry.staged)
    staged = _rows(spark, root, [f"{root}/{one.path}" for one in added])
    ends = staged.groupBy("topic", "brokerName", "queueId").agg({"queueOffset": "max"}).collect()
    positions = {MessageQueue(row[0], row[1], row[2]): row[3] + 1 for row in ends}
    catalog.commit(replace(entry, added=tuple(added), positions=written(positions)))


def _rows(spark: SparkSession, root: str, paths: Sequence[str]) -> DataFrame:
    """These files, whose folders below `root` have the values of topic, date and hour."""
    return spark.read.schema(ARCHIVE_SCHEMA).option("basePath", root).parquet(*paths)


def _by_hour(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    # Hours are of UTC whatever the session's time zone is: a timestamp in seconds knows none.
    seconds = f.unix_seconds("storeTimestamp")
    day = f.date_add(f.lit("1970-01-01").cast("date"), (seconds / 86_400).cast("int"))
    return rows.withColumns(
        {"date": f.date_format(day, "yyyy-MM-dd"), "hour": ((seconds % 86_400) / 3_600).cast("int")}
    )


def _stage(rows: DataFrame, folder: Folder, entry: Entry, prefix: str) -> list[ArchivedFile]:
    """Writes the rows below the entry's staged folder, under names that no other entry gives."""
    raw = f"{entry.staged}/raw"
    writer = (
        rows.write.mode("overwrite").option("compression", "zstd").option("parquet.enable.dictionary#body", "false")
    )
    writer.partitionBy(*PARTITION_COLUMNS).parquet(folder.uri(raw))
    spark = rows.sparkSession
    counts = _row_counts(spark, folder, raw)
    added = []
    for number, fact in enumerate(one for one in folder.files(raw) if one.path.endswith(".parquet")):
        partition = fact.path.removeprefix(f"{raw}/").rpartition("/")[0]
        path = f"{partition}/{prefix}-{number}.parquet"
        values = dict(part.split("=", 1) for part in partition.split("/"))
        topic = _unescaped(values["topic"])
        rows_of_file = counts[fact.path]
        added.append(ArchivedFile(path, rows_of_file, fact.size, topic, values["date"], int(values["hour"])))
        folder.move(fact.path, f"{entry.staged}/{path}")
    folder.delete(raw)
    return added


def _row_counts(spark: SparkSession, folder: Folder, raw: str) -> dict[str, int]:
    """Rows of each file: from the files' own footers, since only the name of each row's file is asked for."""
    from pyspark.sql import functions as f

    if not any(one.path.endswith(".parquet") for one in folder.files(raw)):
        return {}
    rows = spark.read.parquet(folder.uri(raw)).groupBy(f.col("_metadata.file_path")).count().collect()
    jvm: Any = spark._jvm
    root = jvm.org.apache.hadoop.fs.Path(folder.root).toUri().getPath()
    found = {}
    for row in rows:
        # Spark gives it percent-encoded: a folder's own escapes are encoded once more.
        path = jvm.java.net.URI(row[0]).getPath()
        found[path.removeprefix(f"{root}/")] = row[1]
    return found


def _unescaped(name: str) -> str:
    """A partition's value as it was before Spark made a folder's name of it (%RETRY%group is one)."""
    from urllib.parse import unquote

    return unquote(name)


def _follow(query: StreamingQuery, observer: Observer, is_stopped: Callable[[], bool]) -> None:
    """Until the query ends by itself, fails, or is to stop."""
    from pyspark.errors import StreamingQueryException

    seen = -1
    rows = 0
    while query.isActive:
        try:
            query.awaitTermination(_POLL_S)
        except StreamingQueryException as failure:
            raise FuseeError(f"the archive's stream ended: {failure}") from failure
        progress = query.lastProgress
        if progress is not None and progress.batchId > seen:
            seen = progress.batchId
            rows += progress.numInputRows
            observer.advanced(rows, None)
        if is_stopped():
            break


def _is_closed(catalog: Catalog) -> Callable[[ArchivedFile], bool]:
    """Whether the hour of a file is over, and the last batch had nothing of it: no more is likely to come."""
    last = next((entry for entry in reversed(catalog.entries) if entry.kind == "batch"), None)
    filled = {one.partition for one in last.added} if last is not None else set()
    now = datetime.fromtimestamp(_clock.time_ms() / 1000, UTC)
    current = HOUR % (f"{now:%Y-%m-%d}", now.hour)
    return lambda one: HOUR % (one.date, one.hour) < current and one.partition not in filled


def _compact(
    spark: SparkSession,
    folder: Folder,
    catalog: Catalog,
    file_size: int,
    observer: Observer,
    is_meant: Callable[[ArchivedFile], bool] = lambda _: True,
) -> list[tuple[str, int, int]]:
    """Of each topic and hour that is meant and whose files are small: the partition, files before, files after."""
    by_partition: dict[str, list[ArchivedFile]] = {}
    for one in filter(is_meant, catalog.files()):
        by_partition.setdefault(one.partition, []).append(one)
    merged = []
    for partition, files in by_partition.items():
        small = [one for one in files if one.size < file_size // 2]
        wanted = max(1, -(-sum(one.size for one in small) // file_size))
        if len(small) < 2 or wanted >= len(small):
            continue
        number = catalog.next_number
        entry = Entry(number=number, kind="compaction", made_at_ms=_clock.time_ms(), attempt=uuid4().hex)
        with told(spark, observer, f"putting {len(small)} files of {partition} together"):
            rows = _rows(spark, folder.root, [folder.uri(one.path) for one in small])
            ordered = rows.coalesce(wanted).sortWithinPartitions("brokerName", "queueId", "queueOffset")
            added = _stage(ordered, folder, entry, f"c{number:012}")
        if sum(one.rows for one in added) != sum(one.rows for one in small):
            raise FuseeError(f"{partition} has other rows after compaction than before; nothing was changed")
        catalog.commit(replace(entry, added=tuple(added), removed=tuple(one.path for one in small)))
        merged.append((partition, len(small), len(added)))
    return merged


def _existing(folder: Folder) -> Catalog:
    catalog = Catalog(folder)
    if not catalog.entries:
        raise FuseeError(
            f"there is no archive at {folder.root}: make one with `fusee pipeline archive --to {folder.root}`"
        )
    return catalog


def _outcome(
    title: str, folder: Folder, catalog: Catalog, made: Sequence[Entry], merged: Sequence[tuple[str, int, int]]
) -> Outcome:
    rows_now: dict[str, list[int]] = {}
    for one in catalog.files():
        sums = rows_now.setdefault(one.topic, [0, 0, 0])
        sums[0] += one.rows
        sums[1] += one.size
        sums[2] += 1
    new_rows = sum(one.rows for entry in made if entry.kind == "batch" for one in entry.added)
    tables = [
        Table(
            "archived, by topic",
            ("topic", "rows", "bytes", "files"),
            tuple((topic, *sums) for topic, sums in sorted(rows_now.items())),
        ),
        Table(
            "archived up to",
            ("topic", "broker", "queue", "next offset"),
            tuple(
                (queue.topic, queue.broker_name, queue.queue_id, queue_offset)
                for queue, queue_offset in sorted(catalog.positions().items())
            ),
        ),
    ]
    if merged:
        tables.append(Table("put together", ("hour", "files before", "files now"), tuple(merged)))
    facts = {
        "archive": folder.root,
        "new rows": new_rows,
        "rows": sum(sums[0] for sums in rows_now.values()),
        "files": sum(sums[2] for sums in rows_now.values()),
        "changes": len(made),
    }
    return Outcome(title, facts, tables)
