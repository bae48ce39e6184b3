"""Processes that outlive whoever started them: launched in a session of their own, known by more than their number.

A process number is used again when its process is gone. A process is therefore known by its number, the time at which
it started and the boot of the machine that this time counts from; a signal goes through a descriptor of the process,
opened before that is compared, so that it reaches the one that was meant or nobody.

Everything is read from Linux's /proc.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.cluster.errors import ClusterError
from fusee.cluster.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_PROC: Final = Path("/proc")
# Fields of /proc/<pid>/stat behind the name of the program, which may hold anything and ends with the last bracket.
_STATE_FIELD: Final = 0
_PARENT_FIELD: Final = 1
_THREADS_FIELD: Final = 17
_START_FIELD: Final = 19
_COMMAND_SIZE_MAX: Final = 64 * 1024
_KILL_PATIENCE: Final = 10.0


class ProcessState(Enum):
    """What a process does now."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process, and no other that gets its number later."""

    pid: int
    start_ticks: int
    """When it started, in clock ticks since the boot."""
    boot_id: str

    @property
    def state(self) -> ProcessState:
        """Whether it runs; a zombie is gone, and is buried here if it is our child.

        It is a zombie as soon as its first thread has ended, and holds its files and ports until the last one has.
        """
        fields = _stat(self.pid)
        if fields is None or int(fields[_START_FIELD]) != self.start_ticks or boot_id() != self.boot_id:
            return ProcessState.GONE
        if fields[_STATE_FIELD] in "ZXx" and int(fields[_THREADS_FIELD]) <= 1:
            if int(fields[_PARENT_FIELD]) == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(self.pid, os.WNOHANG)
            return ProcessState.GONE
        return ProcessState.PAUSED if fields[_STATE_FIELD] in "Tt" else ProcessState.RUNNING

    @property
    def is_gone(self) -> bool:
        return self.state is ProcessState.GONE

    def send(self, *numbers: signal.Signals) -> bool:
        """Send these signals; whether it was still there to get them."""
        descriptor = self._open()
        if descriptor is None:
            return False
        try:
            for number in numbers:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait_gone(self, timeout: float) -> bool:
        """Whether it ended within so many seconds."""
        descriptor = self._open()
        if descriptor is not None:
            try:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(timeout * 1000)
            finally:
                os.close(descriptor)
        return self.is_gone

    def _open(self) -> int | None:
        """A descriptor of this very process."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        # The number cannot change hands while the descriptor is open, so what is compared now stays true.
        if self.is_gone:
            os.close(descriptor)
            return None
        return descriptor


def launch(command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Process:
    """Start a program in a session of its own, its output appended to a file. Raises ClusterError."""
    check_system()
    open_log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            command[0],
            tuple(command),
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), open_log, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP),
        )
    except OSError as error:
        raise ClusterError(f"{command[0]} could not be started: {error.strerror or error}; log {log}") from error
    found = look_up(pid)
    assert found is not None  # a child stays in the table until its parent has asked for its end
    return found


def look_up(pid: int) -> Process | None:
    """The process that has this number now."""
    fields = _stat(pid)
    return None if fields is None else Process(pid=pid, start_ticks=int(fields[_START_FIELD]), boot_id=boot_id())


def started_as(commands: Collection[tuple[str, ...]]) -> Iterator[tuple[tuple[str, ...], Process]]:
    """Every process of this user whose command line is one of these, and which."""
    wanted = {tuple(map(os.fsencode, command)): command for command in commands}
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        found = look_up(int(entry.name))
        try:
            with (entry / "cmdline").open("rb") as file:
                command = wanted.get(tuple(file.read(_COMMAND_SIZE_MAX).split(b"\0")[:-1]))
            if command is not None and found is not None and entry.stat().st_uid == os.getuid():
                yield command, found
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended while we looked, or is none of ours


def end(processes: Sequence[Process], *, grace: float) -> list[Process]:
    """End all of them: by SIGTERM, also those that are paused, and by SIGKILL after so many seconds.

    Those that had to be killed. Raises ClusterError as `kill` does.
    """
    for process in processes:
        process.send(signal.SIGTERM, signal.SIGCONT)
    patience = Patience(grace)
    killed = [process for process in processes if not process.wait_gone(patience.left)]
    kill(killed)
    return killed


def kill(processes: Sequence[Process]) -> None:
    """End all of them by SIGKILL. Raises ClusterError when one does not even end by that."""
    for process in processes:
        process.send(signal.SIGKILL)
    for process in processes:
        if not process.wait_gone(_KILL_PATIENCE):
            raise ClusterError(
                f"process {process.pid} does not end, though it was killed: it hangs in the kernel, as on a disk that "
                f"does not answer; /proc/{process.pid}/stack tells where"
            )


def check_system() -> None:
    """Raises ClusterError where there is no /proc to know processes by."""
    if not sys.platform.startswith("linux"):
        raise ClusterError(
            f"clusters of processes need Linux, whose /proc tells one process from another; this is {sys.platform}. "
            "Run `fusee namesrv` and `fusee broker` by hand, or use a container"
        )


@cache
def boot_id() -> str:
    """Which boot of the machine this is."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str] | None:
    """The fields of a process behind its name; None when there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()
