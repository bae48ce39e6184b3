"""A Spark driver in a process of its own, to be killed with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@contextmanager
def driver(program: str, name_servers: str, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """In a session of its own, so that Java and workers can be killed with it."""
    with (folder / "driver.log").open("a") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", program, name_servers, str(folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
            started.communicate()


def wait_for_batches(running: subprocess.Popen[str], count: int, folder: Path) -> None:
    """The driver writes a line for each."""
    assert running.stdout is not None
    for _ in range(count):
        if not running.stdout.readline():
            pytest.fail((folder / "driver.log").read_text()[-5000:])


def workers_of(session: int) -> list[int]:
    """Python workers of this session: children of the daemon that Spark forks them from."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()
            parent = (folder.parent / fields[1] / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[3]) == session and "pyspark.daemon" in command and "pyspark.daemon" in parent:
            found.append(int(folder.name))
    return found
