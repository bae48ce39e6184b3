"""One Spark session for all tests of the pipeline in a process, and brokers that its workers reach over TCP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import fusee.sync
from fusee.pipeline.session import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from fusee.sync import EmbeddedServer

SMALL = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}
# The first test on Spark pays for the start of Java too, on a machine that may be busy.
TIMEOUT = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Spark runs in one process of xdist, so that one Java runs; it has longer to finish."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that tests share: `local[2]`, a small heap, no web pages."""
    folder = tmp_path_factory.mktemp("spark")
    session = open_session(
        "local[2]", app="tests", conf={**SMALL, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    )
    yield session
    session.stop()


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A name server and a broker in this process; Spark's workers reach them over TCP."""
    with fusee.sync.embedded() as running:
        yield running
