"""A real broker, whose memory, CPU time and connections can be looked at from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KIB: Final = 1024
MIB: Final = 1024 * KIB


class BrokerProcess:
    """A broker under test, with a memory and connections that can be looked at."""

    def __init__(self, process: subprocess.Popen[str], address: str, store: Path) -> None:
        self._process = process
        self.address = address
        self._store = store

    @property
    def store(self) -> Path:
        """Its store, seen through the process: a file system that only the broker has is reached, too."""
        return Path(f"/proc/{self._process.pid}/root{self._store}")

    @property
    def memory_bytes(self) -> int:
        """Memory of its own; the mapped log, which the system may drop at any time, does not count."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * KIB

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def sockets(self) -> int:
        """Sockets it holds."""
        count = 0
        for entry in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with suppress(OSError):
                count += str(entry.readlink()).startswith("socket:")
        return count

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"the broker ended with {self._process.returncode}")


@contextmanager
def broker(
    settings: dict[str, str] | None = None, wrapper: Callable[[Path], list[str]] | None = None
) -> Iterator[BrokerProcess]:
    """A broker on any free port. `wrapper` gives a command that runs it where the store folder is special."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        store.mkdir()
        file = Path(folder) / "broker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in (settings or {}).items()))
        log = (Path(folder) / "broker.log").open("w")
        process = subprocess.Popen(
            [
                *(wrapper(store) if wrapper is not None else []),
                *(sys.executable, "-m", "fusee", "broker", "--listen", "127.0.0.1:0", "--name", "broker-a"),
                *("-c", str(file), "--store", str(store), "--log-level", "error"),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"listening on (\S+),", line)
            if found is None:
                raise SystemExit(f"the broker did not start: {line!r} {Path(log.name).read_text()}")
            yield BrokerProcess(process, found[1], store)
        finally:
            with process:
                process.terminate()
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
            log.close()
