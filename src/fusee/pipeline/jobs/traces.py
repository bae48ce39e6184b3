"""Trace messages as rows: what producers and consumers said they did, one row for each message of each saying.

The record of a batch has the ids of all its messages, joined by commas; it becomes a row for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

SCHEMA: Final = (
    "kind string, saidMs bigint, group string, sentTo string, msgId string, requestId string, costMs bigint, "
    "success boolean, retryTimes int, messageType string, state string"
)


def trace_rows(messages: DataFrame) -> DataFrame:
    """The records in the bodies of messages of a trace topic; what is no trace is passed over."""
    return messages.select("body").mapInArrow(_decoded, SCHEMA)


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from fusee.client.trace import decode_trace

    types = [pa.string(), pa.int64(), *[pa.string()] * 4, pa.int64(), pa.bool_(), pa.int32(), *[pa.string()] * 2]
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    for batch in batches:
        records = [
            (one, message_id)
            for body in batch.column(0).to_pylist()
            for one in decode_trace(body or b"")
            for message_id in one.message_id.split(",")
        ]
        columns = [
            [one.kind.value for one, _ in records],
            [one.timestamp_ms for one, _ in records],
            [one.group for one, _ in records],
            [one.topic for one, _ in records],
            [message_id for _, message_id in records],
            [one.request_id for one, _ in records],
            [one.cost_ms for one, _ in records],
            [one.success for one, _ in records],
            [one.retry_times for one, _ in records],
            [one.message_type.name for one, _ in records],
            [one.transaction_state.name for one, _ in records],
        ]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=names
        )
