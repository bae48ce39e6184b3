"""`fusee cluster` as a person runs it: real processes, a real terminal. What needs neither runs in this process."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from fusee.cli.main import main
from fusee.cluster import LocalCluster
from fusee.cluster.plan import NodeFiles, Shape, nodes_of
from fusee.cluster.processes import ProcessState, started_as
from fusee.cluster.state_file import read_state
from tests.cluster.idle import written_down

SMALL = ("--set", "mappedFileSizeCommitLog=16777216", "--set", "maxHashSlotNum=1000", "--set", "maxIndexNum=4000")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Done(NamedTuple):
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


def invoke(*arguments: str, **environment: str) -> Done:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with (
        patch.object(sys, "argv", ["fusee", "cluster", *arguments]),
        patch.dict(os.environ, {"COLUMNS": "200", **environment}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code: object = 0
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Done(code, *texts)


def run(command: str, data: Path, *arguments: str) -> Done:
    return invoke(command, "--data", str(data), *arguments)


def run_json(command: str, data: Path, *arguments: str) -> Any:
    done = run(command, data, "--json", *arguments)
    assert done.stderr == ""
    return json.loads(done.stdout)


def run_in_terminal(*arguments: str, until: Callable[[str], bool] | None = None) -> tuple[int, str]:
    """Run a command in a terminal, interrupt it when it has shown what was waited for; (exit code, all it showed)."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fusee", "cluster", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "50"},
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 90
    try:
        while select.select([ours], [], [], deadline - time.monotonic())[0]:
            try:
                shown += os.read(ours, 65_536)
            except OSError:
                break  # the other end is closed
            if until is not None and until(shown.decode("utf-8", "replace")):
                process.send_signal(signal.SIGINT)
                until = None
        return process.wait(10), _ESCAPES.sub("", shown.decode("utf-8", "replace"))
    finally:
        os.close(ours)
        process.kill()
        process.wait()


def test_cluster_in_a_terminal_from_start_to_stop(tmp_path: Path) -> None:
    data = tmp_path / "try"
    arguments = ("--data", str(data), "--groups", "1", "--replicas", "1", "--namesrvs", "2", *SMALL)
    try:
        code, shown = run_in_terminal("start", *arguments)
        assert code == 0, shown
        assert "name servers" in shown  # the bars
        assert "registered" in shown
        assert re.search(r"broker-a +async master +running +\d+ +127\.0\.0\.1:\d+ +0 B", shown), shown
        assert "broker-a        nothing: its log is empty" in shown
        assert "NAMESRV_ADDR='127.0.0.1:" in shown
        assert all(
            len(line.rstrip("\r")) <= 80 for line in shown.split("\n") if not ("━" in line or "fusee cluster" in line)
        )

        code, shown = run_in_terminal("status", "--data", str(data))
        assert code == 0, shown
        assert "if it died now" in shown
        code, shown = run_in_terminal(
            "status", "--data", str(data), "--watch", "0.2", until=lambda shown: shown.count("if it died now") > 1
        )
        assert code == 130, shown
        assert "Traceback" not in shown

        done = run("start", data)
        assert done.returncode == 1
        assert "runs already (3 of 3 nodes: namesrv-1, namesrv-2, broker-a)" in done.stderr
        done = run("start", data, "--groups", "2")
        assert done.returncode == 2
        assert "holds another cluster: 1 group, no slaves, 2 name servers" in done.stderr

        assert run_json("kill", data, "broker-a") == {"nodes": [{"name": "broker-a", "state": "killed"}]}
        done = run("status", data)
        assert done.returncode == 1
        assert "! broker-a is killed" in done.stdout
        assert run_json("restart", data, "broker-a")["nodes"][0]["state"] == "running"
        found = run_json("status", data)
        assert found["isReady"]
        assert [node["state"] for node in found["nodes"]] == ["running"] * 3
        assert found["nodes"][2]["registeredWith"] == ["namesrv-1", "namesrv-2"]
    finally:
        stopped = run_json("stop", data, "--remove")
    assert stopped == {"stopped": ["broker-a", "namesrv-1", "namesrv-2"], "removed": True}
    assert not data.exists()


