"""Consume queues and index of a large log, made again in parallel: what a broker would do at its start, by all cores.

Every worker must reach the store directory and the target under the same path. Segments of the log are scanned in
parallel; rows of a queue meet in one task, in log order, and become its files; entries of the index are numbered
through the whole log, and each file of the index is one task. The files are those that the broker would write
(`store.offline.rebuild`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fusee.errors import ConfigError, FuseeError
from fusee.pipeline.jobs.outcome import Outcome, Silence, Table
from fusee.pipeline.jobs.task_progress import told
from fusee.store.config import StoreConfig
from fusee.store.layout import StorePaths
from fusee.store.offline.files import OfflineStore
from fusee.store.offline.rebuild import entries_per_file, index_name, index_shape, segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.jobs.outcome import Observer

QUEUES: Final = "consumequeue"
INDEX: Final = "index"
_QUEUE_SCHEMA: Final = (
    "topic string, queueId int, queueOffset bigint, logOffset bigint, size bigint, tagsCode bigint, stored bigint, "
    "batchCount bigint"
)
_INDEX_SCHEMA: Final = "segment int, position bigint, hash bigint, logOffset bigint, stored bigint"
_ENDS_SCHEMA: Final = (
    "segment int, records bigint, entries bigint, firstLog bigint, firstStored bigint, lastLog bigint, "
    "lastStored bigint"
)


def rebuild(
    spark: SparkSession,
    *,
    store: Path,
    to: Path,
    kinds: Sequence[str] = (QUEUES, INDEX),
    config: StoreConfig | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Writes consume queues and index of the log in `store` below `to`, which has neither yet.

    `config` has the sizes of their files, if they are not RocketMQ's defaults. The store is only read; put the folders
    in the place of the old ones while its broker is stopped. Raises ConfigError when `to` is not empty of them, and
    when a broker has the store open.
    """
    settings, told_to = config or StoreConfig(), observer or Silence()
    unknown = set(kinds) - {QUEUES, INDEX}
    if unknown or not kinds:
        raise ConfigError(f"what is to be rebuilt? {QUEUES}, {INDEX} or both; not {', '.join(unknown) or 'nothing'}")
    with OfflineStore(store) as opened:
        if (holder := opened.holder()) is not None:
            raise ConfigError(f"{store} is in use by process {holder}: stop the broker, or rebuild a copy")
        old_names = [path.name for path in opened.index_files()]
    target = StorePaths(to)
    for kind, folder in ((QUEUES, target.consume_queues), (INDEX, target.index)):
        if kind in kinds and folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is there already; give another folder, or remove it")
    found = segments(store)
    parts = [(number, str(path), base, number == len(found) - 1) for number, (path, base) in enumerate(found)]
    if not parts:
        raise FuseeError(f"there is no log in {store}")
    pieces = spark.createDataFrame(parts, "segment int, path string, base bigint, isLast boolean").repartition(
        min(len(parts), max(2, spark.sparkContext.defaultParallelism * 4)), "segment"
    )
    with told(spark, told_to, f"scanning {len(parts)} files of the log"):
        ends = {row.segment: row for row in pieces.mapInArrow(_scan_ends(settings), _ENDS_SCHEMA).collect()}
    used = [ends[number] for number, *_ in parts if number in ends and ends[number].records]
    facts: dict[str, Any] = {"records": sum(row.records for row in used), "segments": len(parts)}
    tables = []
    if QUEUES in kinds:
        with told(spark, told_to, "writing consume queues"):
            written = _write_queues(pieces, settings, str(to))
        facts["queues"] = len(written)
        facts["queue entries"] = sum(row.entries for row in written)
        tables.append(Table("consume queues", ("topic", "queue", "entries"), tuple(tuple(row) for row in written)))
    if INDEX in kinds and used:
        with told(spark, told_to, "writing the index"):
            rows = _write_index(spark, pieces, used, settings, str(to), old_names)
        facts["index entries"] = sum(row[1] for row in rows)
        tables.append(Table("index files", ("file", "entries"), tuple(rows)))
    return Outcome("rebuild", facts, tables)


def _write_queues(pieces: DataFrame, config: StoreConfig, to: str) -> list[Any]:
    rows = pieces.mapInArrow(_scan_queues(config), _QUEUE_SCHEMA)
    ordered = rows.repartition("topic", "queueId").sortWithinPartitions("topic", "queueId", "logOffset")
    written = ordered.mapInArrow(_queue_writer(config, to), "topic string, queueId int, entries bigint")
    return (
        written.groupBy("topic", "queueId")
        .sum("entries")
        .toDF("topic", "queueId", "entries")
        .orderBy("topic", "queueId")
        .collect()
    )


