"""What bad input and too much load do to a broker: each is done to a real process, and the bound that held is printed.

Every row starts a broker of its own, so that one cannot spoil another. Exits with 1 when a bound did not hold.
`--quick` does the same with fewer connections and shorter times; `--only NAME` does one row. Needs Linux: memory and
connections of the broker are read from /proc.
"""

from __future__ import annotations

import argparse
import resource
import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from fusee.service import run
from scripts.limits.bounds import FULL, QUICK, Row, Scale
from scripts.limits.crowds import busy_connections, heartbeat_flood, idle_connections, rubbish
from scripts.limits.deaf import holds_without_reading, pulls_without_reading
from scripts.limits.full_disk import full_disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

ROWS: Final[dict[str, Callable[[Scale], Awaitable[Row]]]] = {
    "idle": idle_connections,
    "busy": busy_connections,
    "deaf": pulls_without_reading,
    "holds": holds_without_reading,
    "flood": heartbeat_flood,
    "rubbish": rubbish,
    "disk": full_disk,
}


def print_rows(rows: Sequence[Row], out: Console) -> bool:
    """The table; whether every bound held."""
    table = Table(title="Bad input and load", title_justify="left", show_lines=True)
    for column in ("what was done", "bound that held", "measured", ""):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for row in rows:
        bounds = "\n".join(f"{bound.what} ≤ {bound.most:g} {bound.unit}".rstrip() for bound in row.bounds)
        values = "\n".join(f"{bound.measured:.3g} {bound.unit}".rstrip() for bound in row.bounds)
        marks = "\n".join("[green]✓[/]" if bound.held else "[bold red]✗ BROKEN[/]" for bound in row.bounds)
        table.add_row("\n".join([row.what, *(f"[dim]{note}[/]" for note in row.notes)]), bounds, values, marks)
    out.print(table)
    return all(row.held for row in rows)


def raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(f"{wanted} open files are needed, this shell allows {hard}: raise it (ulimit -Hn), or --quick")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


async def play(names: Sequence[str], scale: Scale, out: Console) -> list[Row]:
    rows = []
    for name in names:
        with out.status(f"{name} …"):
            rows.append(await ROWS[name](scale))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer connections, shorter times")
    parser.add_argument("--only", choices=list(ROWS), action="append", help="only this row; may be given again")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    raise_file_limit(scale.idle + 500)
    terminal = Console(highlight=False)
    out = terminal if terminal.is_terminal else Console(highlight=False, width=150)
    rows = run(play(arguments.only or list(ROWS), scale, out))
    return 0 if print_rows(rows, out) else 1


if __name__ == "__main__":
    sys.exit(main())
