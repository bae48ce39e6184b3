"""What both kinds of readers share: the settings of workers, the columns asked for, the work of one task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from fusee.pipeline.fetch import FetchSettings, fetch
from fusee.pipeline.option_table import OptionError
from fusee.pipeline.options import READER_GROUP
from fusee.pipeline.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fusee.pipeline.options import ReadOptions
    from fusee.pipeline.ranges import QueueRange


class Task(InputPartition):
    """The ranges that one task reads; none when there is nothing to read."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(tuple(ranges))


def fetch_settings(options: ReadOptions, *, tags: str | None = None) -> FetchSettings:
    """What workers need to know; `tags` takes the place of the option's."""
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
    )


def read_task(settings: FetchSettings, task: InputPartition, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of one task, on a worker."""
    ranges: Sequence[QueueRange] = task.value or ()
    return iter(fetch(settings, ranges, columns))


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
