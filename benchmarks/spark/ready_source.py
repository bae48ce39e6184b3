"""A Python data source that has its Arrow batches ready, and a sink that does the least: what Spark's own part costs.

The columns are those of Kafka's source. The same batch is yielded over and over: no fetch, no decoding. What is written
goes nowhere, or its bodies to files: no format, no broker, nobody who waits. It needs only pyspark and pyarrow, so that
it runs in the environments of both contenders.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "ready"
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
ROWS_PER_BATCH = 1000


class Part(InputPartition):
    """Some rows of one task."""

    def __init__(self, number: int, rows: int) -> None:
        self.number = number
        self.rows = rows


class ReadySource(DataSource):
    """`format("ready")` with the options rows, parts, size and topic; to write, folder or nothing."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> ReadyReader:
        options = self.options
        return ReadyReader(
            int(options["rows"]), int(options.get("parts", "2")), int(options["size"]), options.get("topic", "ready")
        )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        folder = self.options.get("folder")
        return FileWriter(folder) if folder else DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    """Takes every batch and does nothing with it."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class FileWriter(DataSourceArrowWriter):
    """Writes the bodies of every batch to a file of its task, as they lie: what any sink that stores them does."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with tempfile.NamedTemporaryFile(dir=self._folder, buffering=0, delete=False) as file:
            for batch in iterator:
                bodies = batch.column("body")
                _, ends, content = bodies.buffers()
                places = memoryview(ends).cast("i")[bodies.offset : bodies.offset + len(bodies) + 1]
                file.write(memoryview(content)[places[0] : places[-1]])
        return WriterCommitMessage()


class ReadyReader(DataSourceReader):
    """Yields the same batch until all rows are given."""

    def __init__(self, rows: int, parts: int, size: int, topic: str) -> None:
        self._rows = rows
        self._parts = parts
        self._size = size
        self._topic = topic

    def partitions(self) -> list[InputPartition]:
        each = self._rows // self._parts
        return [Part(number, each) for number in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        # Spark has garbage searched for after every task: through all that is loaded, which is no part of this.
        gc.freeze()
        batch = ready_batch(min(ROWS_PER_BATCH, partition.rows), partition.number, self._size, self._topic)
        left = partition.rows
        while left > 0:
            yield batch if left >= batch.num_rows else batch.slice(0, left)
            left -= batch.num_rows


def ready_batch(rows: int, partition: int, size: int, topic: str) -> pa.RecordBatch:
    """Rows with bodies of which half is random, as the brokers' messages have."""
    import pyarrow as pa

    now_us = int(time.time() * 1e6)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"order-%06d" % (100_000 + number) for number in range(rows)], pa.binary()),
            pa.array([os.urandom(size // 2) + b"x" * (size - size // 2) for _ in range(rows)], pa.binary()),
            pa.array([topic] * rows, pa.string()),
            pa.array([partition] * rows, pa.int32()),
            pa.array(range(rows), pa.int64()),
            pa.array([now_us] * rows, pa.timestamp("us", tz="UTC")),
            pa.array([0] * rows, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )
