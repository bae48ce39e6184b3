"""The tree of commands: every branch is there, has help with an example, and is loaded only when it is used."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.main import get_command, get_group

from fusee.cli.tree import BRANCHES, app
from tests.cli.scene import Terminal

TERMINAL = Terminal("127.0.0.1:1", 80)


def leaves() -> list[tuple[str, Any]]:
    root = get_command(app)
    context = root.make_context("fusee", ["topic"], resilient_parsing=True)
    found: list[tuple[str, Any]] = []
    for name in BRANCHES:
        command = root.get_command(context, name)  # type: ignore[attr-defined]
        commands = getattr(command, "commands", None)
        found += [(f"{name} {leaf}", each) for leaf, each in commands.items()] if commands else [(name, command)]
    return found


LEAVES = leaves()


def test_help_lists_every_branch_and_what_it_is_for() -> None:
    text = TERMINAL.ok("--help")
    for name in BRANCHES:
        assert f" {name} " in text
    assert "bash" not in text or "completion" in text


@pytest.mark.parametrize("name", [name for name, _ in LEAVES])
def test_every_command_has_help_that_fits_80_columns_and_an_example(name: str) -> None:
    text = TERMINAL.ok(*name.split(), "--help")
    assert f"fusee {name.split(maxsplit=1)[0]}" in " ".join(text.split()), "an example shows the command as it is typed"
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, _ in LEAVES
        if name.split()[0] not in ("serve", "namesrv", "broker", "console")
        and name.split()[-1] not in ("kill", "pause", "resume")
    ],
)
def test_every_command_that_tells_something_speaks_json(name: str) -> None:
    assert "--json" in TERMINAL.ok(*name.split(), "--help")


@pytest.mark.parametrize("name", ["delete", "reset", "clone", "commit", "rollback", "replay", "set"])
def test_what_destroys_asks_or_takes_yes_and_can_be_tried(name: str) -> None:
    commands = [leaf for leaf, _ in LEAVES if leaf.split()[-1] == name]
    assert commands
    for command in commands:
        text = TERMINAL.ok(*command.split(), "--help")
        assert "--yes" in text
        assert "--dry-run" in text


def test_help_loads_no_server_no_client_no_loop_and_no_parser_of_markdown() -> None:
    program = (
        "import sys\nsys.argv = ['fusee', '--help']\nfrom fusee.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'asyncio', 'uvloop', 'numpy', 'fusee.store', 'fusee.broker', 'fusee.client', 'markdown_it'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_typing_error_is_met_with_what_was_meant() -> None:
    answer = TERMINAL.run("topci")
    assert answer.exit_code == 2
    assert "Did you mean 'topic'" in answer.notes


def test_branches_are_typers_or_functions() -> None:
    from importlib import import_module

    for branch in BRANCHES.values():
        found = getattr(import_module(f"fusee.cli.{branch.module}"), branch.attribute)
        assert isinstance(found, typer.Typer) or callable(found)
        if isinstance(found, typer.Typer):
            assert get_group(found).help == branch.help
