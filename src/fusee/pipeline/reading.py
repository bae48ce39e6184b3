"""What both kinds of readers share: whom the driver asks, the tasks, the settings of workers, the columns asked for.

A driver plans and a worker reads, in processes that Spark starts for a query: each loads only what it needs for its
part, since loading takes longer than the work of a small batch.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import InputPartition

from fusee.filter import parse_subscription
from fusee.pipeline.garbage import settle
from fusee.pipeline.option_table import OptionError
from fusee.pipeline.options import READER_GROUP
from fusee.pipeline.plan import pack, plan, tasks_for
from fusee.pipeline.ranges import StoreRange
from fusee.pipeline.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fusee.message.model import MessageQueue
    from fusee.pipeline.admission import Bounds
    from fusee.pipeline.fetch import FetchSettings
    from fusee.pipeline.options import ReadOptions, Topics
    from fusee.pipeline.ranges import QueueRange


class View(Protocol):
    """What a reader asks on the driver: of a cluster, or of store directories."""

    def queues(self, topics: Topics, *, missing_ok: bool = False) -> tuple[MessageQueue, ...]: ...

    def bounds(self, queues: Iterable[MessageQueue], *, all_needed: bool = True) -> dict[MessageQueue, Bounds]: ...

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]: ...

    def record_sizes(self, starts: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]: ...

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None: ...

    def mark(self, group: str, since_ms: int) -> None: ...

    def close(self) -> None: ...


def open_view(options: ReadOptions) -> View:
    """The cluster or the directories that the options name."""
    if options.store:
        from fusee.pipeline.store_view import StoreView

        return StoreView(options)
    from fusee.pipeline.cluster_view import ClusterView

    return ClusterView(options)


class Task(InputPartition):
    """What one task reads: ranges of queues from their brokers, or a piece of a store directory."""

    def __init__(self, work: tuple[QueueRange, ...] | StoreRange) -> None:
        super().__init__(work)


def tasks_of(options: ReadOptions, ranges: Sequence[QueueRange]) -> list[InputPartition]:
    """The tasks that read these ranges."""
    least, most = options.min_partitions, options.max_records_per_partition
    if not options.store:
        return [Task(each) for each in plan(ranges, min_partitions=least, max_records=most)]
    from fusee.pipeline.store_view import StoreView

    count = tasks_for(sum(each.count for each in ranges), min_partitions=least, max_records=most)
    if not count:
        return []
    made: list[InputPartition] = []
    for piece in StoreView(options).pieces(ranges, count):
        size = sum(each.count for each in piece.ranges)
        parts = -(-size // (most or size))
        made += [Task(replace(piece, ranges=part)) for part in pack(piece.ranges, parts)]
    return made


def fetch_settings(options: ReadOptions, *, tags: str | None = None) -> FetchSettings:
    """What workers need to know; `tags` takes the place of the option's."""
    from fusee.pipeline.fetch import FetchSettings

    tls = options.tls
    return FetchSettings(
        name_servers=options.name_servers,
        group=options.group or READER_GROUP,
        tags=options.tags if tags is None else tags,
        sql=options.sql,
        pull_batch_size=options.pull_batch_size,
        pull_timeout_ms=options.pull_timeout_ms,
        retries=options.retries,
        retry_delay_ms=options.retry_delay_ms,
        tls=tls is not None,
        tls_ca_file=tls.ca_file if tls else "",
        tls_certificate=tls.certificate if tls else "",
        tls_key=tls.key if tls else "",
        tls_verify=tls.verify if tls else True,
        fail_on_data_loss=options.fail_on_data_loss,
        local_reads=options.local_reads,
    )


def read_task(
    options: ReadOptions, task: InputPartition, columns: Sequence[str], *, tags: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, on a worker; `tags` takes the place of the option's."""
    work: tuple[QueueRange, ...] | StoreRange | None = task.value
    if isinstance(work, StoreRange):
        from fusee.pipeline.store_dir import read_store

        settle(os.getpid())
        wanted = parse_subscription("", options.tags if tags is None else tags).tags
        return iter(read_store(work, columns, tags=wanted))
    from fusee.pipeline.fetch import fetch

    settle(os.getpid())
    return iter(fetch(fetch_settings(options, tags=tags), work or (), columns))


def asked_columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """The columns that a reader is to give, in order: all, or those of `.schema(...)`.

    Raises OptionError for one that does not exist, or is to have another type.
    """
    known = {
        column.name: column
        for column in columns_of(kafka_compatible=options.kafka_compatible, properties=options.include_properties)
    }
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            raise OptionError(f"there is no column {field.name!r}; .schema(...) may name some of {', '.join(known)}")
        asked = field.dataType.simpleString()
        if asked != column.spark_type:
            raise OptionError(f"column {field.name!r} is of type {column.spark_type}, not {asked}; cast it in a select")
        if not field.nullable:
            raise OptionError(f"column {field.name!r} may be null in Spark's eyes; leave NOT NULL out of .schema(...)")
    if not schema.fields:
        raise OptionError(f".schema(...) names no column; name some of {', '.join(known)}")
    return tuple(schema.names)
