"""Reports as tables: a column per contender with half its spread, and our ratio beside each peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.results import OURS

if TYPE_CHECKING:
    from benchmarks.results import Figure, Report, Row

PLAIN_WIDTH = 150


def console() -> Console:
    """A console that keeps tables whole when the output goes to a file."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def print_report(report: Report, out: Console) -> None:
    """The table of one report, its notes, and the command that makes it again."""
    contenders = _contenders(report)
    units = {row.unit for row in report.rows}
    title = f"{report.title} ({units.pop()})" if len(units) == 1 else report.title
    table = Table(title=title, title_justify="left")
    table.add_column("work")
    for name in contenders:
        table.add_column(name, justify="right")
    table.add_column("target")
    table.add_column("")
    for row in report.rows:
        cells = [_cell(row, name) for name in contenders]
        table.add_row(_work(row, report), *cells, _targets(row), _verdict(row))
    out.print(table)
    for note in report.notes:
        out.print(f"  {note}", markup=False)
    quick = "  (shape only, not figures to quote)" if report.quick else ""
    out.print(f"  again: {report.command}{quick}\n", markup=False)


def markdown(report: Report) -> str:
    """The same table for docs/performance.md, with the machine above it and the notes below."""
    contenders = _contenders(report)
    lines = [
        f"Measured {report.measured_at[:10]} by `{report.command}` on: {report.machine}.",
        "",
        "| work | " + " | ".join(contenders) + " | target |",
        "|---" * (len(contenders) + 2) + "|",
    ]
    for row in report.rows:
        verdicts = [
            f"{verdict.target.ratio_min:g}x {verdict.target.peer}: {'met' if verdict.met else '**missed**'}"
            for verdict in row.verdicts
        ]
        cells = [_markdown_cell(row, name) for name in contenders]
        lines.append(f"| {_work(row, report)} | {' | '.join(cells)} | {'; '.join(verdicts)} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in report.notes), ""])


def _work(row: Row, report: Report) -> str:
    """The name of a row, with its unit where the rows of a report differ in it."""
    return row.name if len({one.unit for one in report.rows}) == 1 else f"{row.name} ({row.unit})"


def _markdown_cell(row: Row, name: str) -> str:
    measured = row.figures.get(name)
    if measured is None:
        return ""
    text = shortened(measured.median)
    if measured.server_cpu_us is not None:
        text += f" ({measured.server_cpu_us:.3g} us)"
    return f"{text}, **{row.ratios[name]:.2f}x**" if name in row.ratios else text


def _contenders(report: Report) -> list[str]:
    names = dict.fromkeys(name for row in report.rows for name in row.figures)
    return sorted(names, key=lambda name: name != OURS)


def shortened(value: float) -> str:
    """A figure with three significant digits: 1.25M, 48.3k, 6.21."""
    for limit, divisor, suffix in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= limit:
            return f"{value / divisor:.3g}{suffix}" if value / divisor < 1000 else f"{value / divisor:.0f}{suffix}"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _cell(row: Row, name: str) -> str:
    measured = row.figures.get(name)
    if measured is None:
        return "-"
    text = shortened(measured.median)
    if measured.repetitions > 1 and measured.median:
        spread = (measured.high - measured.low) / 2 / measured.median
        text += f" [dim]±{spread:.0%}[/dim]"
    if name in row.ratios:
        text += f"  [bold]{row.ratios[name]:.2f}x[/bold]"
    detail = _detail(measured)
    return f"{text}\n[dim]{detail}[/dim]" if detail else text


def _detail(measured: Figure) -> str:
    parts = []
    if measured.server_cpu_us is not None:
        parts.append(f"{measured.server_cpu_us:.3g} us cpu")
    if measured.p99_us is not None:
        parts.append(f"p99 {measured.p99_us / 1000:.3g} ms")
    return "\n".join(parts)


def _targets(row: Row) -> str:
    return "\n".join(f"{target.ratio_min:g}x {target.peer}" for target in row.targets)


def _verdict(row: Row) -> str:
    judged = {verdict.target: verdict.met for verdict in row.verdicts}
    marks = {True: "[green]met[/green]", False: "[red]MISSED[/red]", None: "[yellow]no peer[/yellow]"}
    return "\n".join(marks[judged.get(target)] for target in row.targets)
