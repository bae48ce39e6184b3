"""The table of a run: each fault, when it was, and what producers and consumers saw of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from tests.faults.run import Outcome


def show(outcome: Outcome, console: Console, *, in_detail: bool = False) -> None:
    """Print what happened."""
    history = outcome.history
    table = Table(title=f"seed {outcome.plan.seed}, mode {outcome.plan.mode}")
    for name in ("at s", "what", "lasted s", "acknowledged", "given up", "on again after s"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for event in history.events:
        until = event.ended_at + (event.mended_after or 0.0)
        taken, given_up = history.sent_between(event.began_at, until)
        table.add_row(
            f"{event.began_at:.1f}",
            event.what,
            f"{event.ended_at - event.began_at:.1f}",
            str(taken),
            str(given_up),
            "" if event.mended_after is None else f"{event.mended_after:.2f}",
        )
    console.print(table)
    console.print(outcome.summary)
    for cause, count in history.duplicates.most_common():
        console.print(f"  {count} {cause}", markup=False)
    if outcome.send_errors:
        console.print("sends given up: " + ", ".join(f"{count} {name}" for name, count in outcome.send_errors.items()))
    for error in outcome.last_errors if in_detail else ():
        console.print(f"  {error}", markup=False)
    for violation in outcome.violations:
        console.print(f"BROKEN {violation}", markup=False, style="red")
    console.print(f"to repeat: {outcome.plan.command}", markup=False)
