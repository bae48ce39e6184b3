"""How a Spark session learns the formats `fusee` and `rocketmq`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the formats `fusee` and `rocketmq` known to this session, let filters reach them, and checkpoints be quick.

    A second call changes nothing.

    Spark finds `fusee` by itself where this package is installed beside it (through `pyspark_fusee`); the call is
    needed for the alias, for filters, for local checkpoints at their best, and where the driver alone has the package.
    """
    from fusee.pipeline.filter_pushdown import push_filters
    from fusee.pipeline.local_checkpoints import hasten_local_checkpoints
    from fusee.pipeline.source import FuseeSource, RocketMQSource

    spark.dataSource.register(FuseeSource)
    spark.dataSource.register(RocketMQSource)
    push_filters(spark)
    hasten_local_checkpoints(spark)
