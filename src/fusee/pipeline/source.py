"""The data source `fusee`, as Spark sees it.

Spark plans reads and writes, and commits them, in Python processes that it keeps: each settles when it has loaded what
it needs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from fusee.pipeline.garbage import settle
from fusee.pipeline.options import read_options
from fusee.pipeline.schema import columns_of, ddl

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class FuseeSource(DataSource):
    """`spark.read.format("fusee")`: topics of a cluster, or of a store directory, as a table."""

    @classmethod
    def name(cls) -> str:
        return "fusee"

    def schema(self) -> StructType | str:
        """The columns when the query does not choose some by `.schema(...)`."""
        settle(os.getpid())
        is_kafka = self.options.get("kafkaCompatible", "").lower() == "true"
        said = self.options.get("includeProperties") or self.options.get("includeHeaders") or str(not is_kafka)
        return ddl(columns_of(kafka_compatible=is_kafka, properties=said.lower() == "true"))

    def reader(self, schema: StructType) -> DataSourceReader:
        from fusee.pipeline.batch import BatchReader
        from fusee.pipeline.reading import asked_columns

        settle(os.getpid())
        options = read_options(self.options, reading="batch")
        return BatchReader(options, asked_columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        from fusee.pipeline.reading import asked_columns
        from fusee.pipeline.stream import StreamReader

        settle(os.getpid())
        options = read_options(self.options, reading="stream")
        return StreamReader(options, asked_columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from fusee.pipeline.sink import BatchWriter

        settle(os.getpid())
        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from fusee.pipeline.sink import StreamWriter

        settle(os.getpid())
        return StreamWriter(self.options, schema, overwrite=overwrite)


class RocketMQSource(FuseeSource):
    """The same source under the name that users of RocketMQ look for."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"
