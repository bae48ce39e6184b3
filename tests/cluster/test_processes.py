"""Processes that outlive whoever started them, and are never mistaken for another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fusee.cluster.errors import ClusterError
from fusee.cluster.processes import Process, ProcessState, end, launch, look_up, started_as
from tests.cluster.idle import IDLE, idle

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"


def wait_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + 20
    while text not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline


def wait_for_state(process: Process, state: ProcessState) -> None:
    deadline = time.monotonic() + 20
    while process.state is not state:
        assert time.monotonic() < deadline


def test_launch_gives_a_session_of_its_own_and_writes_output_to_the_log(tmp_path: Path) -> None:
    program = (
        "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == ''); print('err', file=sys.stderr)"
    )
    with idle(tmp_path / "log", program=program) as process:
        assert process.wait_gone(20)
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["True True", "err"]


def test_launch_appends_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    with idle(tmp_path / "log", program="print('after')") as process:
        assert process.wait_gone(20)
    assert (tmp_path / "log").read_text() == "before\nafter\n"


def test_launch_of_what_is_no_program_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="/nowhere could not be started: No such file"):
        launch(["/nowhere"], log=tmp_path / "log", environment={})


def test_process_lives_on_when_its_parent_is_gone(tmp_path: Path) -> None:
    program = f"""
import sys; sys.path[:] = {sys.path!r}
from pathlib import Path
from fusee.cluster.processes import launch
print(launch([sys.executable, "-S", "-c", {IDLE!r}], log=Path({str(tmp_path / "log")!r}), environment={{}}).pid)
"""
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    process = look_up(int(parent.stdout))
    assert process is not None
    assert process.state is ProcessState.RUNNING
    end([process], grace=0)
    assert process.is_gone


def test_state_tells_running_paused_and_gone(tmp_path: Path) -> None:
    with idle(tmp_path / "log") as process:
        wait_for_state(process, ProcessState.RUNNING)
        process.send(signal.SIGSTOP)
        wait_for_state(process, ProcessState.PAUSED)
        process.send(signal.SIGCONT)
        wait_for_state(process, ProcessState.RUNNING)
        process.send(signal.SIGKILL)
        assert process.wait_gone(20)
        assert not process.send(signal.SIGTERM)


def test_zombie_is_gone_and_is_buried(tmp_path: Path) -> None:
    with idle(tmp_path / "log", program="") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        assert process.is_gone
        assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize("changes", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_stale_number_is_never_signalled(tmp_path: Path, changes: dict[str, object]) -> None:
    with idle(tmp_path / "log") as process:
        stale = msgspec.structs.replace(process, **changes)
        assert stale.is_gone
        assert not stale.send(signal.SIGKILL)
        assert stale.wait_gone(0)
        assert end([stale], grace=0) == []
        assert process.state is ProcessState.RUNNING


def test_wait_gone_gives_up_after_its_time(tmp_path: Path) -> None:
    with idle(tmp_path / "log") as process:
        assert not process.wait_gone(0.01)


def test_end_lets_a_process_end_in_order(tmp_path: Path) -> None:
    program = "import signal; signal.signal(15, lambda *_: print('bye')); print('up', flush=True); signal.pause()"
    with idle(tmp_path / "log", program=program) as process:
        wait_for_text(tmp_path / "log", "up")
        assert end([process], grace=20) == []
    assert (tmp_path / "log").read_text() == "up\nbye\n"


def test_end_reaches_a_paused_process(tmp_path: Path) -> None:
    with idle(tmp_path / "log") as process:
        process.send(signal.SIGSTOP)
        assert end([process], grace=20) == []
        assert process.is_gone


def test_end_kills_who_does_not_listen(tmp_path: Path) -> None:
    with idle(tmp_path / "log", program=DEAF) as process:
        wait_for_text(tmp_path / "log", "deaf")
        assert end([process], grace=0.01) == [process]
        assert process.is_gone


def test_started_as_finds_by_the_whole_command(tmp_path: Path) -> None:
    path = str(tmp_path / "broker.conf")
    command = (sys.executable, "-S", "-c", IDLE, "--config", path)
    with idle(tmp_path / "1", "--config", path) as process, idle(tmp_path / "2", "--edit", "--config", path):
        wait_for_state(process, ProcessState.RUNNING)
        assert list(started_as([command, ("nothing",)])) == [(command, process)]


def test_look_up_of_a_number_that_is_free_is_none() -> None:
    assert look_up(2**22 + 1) is None


def test_process_whose_first_thread_has_ended_is_there_until_its_last_has(tmp_path: Path) -> None:
    """It is a zombie by name and holds its ports: so does one that was killed, for as long as its threads take."""
    program = (
        "import ctypes, signal, threading; "
        "threading.Thread(target=lambda: (print('on', flush=True), threading.Event().wait())).start(); "
        "ctypes.CDLL(None).pthread_exit(0)"
    )
    with idle(tmp_path / "log", program=program) as process:
        wait_for_text(tmp_path / "log", "on")
        stat = Path("/proc") / str(process.pid) / "stat"
        deadline = time.monotonic() + 20
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
        assert process.state is ProcessState.RUNNING
        assert process.send(signal.SIGKILL)
        assert process.wait_gone(20)
