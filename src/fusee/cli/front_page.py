"""The first page, `fusee --help`: drawn here, because typer's own renderer loads a Markdown parser for it.

It looks as the pages of the commands do, which typer draws.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fusee.cli.tree import Branch


def show_front_page(usage: str, words: str, options: Iterable[Any], branches: Mapping[str, Branch]) -> None:
    """Usage, what it is, options, and the commands by what they are about."""
    out = Console(highlight=False)
    out.print()
    out.print(Text.assemble(" ", ("Usage: ", "yellow"), (usage.removeprefix("Usage: ").strip(), "bold")))
    out.print()
    for paragraph in words.split("\n\n"):
        out.print(Padding(_bold(" ".join(paragraph.split())), (0, 1)))
        out.print()
    rows = [(", ".join(option.opts), option.help or "") for option in options]
    _panel(out, "Options", rows, max(len(name) for name, _ in rows))
    widest = max(len(name) for name in branches)
    for title in dict.fromkeys(branch.panel for branch in branches.values()):
        _panel(
            out,
            title,
            [(name, branch.help) for name, branch in branches.items() if branch.panel == title],
            widest,
        )


def _panel(out: Console, title: str, rows: Iterable[tuple[str, str]], widest: int) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold cyan", no_wrap=True, width=widest)
    grid.add_column(overflow="fold")
    for name, words in rows:
        grid.add_row(name, _bold(words))
    out.print(Panel(grid, title=title, title_align="left", border_style="dim"))


def _bold(text: str) -> Text:
    """A line of help, with what stands between double stars in bold and between backquotes as it is."""
    found = Text()
    for part in re.split(r"(\*\*.+?\*\*|`.+?`)", text):
        if part.startswith("**"):
            found.append(part.strip("*"), style="bold")
        else:
            found.append(part.strip("`"), style="bold cyan" if part.startswith("`") else "")
    return found