def test_start_that_is_interrupted_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "try"
    arguments = ("--data", str(data), "--groups", "1", "--replicas", "1", "--namesrvs", "1", *SMALL)
    code, shown = run_in_terminal("start", *arguments, until=lambda shown: "name servers" in shown)
    assert code == 130, shown
    assert "Traceback" not in shown
    nodes = nodes_of(Shape(groups=1, replicas=1, name_servers=1, first_port=20_000))
    commands = [NodeFiles(data, node).command for node in nodes]
    assert [process for _, process in started_as(commands) if not process.is_gone] == []
    assert read_state(data) is None


def test_pause_resume_and_kill_take_several_nodes(tmp_path: Path) -> None:
    with written_down(tmp_path):
        cluster = LocalCluster.open(tmp_path)
        done = run("pause", tmp_path, "broker-a", "namesrv-1")
        assert (done.returncode, done.stdout) == (0, "broker-a, namesrv-1: paused\n")
        assert cluster.process_state("namesrv-1") is ProcessState.PAUSED
        assert run_json("resume", tmp_path, "broker-a")["nodes"] == [{"name": "broker-a", "state": "running"}]
        assert cluster.is_running("broker-a")
        done = run("kill", tmp_path, "broker-a", "broker-b")
        assert done.returncode == 1
        assert "no node is called 'broker-b', did you mean broker-a?" in done.stderr
        assert cluster.is_running("broker-a"), "nothing is done when a name is wrong"
        done = run("kill", tmp_path, "broker-a", "broker-a-s1")
        assert (done.returncode, done.stdout) == (0, "broker-a, broker-a-s1: killed\n")
        done = run("kill", tmp_path, "broker-a")
        assert done.returncode == 1
        assert f"broker-a does not run; `fusee cluster restart broker-a --data {tmp_path}` starts it" in done.stderr


def test_stop_is_idempotent(tmp_path: Path) -> None:
    with written_down(tmp_path):
        done = run("stop", tmp_path)
        assert (done.returncode, done.stdout) == (0, "stopped broker-a, broker-a-s1, namesrv-1\n")
        done = run("stop", tmp_path)
        assert (done.returncode, done.stdout) == (0, f"nothing runs in {tmp_path}\n")
        assert run_json("stop", tmp_path, "--remove") == {"stopped": [], "removed": True}
    done = run("stop", tmp_path)
    assert done.returncode == 0
    assert "there is no cluster" in done.stdout


def test_status_of_a_stopped_cluster_says_so_and_ends_with_1(tmp_path: Path) -> None:
    with written_down(tmp_path):
        run("stop", tmp_path)
        done = run("status", tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("! ") == 3
    assert "! broker-a-s1 is stopped" in done.stdout


@pytest.mark.parametrize("command", [("status",), ("kill", "x"), ("restart", "x"), ("pause", "x"), ("resume", "x")])
def test_folder_without_cluster_is_told_in_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(command[0], tmp_path, *command[1:])
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: there is no cluster in {tmp_path}: start one by `fusee cluster start")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--groups", "0"), "--groups"),
        (("--role", "both"), "--role"),
        (("--set", "slaveReadEnable"), "is no setting: write KEY=VALUE"),
        (("--set", "slaveReadable=1"), "brokers know no setting 'slaveReadable'"),
        (("--set", "listenPort=1"), "listenPort is decided by the cluster's own options"),
        (("--groups", "26", "--replicas", "9"), "234 brokers; at most 64"),
        (("--port", "80"), "--port"),
    ],
)
def test_wrong_arguments_end_with_2_and_start_nothing(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = run("start", tmp_path / "try", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "try").exists()


def test_folder_is_taken_from_the_environment(tmp_path: Path) -> None:
    done = invoke("status", FUSEE_CLUSTER_DATA=str(tmp_path / "mine"))
    assert f"there is no cluster in {tmp_path / 'mine'}" in done.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("start", "fusee cluster start --groups 2 --replicas 2 --namesrvs 3"),
        ("status", "the age of the oldest message that it lacks"),
        ("kill", "fusee cluster kill broker-a namesrv-1"),
        ("pause", "SIGSTOP"),
        ("resume", "SIGCONT"),
        ("restart", "Its data and ports are those that it had"),
        ("stop", "fusee cluster stop --remove"),
    ],
)
def test_help_tells_what_it_does_and_gives_an_example(command: str, says: str) -> None:
    done = invoke(command, "--help")
    assert done.returncode == 0
    assert says in done.stdout
    assert "Example" in done.stdout
