"""The command line in a real terminal: help, errors, questions, progress, interruption, completion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from fusee.sync import EmbeddedServer
from tests.cli.scene import Terminal, bury, server, wait_for

PATIENCE = 60
COMMAND = [sys.executable, "-m", "fusee"]


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedServer]:
    with server(topics={"orders": 2, "orders_archive": 1, "payments": 1}) as here:
        yield here


def typed(here: EmbeddedServer | None, *arguments: str, columns: int = 80, cwd: Path | None = None) -> Any:
    """A command in a terminal of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    if here is not None:
        environment["NAMESRV_ADDR"] = here.name_server
    return pexpect.spawn(
        COMMAND[0],
        [*COMMAND[1:], *arguments],
        env=environment,
        dimensions=(40, columns),
        timeout=PATIENCE,
        encoding="utf-8",
        cwd=None if cwd is None else str(cwd),
    )


def plain(text: str) -> str:
    """Without colours and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def ended(child: Any) -> tuple[str, int]:
    """What it showed up to its end, and its exit code."""
    child.expect(pexpect.EOF)
    shown = plain(child.before)
    child.close()
    return shown, child.exitstatus


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_window(columns: int) -> None:
    shown, code = ended(typed(None, "--help", columns=columns))
    assert code == 0
    assert "transaction" in shown
    assert max(len(line) for line in shown.splitlines()) <= columns


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_window(running: EmbeddedServer, columns: int) -> None:
    for arguments in (["topic", "list", "-l"], ["topic", "show", "orders"], ["cluster", "list"], ["doctor"]):
        shown, code = ended(typed(running, *arguments, columns=columns))
        assert code == 0
        assert max(len(line) for line in shown.splitlines()) <= columns


def test_an_error_is_one_line_with_its_fix_and_exit_code_1(running: EmbeddedServer) -> None:
    shown, code = ended(typed(running, "topic", "show", "nowhere", columns=300))
    assert code == 1
    assert shown.strip() == (
        "error: there is no topic 'nowhere'; `fusee topic list` shows those that there are, `fusee topic create "
        "nowhere` makes it"
    )
    shown, code = ended(typed(None, "topic", "list", "--namesrv", "127.0.0.1:1", columns=400))
    assert code == 1
    assert len(shown.strip().splitlines()) == 1
    assert "fusee serve" in shown
    assert "Traceback" not in shown


def test_what_destroys_asks_and_no_is_no(running: EmbeddedServer) -> None:
    terminal = Terminal(running.name_server)
    terminal.ok("topic", "create", "short_lived", "--queues", "1")
    child = typed(running, "topic", "delete", "short_lived", columns=200)
    child.expect(r"Delete topic short_lived with 0 messages.*\[y/N\]")
    child.sendline("n")
    shown, code = ended(child)
    assert (code, "nothing was done" in shown) == (1, True)
    assert "short_lived" in terminal.ok("topic", "list")
    child = typed(running, "topic", "delete", "short_lived", columns=200)
    child.expect(r"\[y/N\]")
    child.sendline("y")
    shown, code = ended(child)
    assert (code, "deleted topic short_lived" in shown) == (0, True)


def test_a_question_is_left_by_ctrl_c_with_nothing_done(running: EmbeddedServer) -> None:
    child = typed(running, "topic", "delete", "payments", columns=200)
    child.expect(r"\[y/N\]")
    child.sendintr()
    shown, code = ended(child)
    assert (code, "interrupted: nothing was done" in shown) == (130, True)
    assert "payments" in Terminal(running.name_server).ok("topic", "list")


def test_tail_shows_what_comes_and_ctrl_c_ends_it(running: EmbeddedServer) -> None:
    child = typed(running, "message", "tail", "payments", "--from", "earliest")
    Terminal(running.name_server).ok("message", "send", "payments", "paid at last")
    child.expect("paid at last")
    child.sendintr()
    shown, code = ended(child)
    assert code == 130
    assert "interrupted: 1 messages shown" in shown


def test_a_long_send_shows_progress_and_says_what_was_done_when_it_is_interrupted(running: EmbeddedServer) -> None:
    child = typed(running, "message", "send", "orders", "n {n}", "--count", "2000000", columns=120)
    child.expect(r"sending.*\d+/2000000")
    child.sendintr()
    shown, code = ended(child)
    assert code == 130
    assert re.search(r"interrupted: [\d,]+ of 2,000,000 messages are known to be sent", shown)


def test_a_benchmark_shows_progress_and_an_interrupted_one_its_numbers(running: EmbeddedServer) -> None:
    child = typed(running, "bench", "produce", "--duration", "600", "--rate", "200", columns=120)
    child.expect(r"produce: [1-9][\d,]* messages")
    child.sendintr()
    shown, code = ended(child)
    assert code == 130
    assert re.search(r"interrupted: [\d,]+ messages were measured; the topic of the run is deleted", shown)
    assert "p99.9" in shown
    assert "FUSEE_BENCH" not in Terminal(running.name_server).ok("topic", "list")


def test_an_interrupted_replay_goes_on_where_it_was(running: EmbeddedServer, tmp_path: Path) -> None:
    with running.connect() as mq:
        mq.admin.create_topic("replayed", queues=1)
        bury(mq, "replayed", "slow", 6)
    child = typed(running, "dlq", "replay", "slow", "--rate", "2", "--yes", cwd=tmp_path, columns=120)
    child.expect(r"replaying to slow.*[1-5]/6")
    child.sendintr()
    shown, code = ended(child)
    assert code == 130
    found = re.search(r"interrupted: (\d) replayed; the same command goes on there", shown)
    assert found is not None
    first = int(found[1])
    assert 1 <= first < 6
    shown, code = ended(typed(running, "dlq", "replay", "slow", "--rate", "1000", "--yes", cwd=tmp_path))
    assert code == 0
    assert f"{6 - first} replayed" in shown


# Completion


def completed(name_servers: str, *words: str) -> list[str]:
    """What bash is offered after these words."""
    environment = os.environ | {
        "_FUSEE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("fusee", *words)),
        "COMP_CWORD": str(len(words)),
        "NAMESRV_ADDR": name_servers,
    }
    done = subprocess.run(
        [str(Path(sys.executable).with_name("fusee"))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_options_topics_groups_and_brokers_are_completed(running: EmbeddedServer) -> None:
    with running.connect() as mq:
        mq.admin.create_group("billing")
    assert completed(running.name_server, "tra") == ["transaction"]
    assert set(completed(running.name_server, "topic", "")) >= {"list", "show", "create", "update", "delete"}
    assert "--dry-run" in completed(running.name_server, "topic", "delete", "--d")
    wait_for(lambda: completed(running.name_server, "topic", "show", "ord") == ["orders", "orders_archive"])
    wait_for(lambda: "billing" in completed(running.name_server, "group", "lag", "bil"))
    wait_for(lambda: completed(running.name_server, "config", "show", "--broker", "emb") == ["embedded"])


def test_completion_of_names_is_silent_and_quick_when_nobody_answers() -> None:
    with server() as here:
        gone = here.name_server
    assert completed(gone, "topic", "show", "ord") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion_works_in_bash(running: EmbeddedServer, tmp_path: Path) -> None:
    fusee = Path(sys.executable).with_name("fusee")
    script = subprocess.run(
        [str(fusee), "--show-completion", "bash"],
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    (tmp_path / "rc").write_text(f"PATH={fusee.parent}:$PATH\nPS1='ready> '\n{script.stdout}\n")
    child = pexpect.spawn(
        "bash",
        ["--rcfile", str(tmp_path / "rc"), "-i"],
        env=os.environ | {"NAMESRV_ADDR": running.name_server, "TERM": "dumb"},
        timeout=PATIENCE,
        encoding="utf-8",
    )
    child.expect("ready> ")
    child.send("fusee transac\t")
    child.expect("transaction ")
    child.sendcontrol("c")
    child.expect("ready> ")
    child.sendline("exit")
    child.close()
