"""The page on the command line: its examples run, one after the other, against a server that is new."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fusee.cli.tree import BRANCHES
from tests.cli.scene import Terminal, server

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def examples() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_examples_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with server() as here:
        terminal = Terminal(here.name_server, 100)
        for program, *arguments in examples():
            assert program == "fusee"
            answer = terminal.run(*arguments)
            assert answer.exit_code == 0 or _is_allowed(arguments, answer.output), (arguments, answer)
    assert (tmp_path / "produce.html").is_file()


def _is_allowed(arguments: list[str], shown: str) -> bool:
    # By then the page has messages in a group that nobody consumes, which is what the doctor is for.
    return arguments == ["doctor"] and "no member is online" in shown


def test_every_branch_has_its_place_on_the_page() -> None:
    text = PAGE.read_text()
    for name in BRANCHES:
        if name not in ("namesrv", "broker", "console", "pipeline", "sql"):
            assert f"fusee {name}" in text or f"`{name}" in text, name