def _write_index(
    spark: SparkSession, pieces: DataFrame, used: Sequence[Any], config: StoreConfig, to: str, old_names: Sequence[str]
) -> list[tuple[str, int]]:
    from pyspark.sql import functions as f

    per_file = entries_per_file(index_shape(config))
    bases: list[tuple[int, int]] = []
    total = 0
    for row in used:
        bases.append((row.segment, total))
        total += row.entries
    count = max(1, -(-total // per_file))
    first, last = used[0], used[-1]
    based = spark.createDataFrame(bases, "segment int, before bigint")
    entries = pieces.mapInArrow(_scan_index(config), _INDEX_SCHEMA).join(f.broadcast(based), "segment")
    numbered = entries.select(
        (f.col("before") + f.col("position")).alias("number"), "hash", "logOffset", "stored"
    ).withColumn("file", f.expr(f"cast(number div {per_file} as int)"))
    ordered = numbered.repartitionByRange(count, "file").sortWithinPartitions("number")
    # The names of old files say when they were begun, which is written nowhere else.
    names = list(old_names) if len(old_names) == count else [index_name(first.firstStored, n) for n in range(count)]
    writer = _index_writer(
        config, to, names, (first.firstLog, first.firstStored), (last.lastLog, last.lastStored), count
    )
    if not total:
        from fusee.store.offline.rebuild import write_index_file

        path = StorePaths(Path(to)).index / names[0]
        write_index_file(
            path, config, iter(()), begin=(first.firstLog, first.firstStored), end=(last.lastLog, last.lastStored)
        )
        return [(names[0], 0)]
    found = ordered.mapInArrow(writer, "file int, entries bigint").orderBy("file").collect()
    return [(names[row.file], row.entries) for row in found]


# On workers


def _scan(batches: Iterator[pa.RecordBatch], config: StoreConfig) -> Iterator[tuple[int, Any]]:
    from fusee.store.offline.rebuild import scan_segment

    for batch in batches:
        for row in batch.to_pylist():
            for scanned in scan_segment(Path(row["path"]), row["base"], config, is_last=row["isLast"]):
                yield row["segment"], scanned


def _scan_ends(config: StoreConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        found: dict[int, list[int]] = {}
        for segment, one in _scan(batches, config):
            ends = found.setdefault(segment, [0, 0, *one.first, *one.last])
            ends[0] += len(one.queues.log_offsets)
            ends[1] += len(one.keys.hashes)
            ends[4:] = one.last
        rows = [[segment, *ends] for segment, ends in found.items()]
        names = ["segment", "records", "entries", "firstLog", "firstStored", "lastLog", "lastStored"]
        columns: list[Sequence[int]] = [*zip(*rows, strict=True)] or [() for _ in names]
        types = [pa.int32(), *[pa.int64()] * 6]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=names
        )

    return scan


def _scan_queues(config: StoreConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _, one in _scan(batches, config):
            rows = one.queues
            if not rows.topics:
                continue
            yield pa.RecordBatch.from_arrays(
                [pa.array(rows.topics, pa.string()), pa.array(rows.queue_ids, pa.int32()), *map(pa.array, rows[2:])],
                names=["topic", "queueId", "queueOffset", "logOffset", "size", "tagsCode", "stored", "batchCount"],
            )

    return scan


def _scan_index(config: StoreConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        counts: dict[int, int] = {}
        for segment, one in _scan(batches, config):
            size = len(one.keys.hashes)
            start = counts.get(segment, 0)
            counts[segment] = start + size
            if size:
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(np.full(size, segment, np.int32)),
                        pa.array(np.arange(start, start + size, dtype=np.int64)),
                        pa.array(one.keys.hashes.astype(np.int64)),
                        pa.array(one.keys.log_offsets),
                        pa.array(one.keys.store_timestamps_ms),
                    ],
                    names=["segment", "position", "hash", "logOffset", "stored"],
                )

    return scan


def _queue_writer(config: StoreConfig, to: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa

        from fusee.store.offline.rebuild import QueueRows, QueueWriter

        writer = QueueWriter(Path(to), config)
        try:
            for batch in batches:
                columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns[1:]]
                topics = batch.column(0).to_pylist()
                is_new = np.flatnonzero(
                    np.append(
                        True, (columns[0][1:] != columns[0][:-1]) | (np.array(topics[1:]) != np.array(topics[:-1]))
                    )
                    if len(topics) > 1
                    else [True]
                ).tolist()
                counts = []
                for start, stop in zip(is_new, [*is_new[1:], len(topics)], strict=True):
                    topic, queue_id = topics[start], int(columns[0][start])
                    part = [column[start:stop].astype(np.int64) for column in columns]
                    writer.write(topic, queue_id, QueueRows([topic], *part))
                    counts.append((topic, queue_id, stop - start))
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([one[0] for one in counts], pa.string()),
                        pa.array([one[1] for one in counts], pa.int32()),
                        pa.array([one[2] for one in counts], pa.int64()),
                    ],
                    names=["topic", "queueId", "entries"],
                )
        finally:
            writer.close()

    return write


def _index_writer(
    config: StoreConfig, to: str, names: Sequence[str], begin: tuple[int, int], end: tuple[int, int], count: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from fusee.store.offline.rebuild import IndexRows, write_index_file

        def runs() -> Iterator[tuple[int, IndexRows]]:
            for batch in batches:
                if not batch.num_rows:
                    continue
                _, hashes, log_offsets, stored, files = (
                    column.to_numpy(zero_copy_only=False) for column in batch.columns
                )
                starts = [0, *((files[1:] != files[:-1]).nonzero()[0] + 1).tolist()]
                for start, stop in zip(starts, [*starts[1:], len(files)], strict=True):
                    part = slice(start, stop)
                    yield int(files[start]), IndexRows(hashes[part], log_offsets[part], stored[part])

        written: list[tuple[int, int]] = []
        waiting = runs()
        head = next(waiting, None)
        while head is not None:
            file = head[0]

            def pieces(file: int = file) -> Iterator[IndexRows]:
                nonlocal head
                while head is not None and head[0] == file:
                    yield head[1]
                    head = next(waiting, None)

            path = StorePaths(Path(to)).index / names[file]
            entries = write_index_file(
                path, config, pieces(), begin=begin if file == 0 else None, end=end if file == count - 1 else None
            )
            written.append((file, entries))
        yield pa.RecordBatch.from_arrays(
            [pa.array([one[0] for one in written], pa.int32()), pa.array([one[1] for one in written], pa.int64())],
            names=["file", "entries"],
        )

    return write
