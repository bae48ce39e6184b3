"""A broker as a real process, which can be killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


class BrokerProcess:
    """One store, and at most one process that serves it."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.store = folder / "store"
        self.settings = folder / "broker.properties"
        self.settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def complaints(self) -> str:
        """What the processes have logged."""
        return self._log.read_text()

    def start(self) -> str:
        """Start on any free port; the address."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "fusee", "broker", "--listen", "127.0.0.1:0", "--name", "broker-a"),
                    *("-c", str(self.settings), "--store", str(self.store), "--log-level", "error"),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"listening on (\S+),", line)
        assert found is not None, f"{line!r} {self.complaints}"
        return found[1]

    def kill(self) -> None:
        """End it as it stands: SIGKILL."""
        self._end(9)

    def stop(self) -> None:
        """End it in order."""
        self._end(15)

    def _end(self, signal: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            ended_before = process.poll()
            process.send_signal(signal)
            status = process.wait(30)
        assert ended_before is None, f"it had ended by itself with {ended_before}: {self.complaints}"
        assert status == (-9 if signal == 9 else 0), self.complaints

    def abandon(self) -> None:
        """Leave nothing running, whatever happened."""
        if self._process is not None:
            with self._process as process:
                process.kill()
