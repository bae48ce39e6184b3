"""Child processes that cannot outlive the run: each in its own group, its output kept, its end awaited.

A `Fleet` owns every process of a run and ends them in reverse order. Where `setpriv` exists (Linux) the
kernel ends the children too should the run itself be killed. It watches the thread that started a child, so
children are started by the main thread only.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

POLL_INTERVAL_S: Final = 0.05
STOP_TIMEOUT_S: Final = 20.0
ANSWER_TIMEOUT_S: Final = 60.0
LOG_TAIL_BYTES: Final = 3000
# Below the range from which Linux and macOS draw the ports of outgoing connections.
_PORTS: Final = range(20_000, 32_000)


class NotInTimeError(AssertionError):
    """Something that had to become true did not within its deadline."""


def eventually(what: str, check: Callable[[], T | None], *, timeout_s: float = ANSWER_TIMEOUT_S) -> T:
    """The first true answer of `check`; a refused connection or a cut answer counts as not yet."""
    deadline = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = check()
            last = answer
            if answer:
                return answer
        except OSError as failure:
            last = failure
        time.sleep(POLL_INTERVAL_S)
    raise NotInTimeError(f"{what}: not within {timeout_s:g} s; last seen: {last!r}")


class Ports:
    """Hands out free ports of 127.0.0.1, each one once."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def take(self, *neighbours: int) -> int:
        """A free port whose neighbours (by distance, such as -2 and 1) are free too."""
        for _ in range(1000):
            base = random.choice(_PORTS)
            wanted = {base, *(base + distance for distance in neighbours)}
            if not wanted & self._given and all(_is_free(port) for port in wanted):
                self._given |= wanted
                return base
        raise NotInTimeError(f"no free ports with the neighbours {neighbours} on 127.0.0.1")


class Child:
    """A process in its own group whose output goes to a file."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.popen = popen
        self.log = log

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def log_tail(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return ""

    def kill(self) -> None:
        """SIGKILL to the whole group, as a crash would be."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Asks to end (SIGTERM), insists after a while; the exit code."""
        if self.is_running:
            self.popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout_s)
        self.kill()
        return self.popen.returncode

    def assert_running(self) -> None:
        if not self.is_running:
            raise AssertionError(f"{self.name} ended with exit code {self.popen.returncode}:\n{self.log_tail()}")


class Dialogue(Child):
    """A process that takes orders on its standard input and answers with JSON objects, a line for each."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path) -> None:
        super().__init__(name, popen, log)
        self._tail = b""
        self._events: list[dict[str, Any]] = []

    def order(self, line: str) -> None:
        self._input.write(f"{line}\n".encode())
        self._input.flush()

    def next_event(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """The next answer; lines that are not JSON objects are other people's chatter."""
        deadline = time.monotonic() + timeout_s
        while not self._events:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._output], [], [], left_s)[0]:
                raise NotInTimeError(f"{self.name} said nothing for {timeout_s:g} s:\n{self.log_tail()}")
            self._read()
        return self._events.pop(0)

    def events_until(self, last: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> list[dict[str, Any]]:
        """Every answer before the one named `last`."""
        events = []
        while (event := self.next_event(timeout_s=timeout_s))["event"] != last:
            events.append(event)
        return events

    def end_input(self) -> None:
        """Tells the program that there are no more orders; it may be told again."""
        self._input.close()

    def finish(self, *, timeout_s: float = STOP_TIMEOUT_S) -> list[dict[str, Any]]:
        """Ends the input, waits for the end of the process and returns what was still to be read."""
        self.end_input()
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(EOFError):
            while True:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not select.select([self._output], [], [], left_s)[0]:
                    raise NotInTimeError(f"{self.name} did not end within {timeout_s:g} s")
                self._read()
        code = self.popen.wait(STOP_TIMEOUT_S)
        if code != 0:
            raise AssertionError(f"{self.name} ended with exit code {code}:\n{self.log_tail()}")
        events, self._events = self._events, []
        return events

    def kill(self) -> None:
        super().kill()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        self._output.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self.popen.stdin is not None
        return self.popen.stdin

    @property
    def _output(self) -> IO[bytes]:
        assert self.popen.stdout is not None
        return self.popen.stdout

    def _read(self) -> None:
        data = os.read(self._output.fileno(), 1 << 16)
        if not data:
            self.popen.wait(STOP_TIMEOUT_S)
            raise EOFError(f"{self.name} ended with exit code {self.popen.returncode}:\n{self.log_tail()}")
        *lines, self._tail = (self._tail + data).split(b"\n")
        self._events += [json.loads(line) for line in lines if line.startswith(b"{")]


class Fleet:
    """Every process of a run, with a folder for its files."""

    def __init__(self, root_dir: Path) -> None:
        self.root_dir = root_dir
        self.ports = Ports()
        self._children: list[Child] = []
        self._count = 0

    def folder(self, name: str) -> Path:
        """A new folder that is removed with the fleet."""
        self._count += 1
        folder = self.root_dir / f"{self._count:02}-{name}"
        folder.mkdir(parents=True)
        return folder

    def start(self, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Child:
        """A server: no input, all output to `folder`/log."""
        log = folder / "log"
        with log.open("ab") as output:
            popen = self._popen(command, folder, env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return self._add(Child(name, popen, log))

    def converse(
        self, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
    ) -> Dialogue:
        """A program that is driven by orders; what it says on standard error goes to `folder`/log."""
        log = folder / "log"
        with log.open("ab") as errors:
            popen = self._popen(command, folder, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        return self._add(Dialogue(name, popen, log))

    def logs(self) -> list[tuple[str, str]]:
        """Name and last words of every child that runs or came to a bad end."""
        return [(child.name, child.log_tail()) for child in self._children if child.popen.poll() != 0]

    def close(self) -> None:
        """Ends everything at once, the youngest first, and removes the files."""
        for child in reversed(self._children):
            child.kill()
        self._children.clear()
        shutil.rmtree(self.root_dir, ignore_errors=True)

    def _add(self, child: C) -> C:
        self._children.append(child)
        return child

    def _popen(
        self, command: Sequence[str], folder: Path, env: Mapping[str, str] | None, **streams: Any
    ) -> subprocess.Popen[bytes]:
        bind_to_us = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        # A private home: the servers and clients write logs, offsets and key-value files there.
        environment = {**os.environ, "HOME": str(folder), "ROCKETMQ_HOME": str(folder), **(env or {})}
        environment.pop("NAMESRV_ADDR", None)
        return subprocess.Popen([*bind_to_us, *command], cwd=folder, env=environment, start_new_session=True, **streams)


C = TypeVar("C", bound=Child)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False
