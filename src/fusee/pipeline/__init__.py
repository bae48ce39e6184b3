"""Topics as tables: the data pipeline on Spark, in Python alone.

    spark = fusee.pipeline.open_session()
    orders = spark.read.format("fusee").option("nameServer", "127.0.0.1:9876").option("subscribe", "orders").load()
    orders.groupBy("tags").count().show()

Needs the extra `spark`. Nothing of Spark is imported before it is used, so that workers and tools that read records
alone stay light.
"""

from fusee.pipeline.registration import register
from fusee.pipeline.session import configure, open_session

__all__ = ["configure", "open_session", "register"]
