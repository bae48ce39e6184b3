"""The columns of a topic that is read as a table: names, types of Spark, types of Arrow.

Spark takes a batch only when its Arrow schema is to the letter what it makes of the Spark schema itself: `string` and
`binary`, never their large forms, timestamps in microseconds of UTC, every field nullable, the columns in the order
that was asked for. `arrow_schema` gives just that, and needs no Spark.

Two forms of one row share this table: Fusee's own columns, and with `kafkaCompatible` the columns of Spark's Kafka
source (`topic` is in both).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_PROPERTIES: Final = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string()))
_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type in Spark's DDL and in Arrow, and what is in it."""

    name: str
    spark_type: str
    arrow_type: pa.DataType
    about: str


COLUMNS: Final = (
    Column("topic", "string", pa.string(), "the topic that the message is in"),
    Column("brokerName", "string", pa.string(), "the broker that has the queue"),
    Column("queueId", "int", pa.int32(), "the queue, on that broker"),
    Column("queueOffset", "bigint", pa.int64(), "the message's place in its queue"),
    Column("logOffset", "bigint", pa.int64(), "the message's place in the broker's log"),
    Column("keys", "string", pa.string(), "the keys, divided by spaces; null without any"),
    Column("tags", "string", pa.string(), "the tag; null without one"),
    Column("body", "binary", pa.binary(), "the content, decompressed"),
    Column("properties", "map<string,string>", _PROPERTIES, "every property, those of the system among them"),
    Column("bornTimestamp", "timestamp", _TIMESTAMP, "when the producer made the message"),
    Column("storeTimestamp", "timestamp", _TIMESTAMP, "when the broker stored it"),
    Column("bornHost", "string", pa.string(), "the producer, as host:port"),
    Column("storeHost", "string", pa.string(), "the broker, as host:port"),
    Column("reconsumeTimes", "int", pa.int32(), "how often it was delivered again"),
    Column("sysFlag", "int", pa.int32(), "the system's flags"),
    Column("flag", "int", pa.int32(), "the producer's flag"),
    Column("msgId", "string", pa.string(), "the producer's unique id, or the id of the place in the log without one"),
    Column("preparedTransactionOffset", "bigint", pa.int64(), "where the half message of a transaction is in the log"),
    Column("transactionId", "string", pa.string(), "the transaction that the message was sent in; null without one"),
    Column("delayLevel", "int", pa.int32(), "the level of delay that was asked for; null without one"),
    Column("deliverAt", "timestamp", _TIMESTAMP, "the time of delivery that was asked for; null without one"),
)
KAFKA_COLUMNS: Final = (
    Column("key", "binary", pa.binary(), "the keys"),
    Column("value", "binary", pa.binary(), "the body"),
    Column("topic", "string", pa.string(), "the topic"),
    Column("partition", "int", pa.int32(), "the queue, on its broker"),
    Column("offset", "bigint", pa.int64(), "the message's place in its queue"),
    Column("timestamp", "timestamp", _TIMESTAMP, "when the broker stored it"),
    Column("timestampType", "int", pa.int32(), "1: the time is the broker's"),
    Column("headers", "array<struct<key:string,value:binary>>", _HEADERS, "every property"),
)
_BY_NAME: Final = {column.name: column for column in (*KAFKA_COLUMNS, *COLUMNS)}


def columns_of(*, kafka_compatible: bool = False, properties: bool = True) -> tuple[Column, ...]:
    """The columns of a row in one of its two forms, with or without the one that has every property."""
    form = KAFKA_COLUMNS if kafka_compatible else COLUMNS
    return tuple(column for column in form if properties or column.name not in ("properties", "headers"))


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema that Spark takes batches of these columns in. Raises ConfigError for one that is unknown."""
    return _arrow_schema(tuple(columns))


@functools.cache
def _arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    known = [_BY_NAME.get(name) for name in columns]
    if unknown := [name for name, column in zip(columns, known, strict=True) if column is None]:
        raise ConfigError(f"no such column: {', '.join(unknown)}; there are {', '.join(_BY_NAME)}")
    return pa.schema([pa.field(column.name, column.arrow_type) for column in known if column is not None])


def ddl(columns: Iterable[Column]) -> str:
    """The columns as Spark's DDL."""
    return ", ".join(f"{column.name} {column.spark_type}" for column in columns)
