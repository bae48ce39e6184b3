"""Orders of a topic as a table, their number by tag as a view, and the paid ones in a topic of their own."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

NAME_SERVER = "127.0.0.1:9876"

spark = SparkSession.active()

dp.create_sink("paid_orders", "fusee", {"nameServer": NAME_SERVER, "topic": "paid-orders"})


@dp.table
def orders() -> DataFrame:
    return (
        spark.readStream.format("fusee")
        .option("nameServer", NAME_SERVER)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("keys", "tags", "cast(body as string) as text")
    )


@dp.materialized_view
def orders_by_tag() -> DataFrame:
    return spark.read.table("orders").groupBy("tags").count()


@dp.append_flow(target="paid_orders")
def paid() -> DataFrame:
    return spark.readStream.table("orders").where("tags = 'paid'").selectExpr("text as body", "keys")
