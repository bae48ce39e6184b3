"""A Spark session with the settings that the pipeline wants.

    spark = fusee.pipeline.open_session()                       # this machine, every core
    spark = fusee.pipeline.open_session("spark://head:7077")    # a cluster

A source cannot set these from inside, because they are read before it runs: Unix sockets between Java and Python, a
checkpoint writer that forks fewer processes per file, batches of about 3 MB, filters that reach the broker. Whoever
makes a session by hand passes its builder through `configure`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from fusee.pipeline.java import find_java, usable_home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "3m",
    "spark.sql.python.filterPushdown.enabled": "true",
}
# It relies on rename being atomic, which it is on a local disk and on HDFS, and on few object stores.
LOCAL_CHECKPOINTS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


def prepare_environment() -> None:
    """Set JAVA_HOME and PYSPARK_PYTHON for a Spark that this process starts, where they are not set to what works.

    Workers run this very Python unless PYSPARK_PYTHON says otherwise: Spark's own default is the first `python3` on
    PATH, which lacks what is installed here. Raises ConfigError when there is no suitable Java.
    """
    os.environ["JAVA_HOME"] = str(usable_home(find_java()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def configure(builder: SparkSession.Builder, *, local_checkpoints: bool = True) -> SparkSession.Builder:
    """Give a builder the pipeline's settings, and this process the environment that Spark starts in.

    Pass `local_checkpoints=False` when checkpoints are kept in an object store. What the builder gets afterwards wins.
    """
    prepare_environment()
    for name, value in {**SETTINGS, **(LOCAL_CHECKPOINTS if local_checkpoints else {})}.items():
        builder = builder.config(name, value)
    return builder


def open_session(
    master: str = "local[*]",
    *,
    app: str = "fusee",
    conf: Mapping[str, str] | None = None,
    local_checkpoints: bool = True,
) -> SparkSession:
    """A session on this master with the pipeline's settings and the source `fusee`; the one at hand if there is one.

    `conf` has settings of Spark and wins. Stop the session when done. Raises ConfigError when there is no suitable
    Java.
    """
    from pyspark.sql import SparkSession

    from fusee.pipeline.registration import register

    builder = configure(SparkSession.Builder().master(master).appName(app), local_checkpoints=local_checkpoints)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
