"""Spark's own processes, started for a test: a standalone cluster, a server of Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from fusee.pipeline.java import find_java, usable_home

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2


@dataclass(frozen=True)
class Standalone:
    """A master and its workers."""

    master: str
    """Its address."""
    workers: tuple[int, ...]
    """Process ids: parents of the executors."""


def environment() -> dict[str, str]:
    """What a program that starts Spark needs."""
    return os.environ | {
        "JAVA_HOME": str(usable_home(find_java())),
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
    }


@contextmanager
def process_of_spark(
    folder: Path, ready: str, *arguments: str, more: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    """A process of Spark, from when it says that it is ready; and what it said. `more` goes to its environment."""
    started = subprocess.Popen(
        [SPARK_HOME / "bin" / "spark-class", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment() | dict(more or {}),
    )
    assert started.stderr is not None
    said: list[str] = []
    try:
        for line in started.stderr:
            said.append(line)
            if found := re.search(ready, line):
                break
        else:
            pytest.fail("".join(said))
        with ThreadPoolExecutor(1) as reader:
            reader.submit(started.stderr.read)
            try:
                yield started, found
            finally:
                started.terminate()
                started.wait(60)
    finally:
        started.kill()
        started.communicate()


@contextmanager
def standalone_cluster(folder: Path, *, more: Mapping[str, str] | None = None) -> Iterator[Standalone]:
    """A master and two workers of one core each, as processes of their own.

    `more` goes to the environment of the workers, and so of their executors.
    """
    with ExitStack() as stack:
        _, found = stack.enter_context(
            process_of_spark(
                folder,
                r"Starting Spark master at (spark://\S+)",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            )
        )
        master = found[1]
        workers = []
        for number in range(WORKERS):
            started, _ = stack.enter_context(
                process_of_spark(
                    folder,
                    r"Successfully registered with master",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "512m"),
                    *("--work-dir", str(folder / f"worker-{number}"), master),
                    more=more,
                )
            )
            # The script becomes Java by exec: the process that was started is the worker itself.
            workers.append(started.pid)
        yield Standalone(master, tuple(workers))
