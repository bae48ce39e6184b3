"""The writing half of the data source `fusee`: rows become messages, at least once or exactly once.

Spark's contract, as observed: `write` runs in a worker for each task, again when a task is tried again; `commit` runs
in another process, with the message of the task that won; it may be called again for the same batch after a crash,
and `abort` follows a commit that raised.

    at least once    `write` sends and waits for all answers; `commit` has nothing left to do. What a failed attempt has
                     sent stays; the property IDEMPOTENCE_KEY tells its rows
    exactly once     `write` stages under a transaction of its own; `commit` publishes those of the tasks that won,
                     fenced by the query and the batch (`staged_commit`)
"""

from __future__ import annotations

import os
import secrets
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from fusee.errors import MessageError
from fusee.pipeline.delivery import Delivery, Staging
from fusee.pipeline.garbage import settle
from fusee.pipeline.option_table import OptionError
from fusee.pipeline.row_encoding import Columns, encode_rows, queue_hashes
from fusee.pipeline.staged_commit import Staged, StagedCommit
from fusee.pipeline.write_options import WriteOptions, write_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

# Properties of a task in which Spark says whose it is; internal names, the same since 2.x.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_ENCODED_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass
class Written(WriterCommitMessage):
    """What a task has written; Spark brings it to the driver."""

    application: str
    batch_id: int
    messages: int
    transaction: str = ""
    parts: dict[str, int] = field(default_factory=dict)
    is_one_shot: bool = False

    @property
    def staged(self) -> Staged:
        return Staged(self.transaction, self.parts)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("fusee")`."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        """Raises OptionError for options and columns that cannot be; topics are only ever appended to."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten, only appended to; write with .mode('append')")
        self.options = write_options(given, _fields(schema), writing="batch")
        # One write is one application, unless it says that it is a part of a greater one.
        self._application = self.options.txn_app_id or f"batch-{secrets.token_hex(8)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        options = self.options
        version = max(options.txn_version, 0)
        return _write(options, self._application, version, iterator, is_one_shot=not options.txn_app_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self.options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _abort(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("fusee")`."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        """Raises OptionError."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten, only appended to; use .outputMode('append') or 'update'")
        self.options = write_options(given, _fields(schema), writing="stream")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
        batch_id = None if context is None else context.getLocalProperty(_BATCH_ID)
        if not query_id or batch_id is None:
            raise OptionError(
                f"this Spark does not say which query and batch a task is of ({_QUERY_ID}, {_BATCH_ID}); write with "
                "foreachBatch and the options txnAppId and txnVersion"
            )
        name = self.options.sink_name
        application = f"{query_id}/{name}" if name else query_id
        return _write(self.options, application, int(batch_id), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        _commit(self.options, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        _abort(self.options, messages)


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(each.name, each.dataType.simpleString()) for each in schema.fields]


def _write(
    options: WriteOptions,
    application: str,
    batch_id: int,
    batches: Iterator[pa.RecordBatch],
    *,
    is_one_shot: bool = False,
) -> Written:
    """What every task does."""
    settle(os.getpid())
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    written = Written(application, batch_id, 0, is_one_shot=is_one_shot)
    staging: Staging | None = None
    if options.delivery == "exactly-once" or (
        options.delivery == "auto" and StagedCommit(options.settings, application).knows_staged_batches()
    ):
        written.transaction = f"{batch_id}-{partition}-{uuid.uuid4().hex}"
        staging = Staging(application, batch_id, written.transaction)
    has_key = staging is None if options.has_key is None else options.has_key
    prefix = f"{application}/{batch_id}/{partition}" if has_key else None
    # Tasks begin at different queues, and so do batches.
    delivery = Delivery(options.settings, staging=staging, first_queue=partition * 7 + batch_id)
    row = 0
    try:
        for batch in batches:
            for piece in _pieces(batch):
                _deliver(delivery, options, piece, row, prefix)
                row += len(piece)
        done = delivery.finish()
    finally:
        delivery.close()
    written.messages, written.parts = done.messages, done.parts
    return written


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that can be encoded at once."""
    count = max(1, -(-batch.nbytes // _ENCODED_BYTES_MAX))
    step = max(1, -(-len(batch) // count))
    for first in range(0, len(batch), step):
        yield batch.slice(first, step)


def _deliver(
    delivery: Delivery, options: WriteOptions, batch: pa.RecordBatch, first_row: int, prefix: str | None
) -> None:
    columns = _columns(options, batch)
    rows = encode_rows(columns, first_row=first_row, key_prefix=prefix)
    hashes = None if columns.order_by is None else queue_hashes(columns.order_by)
    if columns.topic is None:
        delivery.write(options.topic, rows, hashes)
        return
    encoded = columns.topic.dictionary_encode()
    indexes = encoded.indices.to_numpy(zero_copy_only=False)
    if columns.topic.null_count:
        row = int(np.argmax(np.asarray(columns.topic.is_null())))
        raise MessageError(f"row {first_row + row} has no topic; give one, or the option 'topic' for all")
    for number, topic in enumerate(encoded.dictionary.to_pylist()):
        if len(encoded.dictionary) == 1:
            delivery.write(topic, rows, hashes)
            return
        chosen = np.flatnonzero(indexes == number)
        delivery.write(topic, rows.taken(chosen), None if hashes is None else hashes[chosen])


def _columns(options: WriteOptions, batch: pa.RecordBatch) -> Columns:
    found: dict[str, Any] = {name: batch.column(column) for name, column in options.columns.items()}
    deliver_at = found.get("deliverAt")
    if deliver_at is not None and pa.types.is_timestamp(deliver_at.type):
        deliver_at = pc.divide(deliver_at.cast(pa.timestamp("us", deliver_at.type.tz)).cast(pa.int64()), 1000)
    return Columns(
        body=found["body"],
        # the option goes before the column
        topic=None if options.topic else found.get("topic"),
        keys=found.get("keys"),
        tags=found.get("tags"),
        properties=found.get("properties"),
        order_by=found.get("orderBy"),
        flag=found.get("flag"),
        delay_level=found.get("delayLevel"),
        deliver_at_ms=deliver_at,
    )


def _commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    settle(os.getpid())
    written = [message for message in messages if isinstance(message, Written) and message.parts]
    if written:
        first = written[0]
        StagedCommit(options.settings, first.application).commit(
            first.batch_id, [message.staged for message in written], one_shot=first.is_one_shot
        )


def _abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [message for message in messages if isinstance(message, Written) and message.parts]
    if written:
        StagedCommit(options.settings, written[0].application).drop([message.staged for message in written])
