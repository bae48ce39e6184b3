"""A name server and a broker as processes, in a folder of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_ADDRESS = re.compile(r"\b127\.0\.0\.1:(\d+)")
STOP_LIMIT_S = 20.0


class Servers:
    """A context manager that leaves nothing running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []
        self.name_server = ""

    def __enter__(self) -> Self:
        try:
            self.name_server = self._start("namesrv", "--listen", "127.0.0.1:0")
            self._start("broker", "-n", self.name_server, "--listen", "127.0.0.1:0", "--store", str(self._folder))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self, *command: str) -> str:
        """Start a server and wait for the line that says where it listens."""
        server = subprocess.Popen(
            [sys.executable, "-m", "fusee", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.append(server)
        assert server.stdout is not None
        for line in server.stdout:
            if found := _ADDRESS.search(line):
                # A pipe that nobody reads is full some day, and then the server waits for ever to say something.
                threading.Thread(target=_read_on, args=(server.stdout,), daemon=True).start()
                return found.group(0)
        raise RuntimeError(f"fusee {command[0]} did not start")

    def _stop(self) -> None:
        for server in reversed(self._running):
            server.terminate()
            try:
                server.wait(timeout=STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _read_on(output: IO[str]) -> None:
    for _ in output:
        pass
