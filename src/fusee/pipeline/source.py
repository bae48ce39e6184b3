"""The data source `fusee`, as Spark sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from fusee.pipeline.schema import columns_of, ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class FuseeSource(DataSource):
    """`spark.read.format("fusee")`: topics of a cluster, or of a store directory, as a table."""

    @classmethod
    def name(cls) -> str:
        return "fusee"

    def schema(self) -> StructType | str:
        return ddl(columns_of())


class RocketMQSource(FuseeSource):
    """The same source under the name that users of RocketMQ look for."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"
