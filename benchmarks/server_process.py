"""A server under measurement: a real process on its own core, with a log, bounded start and bounded stop."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from benchmarks.errors import BenchmarkError
from benchmarks.machine import pinned_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

START_LIMIT_S = 30.0
STOP_LIMIT_S = 5.0
POLL_S = 0.01
LOG_TAIL_CHARS = 2000
_PORTS = 10_000, 32_000
_PORT_TRIES = 50


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now, and none that the system gives to whoever connects.

    A client that tries a port of those before the server listens may be given it as its own, and keep it.
    """
    for _ in range(_PORT_TRIES):
        port = random.randrange(*_PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise BenchmarkError(f"no free port was found on 127.0.0.1 from {_PORTS[0]} to {_PORTS[1]}")


def _with_bytecode(logs: Path) -> dict[str, str]:
    """Python keeps what it compiles, as it does wherever pip has installed a program: a start is not a compilation."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(logs.absolute() / "bytecode")}


class ServerProcess:
    """A child process that listens on 127.0.0.1:port; a context manager that starts and stops it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        port: int,
        cores: frozenset[int] | None,
        log_path: Path,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
        start_limit_s: float = START_LIMIT_S,
        stop_limit_s: float = STOP_LIMIT_S,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.port = port
        self._cores = cores
        self._log_path = log_path
        self._cwd = cwd
        self._environment = {**os.environ, **_with_bytecode(log_path.parent), **(environment or {})}
        self._start_limit_s = start_limit_s
        self._stop_limit_s = stop_limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BenchmarkError(f"{self.name} is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log = self._log_path.open("wb")
        with pinned_to(self._cores):
            self._process = subprocess.Popen(
                self.command,
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_until_listening()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process: asked first, then killed."""
        if self._process is not None:
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(self._stop_limit_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_LIMIT_S)
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def pause(self) -> None:
        """Lets the process run no further until `resume`: it uses no CPU while another is measured."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process run on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def move_to(self, cores: frozenset[int] | None) -> None:
        """Moves every thread to these cores."""
        if cores is None:
            return
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)

    def _wait_until_listening(self) -> None:
        process = self._process
        deadline = time.monotonic() + self._start_limit_s
        while process is not None and time.monotonic() < deadline:
            if process.poll() is not None:
                raise BenchmarkError(
                    f"{self.name} ended with status {process.returncode}, not listening: {self._log_tail()}"
                )
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return
            time.sleep(POLL_S)
        raise BenchmarkError(
            f"{self.name} does not listen on port {self.port} after {self._start_limit_s:.0f} s: {self._log_tail()}"
        )

    def _log_tail(self) -> str:
        text = self._log_path.read_text(errors="replace").strip()
        return f"(log {self._log_path}) {text[-LOG_TAIL_CHARS:] or 'nothing was printed'}"
