"""A Spark driver in a process of its own, to be killed with all that it has started; and who else is killed, and when.

Kills fall at random moments: a wait of up to half a second, drawn from the test's seed, comes before each. It is the
randomness under test, and nothing relies on it having an end in particular.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

ROOT = Path(__file__).parents[3]
MOMENT_MAX_S = 0.5
PATIENCE_S = 120.0
_LOOK_S = 0.02
# Java, as it is started for an executor of a standalone cluster.
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@contextmanager
def program(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python program, in a session of its own, so that Java and workers can be killed with it.

    What it has to say is in `driver.log` of the folder.
    """
    with (folder / "driver.log").open("a") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=os.environ | dict(environment or {}),
            start_new_session=True,
        )
        try:
            yield started
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
            started.communicate()


@contextmanager
def driver(module: str, name_servers: str, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that writes a line for each batch that it has done."""
    with program(module, name_servers, str(folder), *arguments, folder=folder) as started:
        yield started


def said(folder: Path) -> str:
    """The last that a driver had to say."""
    return (folder / "driver.log").read_text()[-5000:]


def wait_for_batches(running: subprocess.Popen[str], count: int, folder: Path) -> None:
    """The driver writes a line for each."""
    assert running.stdout is not None
    for _ in range(count):
        if not running.stdout.readline():
            pytest.fail(said(folder))


def wait_for_a_moment(chooser: random.Random) -> None:
    """Lets up to half a second pass, so that what follows meets a batch anywhere."""
    threading.Event().wait(chooser.uniform(0, MOMENT_MAX_S))


def seen(what: str, look: Callable[[], T]) -> T:
    """What `look` finds, as soon as that is something."""
    ending = time.monotonic() + PATIENCE_S
    while not (found := look()):
        if time.monotonic() > ending:
            pytest.fail(f"{what}: not within {PATIENCE_S:g} s")
        threading.Event().wait(_LOOK_S)
    return found


def kill_one(what: str, look: Callable[[], list[int]], chooser: random.Random) -> int:
    """Kills one of the processes that `look` finds, as soon as there are some; which."""

    def killed() -> int:
        found = look()
        if not found:
            return 0
        pid = chooser.choice(found)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # ended meanwhile: another will do
            return 0
        return pid

    return seen(what, killed)


def kill_python_worker(running: subprocess.Popen[str], chooser: random.Random) -> int:
    """Kills a Python process that does the work of tasks for this driver."""
    return kill_one("a Python worker", lambda: python_workers(running.pid), chooser)


def kill_executor(workers: tuple[int, ...], chooser: random.Random) -> int:
    """Kills the Java process of an executor that one of these workers of a standalone cluster has started."""
    return kill_one("an executor", lambda: executors(workers), chooser)


def python_workers(session: int) -> list[int]:
    """Those that run tasks. Spark forks them from a daemon, as it does the driver's helpers, whose names are others."""
    of_tasks = {
        pid: parent
        for pid, (parent, of_session, command) in _processes().items()
        if of_session == session and command[-2:] == ["pyspark.daemon", "pyspark.worker"]
    }
    return [pid for pid, parent in of_tasks.items() if parent in of_tasks]


def executors(workers: tuple[int, ...]) -> list[int]:
    """Executors that these workers have started."""
    return [pid for pid, (parent, _, command) in _processes().items() if parent in workers and EXECUTOR in command]


def _processes() -> dict[int, tuple[int, int, list[str]]]:
    """Of each process its parent, its session and its command."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text().rstrip("\0").split("\0")
        except OSError:
            continue
        found[int(folder.name)] = (int(fields[1]), int(fields[3]), command)
    return found
