from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import pytest

from fusee.errors import ConfigError
from fusee.pipeline.session import LOCAL_CHECKPOINTS, SETTINGS, batches_of, configure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_session_runs_a_job_with_the_settings_of_the_pipeline(spark: SparkSession) -> None:
    assert spark.range(10).selectExpr("sum(id) as total").collect()[0]["total"] == 45
    for name, value in {**SETTINGS, **LOCAL_CHECKPOINTS}.items():
        assert spark.conf.get(name) == value


@pytest.mark.parametrize(
    ("message_bytes", "rows"), [(1, 10_000), (104, 10_000), (105, 9_986), (1024, 1_024), (4 << 20, 1), (1 << 40, 1)]
)
def test_batches_of_messages_of_a_known_size_are_limited_by_rows_alone(message_bytes: int, rows: int) -> None:
    assert batches_of(message_bytes) == {
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
    }


@pytest.mark.parametrize("message_bytes", [0, -1])
def test_messages_of_no_size_are_refused(message_bytes: int) -> None:
    with pytest.raises(ConfigError, match="at least 1 byte"):
        batches_of(message_bytes)


def test_builder_is_told_how_large_messages_are() -> None:
    given: dict[str, str] = {}

    class Builder:
        def config(self, name: str, value: str) -> Builder:
            given[name] = value
            return self

    configure(cast("SparkSession.Builder", Builder()), message_bytes=1024)
    assert given.items() >= batches_of(1024).items()
    given.clear()
    configure(cast("SparkSession.Builder", Builder()))
    assert given == {**SETTINGS, **LOCAL_CHECKPOINTS}


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]
