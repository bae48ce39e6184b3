"""What the programs that are killed have in common: a session, how they reach brokers, and which batches are done."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fusee.pipeline import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# How bytes travel between workers and brokers: through files and memory that both see, or over the wire.
READS: Final[Mapping[str, dict[str, str]]] = {"local": {}, "sent": {"localReads": "false"}}
WRITES: Final[Mapping[str, dict[str, str]]] = {"local": {}, "sent": {"localWrites": "false"}}
WAYS: Final = tuple(READS)
# A request for each message, one after the other: a batch spends its time in sending, where kills are to fall.
ONE_BY_ONE: Final[Mapping[str, str]] = {"batchBytes": "1", "inFlightBytes": "1"}


def session(master: str) -> SparkSession:
    return open_session(
        master,
        conf={
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
        },
    )


def done_batches(checkpoint: Path) -> int:
    """How many batches Spark knows to be done."""
    names = [path.name for path in (checkpoint / "commits").glob("[0-9]*")]
    return 1 + max(map(int, names), default=-1)


def tell_batches(queries: Mapping[Path, StreamingQuery], enough: int) -> None:
    """Prints how many batches the slowest query has done, whenever that are more; returns when they are enough.

    Queries are told by their checkpoints. Ends the program when one of them fails.
    """
    told = -1
    while told < enough:
        for query in queries.values():
            if not query.isActive:
                raise SystemExit(str(query.exception()))
        done = min(map(done_batches, queries))
        if done > max(told, 0):
            told = done
            sys.stdout.write(f"{done}\n")
            sys.stdout.flush()
        threading.Event().wait(0.05)
