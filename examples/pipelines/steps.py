"""Steps of the examples: functions from frames to a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CUSTOMERS = {"c1": "Ada", "c2": "Grace"}


def with_customer(spark: SparkSession, orders: DataFrame) -> DataFrame:
    """Orders with the name of their customer, who is a property of the message."""
    names = spark.createDataFrame(list(CUSTOMERS.items()), "customer string, name string")
    order = orders.withColumn("customer", f.try_element_at("properties", f.lit("customer")))
    known = order.join(f.broadcast(names), "customer", "left")
    text = f.to_json(
        f.struct(f.col("body").cast("string").alias("order"), f.coalesce("name", f.lit("?")).alias("name"))
    )
    return known.select("keys", "tags", text.cast("binary").alias("body"), f.col("customer").alias("orderBy"))
