"""A Spark session with the settings that the pipeline wants.

    spark = fusee.pipeline.open_session()                       # this machine, every core
    spark = fusee.pipeline.open_session("spark://head:7077")    # a cluster

A source cannot set these from inside, because they are read before it runs: Unix sockets between Java and Python, a
checkpoint writer that forks fewer processes per file, batches of about 1 MB. Whoever makes a session by hand passes its
builder through `configure`, and the session to `register`, which has
filters reach the broker and checkpoints start no processes.

Spark keeps batches below a number of bytes by measuring the whole batch before each row, which small rows pay for.
Whoever knows about how large messages are says so (`message_bytes`): then rows are counted instead.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError
from fusee.pipeline.java import find_java, usable_home
from fusee.pipeline.local_checkpoints import MANAGER, MANAGER_SETTING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_BATCH_BYTES: Final = 1024 * 1024
_ROWS_MAX: Final = 10_000
_NO_LIMIT: Final = 2**31 - 1

SETTINGS: Final[Mapping[str, str]] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_BATCH_BYTES),
}
# It relies on rename being atomic, which it is on a local disk and on HDFS, and on few object stores.
LOCAL_CHECKPOINTS: Final[Mapping[str, str]] = {
    MANAGER_SETTING: MANAGER,
}


def prepare_environment() -> None:
    """Set JAVA_HOME and PYSPARK_PYTHON for a Spark that this process starts, where they are not set to what works.

    Workers run this very Python unless PYSPARK_PYTHON says otherwise: Spark's own default is the first `python3` on
    PATH, which lacks what is installed here. Raises ConfigError when there is no suitable Java.
    """
    os.environ["JAVA_HOME"] = str(usable_home(find_java()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def batches_of(message_bytes: int) -> Mapping[str, str]:
    """Settings for batches of about 1 MB of messages of about this size, which need not be measured.

    Much larger ones make larger batches: 2 GiB is where Spark refuses. Raises ConfigError when there is no such size.
    """
    if message_bytes < 1:
        raise ConfigError(f"message_bytes={message_bytes}: a message has at least 1 byte; leave it out if unknown")
    rows = min(max(_BATCH_BYTES // message_bytes, 1), _ROWS_MAX)
    return {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(_NO_LIMIT),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
    }


def configure(
    builder: SparkSession.Builder, *, local_checkpoints: bool = True, message_bytes: int | None = None
) -> SparkSession.Builder:
    """Give a builder the pipeline's settings, and this process the environment that Spark starts in.

    Pass `local_checkpoints=False` when checkpoints are kept in an object store, and as `message_bytes` about how large
    rows are that will be written, which makes writing cheaper. What the builder gets afterwards wins.

    Raises ConfigError when there is no suitable Java.
    """
    prepare_environment()
    settings = {
        **SETTINGS,
        **({} if message_bytes is None else batches_of(message_bytes)),
        **(LOCAL_CHECKPOINTS if local_checkpoints else {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def open_session(
    master: str = "local[*]",
    *,
    app: str = "fusee",
    conf: Mapping[str, str] | None = None,
    local_checkpoints: bool = True,
    message_bytes: int | None = None,
) -> SparkSession:
    """A session on this master with the pipeline's settings and the source `fusee`; the one at hand if there is one.

    `message_bytes` is about how large rows are that will be written, if that is known. `conf` has settings of Spark and
    wins. Stop the session when done. Raises ConfigError when there is no suitable Java.
    """
    from pyspark.sql import SparkSession

    from fusee.pipeline.registration import register

    builder = SparkSession.Builder().master(master).appName(app)
    builder = configure(builder, local_checkpoints=local_checkpoints, message_bytes=message_bytes)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
