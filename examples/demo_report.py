"""What the chapters of the demo tell, on the terminal and in the report: part of `make demo`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fusee.charts import Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

out = Console(highlight=False)


@dataclass
class Chapter:
    """A part of the demo, and what is left to say of it at the end."""

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    charts: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def done(self, text: str) -> None:
        """Tell of something that has worked."""
        out.print(f"[green]✓[/] {text}")

    def fact(self, what: str, result: str) -> None:
        """Keep this for the summary."""
        self.facts.append((what, result))


def summarise(chapters: Sequence[Chapter]) -> None:
    """The summary, as a table."""
    table = Table(title="what was shown", title_justify="left")
    table.add_column("")
    table.add_column("result", justify="right")
    for chapter in chapters:
        table.add_section()
        table.add_row(f"[bold]{chapter.title}", f"[dim]{chapter.seconds:.0f} s")
        for what, result in chapter.facts:
            table.add_row(f"  {what}", result)
    out.print(table)


def save(path: Path, chapters: Sequence[Chapter], shape: str) -> None:
    """The report, as one HTML file."""
    page = Report("Fusee, shown on this machine", shape)
    for chapter in chapters:
        page.heading(chapter.title)
        for chart in chapter.charts:
            page.chart(chart)
        page.table(["what", "result"], chapter.facts)
    page.save(path)
