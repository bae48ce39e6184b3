"""Every command with its arguments and options, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from fusee.cli.tree import BRANCHES, app

if TYPE_CHECKING:
    from collections.abc import Iterator


def cli_reference() -> str:
    """The page."""
    root = get_command(app)
    lines = [
        "# Commands",
        "",
        (
            "What `fusee COMMAND --help` says, on one page. With examples that follow each other: [the command "
            "line](../cli.md)."
        ),
        "",
    ]
    context: Any = root.make_context("fusee", [], resilient_parsing=True)
    for name in BRANCHES:
        command: Any = root.get_command(context, name)  # type: ignore[attr-defined]
        lines += _section(command, f"fusee {name}", context, depth=2)
    return "\n".join(lines)


def _section(command: Any, path: str, parent: Any, depth: int) -> Iterator[str]:
    context = type(parent)(command, parent=parent, info_name=path.rpartition(" ")[2])
    yield from (f"{'#' * depth} {path}", "", _prose(command.help or ""), "")
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if not found.hidden:
                yield from _section(found, f"{path} {name}", context, depth + 1)
        return
    yield from ("```", _usage(command, path, context), "```", "")
    rows = [row for row in (_row(each) for each in command.params) if row is not None]
    if rows:
        yield from ("| | default | |", "|---|---|---|", *rows, "")


def _usage(command: Any, path: str, context: Any) -> str:
    return f"{path} {' '.join(command.collect_usage_pieces(context))}"


def _row(parameter: Any) -> str | None:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return None
    value = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "argument":
        name = f"`{value}`"
    else:
        name = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
        name += "" if parameter.is_flag else f" `{value}`"
    cells = (name, _default(parameter), " ".join((parameter.help or "").split()))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or callable(value) or value in ((), []):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`".replace("True", "on")


def _prose(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", inspect.cleandoc(text))
