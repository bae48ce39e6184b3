from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fusee.pipeline.session import LOCAL_CHECKPOINTS, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_session_runs_a_job_with_the_settings_of_the_pipeline(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id) as total").collect()[0]["total"] == 45
    for name, value in {**SETTINGS, **LOCAL_CHECKPOINTS}.items():
        assert spark.conf.get(name) == value


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]
