"""The end that tells a session what to do, and counts the CPU time of everybody who takes part in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self

from benchmarks.errors import BenchmarkError
from benchmarks.plan import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

START_LIMIT_S: Final = 180.0
STOP_LIMIT_S: Final = 20.0
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Session:
    """A Spark session in a process of its own; a context manager that leaves no process behind."""

    def __init__(
        self,
        python: str,
        log_path: Path,
        *,
        jars: Sequence[Path] = (),
        message_bytes: int | None = None,
        has_plain_checkpoints: bool = False,
    ) -> None:
        """With Kafka's jars, or ours, which may be told how large messages are that it writes."""
        self._command = [python, "-m", "benchmarks.spark.program"]
        if jars:
            self._command += ["--jars", ",".join(map(str, jars))]
        if message_bytes is not None:
            self._command += ["--message-bytes", str(message_bytes)]
        if has_plain_checkpoints:
            self._command.append("--plain-checkpoints")
        self._log_path = log_path
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] | None = None
        self.version = ""

    @property
    def pid(self) -> int:
        return self._running().pid

    def __enter__(self) -> Self:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log = self._log_path.open("wb")
        self._process = subprocess.Popen(
            self._command,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        try:
            self.version = self._answer()["spark"]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def do(self, **task: Any) -> dict[str, Any]:
        """Has it do this, and waits. Raises BenchmarkError with what Spark said when it could not."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        except OSError as error:
            raise BenchmarkError(f"the Spark session has ended: {self._tail()}") from error
        answer = self._answer()
        if "error" in answer:
            raise BenchmarkError(f"{task['task']} from {task['source']}: {answer['error']}")
        return answer

    def close(self) -> None:
        process = self._process
        if process is None:
            return
        family = [process.pid, *descendants(process.pid)]
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in family:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, 9)
        if process.stdout is not None:
            process.stdout.close()
        if self._log is not None:
            self._log.close()
        self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise BenchmarkError("the Spark session is not running")
        return self._process

    def _answer(self) -> dict[str, Any]:
        process = self._running()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise BenchmarkError(f"the Spark session ended: {self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        return f"(log {self._log_path}) {self._log_path.read_text(errors='replace')[-1500:]}"


class _Process(NamedTuple):
    parent: int
    ticks: int
    """Of the process itself and of its children that it has waited for."""
    forgets: bool
    """Whether it waits for none of its children, so that what they took is gone with them: Spark's Python daemon."""


class Usage:
    """CPU seconds of some processes with all their descendants, living and ended, between two moments."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._before = self._now()
        self._began = time.monotonic()

    def spent(self) -> tuple[float, float]:
        """CPU seconds and wall seconds since this was made."""
        now = self._now()
        ticks = sum(one.ticks for one in now.values())
        for pid, one in self._before.items():
            parent = self._before.get(one.parent)
            if pid in now or parent is None or not parent.forgets:
                ticks -= one.ticks
            # Else nobody was told what it took, before this was made or since.
        return ticks / TICKS_PER_S, time.monotonic() - self._began

    def _now(self) -> dict[int, _Process]:
        family = {one for pid in self._pids for one in (pid, *descendants(pid))}
        found = {pid: _process(pid) for pid in family}
        return {pid: one for pid, one in found.items() if one is not None}


def descendants(pid: int) -> list[int]:
    """Every living process that this one or its children started."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child)
    return found


def _process(pid: int) -> _Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return _Process(int(fields[1]), sum(map(int, fields[11:15])), bool(ignored >> (signal.SIGCHLD - 1) & 1))
