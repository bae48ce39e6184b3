"""`python -m benchmarks`: runs the benchmarks, prints their tables, writes build/bench/<name>.json and .md."""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from benchmarks.documents import put_table
from benchmarks.errors import BenchmarkError
from benchmarks.machine import describe
from benchmarks.plan import FULL, QUICK
from benchmarks.profiling import PROFILES
from benchmarks.profiling import profile as profile_server
from benchmarks.results import Report
from benchmarks.suites import SUITES
from benchmarks.tables import console, markdown, print_report
from fusee.compiled import PURE_VARIABLE, is_pure

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.machine import Machine
    from benchmarks.plan import Plan

MISSED_STATUS = 1
FAILED_STATUS = 2


def main(
    only: Annotated[list[str] | None, typer.Option(help="Run this benchmark; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short runs: shape, not figures.")] = False,
    document: Annotated[
        bool, typer.Option("--document", help="Put the tables into docs/performance.md; not with --quick.")
    ] = False,
    list_names: Annotated[bool, typer.Option("--list", help="Name the benchmarks and stop.")] = False,
    pure: Annotated[bool, typer.Option("--pure", help="Everything of ours interpreted, as with FUSEE_PURE=1.")] = False,
    profile: Annotated[
        str | None, typer.Option(help=f"Instead, profile a server under load: {', '.join(PROFILES)}.", metavar="SERVER")
    ] = None,
) -> None:
    """Every benchmark beside its peers in the same run.

    Ends with status 1 when a target was missed (not with --quick), 2 when a benchmark could not run.
    """
    if pure and not is_pure():
        # What is imported stays as it is: only a new process can run in the other form.
        os.environ[PURE_VARIABLE] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]])
    out = console()
    if list_names:
        for name, (title, _) in SUITES.items():
            out.print(f"{name:16} {title}")
        return
    if document and quick:
        raise typer.BadParameter("--document takes figures of a full run, not of --quick")
    plan = QUICK if quick else FULL
    if profile is not None:
        raise typer.Exit(_profile(profile, plan, out))
    unknown = [name for name in only or () if name not in SUITES]
    if unknown:
        raise typer.BadParameter(f"no benchmark named {', '.join(unknown)}; there are {', '.join(SUITES)}")
    # Servers are stopped on the way out, which a SIGTERM with its default action would skip.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    machine = describe()
    out.print(machine.line(), markup=False)
    if machine.busy:
        out.print("the machine is not idle: ratios are shaky and figures too low", style="yellow")
    statuses = [_run(name, plan, machine, out, document=document) for name in SUITES if not only or name in only]
    raise typer.Exit(max(statuses))


def _profile(server: str, plan: Plan, out: Console) -> int:
    if server not in PROFILES:
        raise typer.BadParameter(f"no profile of {server}; there are {', '.join(PROFILES)}")
    try:
        path = profile_server(server, plan)
    except BenchmarkError as error:
        out.print(f"no profile: {error}", style="red", markup=False)
        return FAILED_STATUS
    out.print(f"written to {path}", markup=False)
    return 0


def _run(name: str, plan: Plan, machine: Machine, out: Console, *, document: bool) -> int:
    title, suite = SUITES[name]
    try:
        findings = suite(plan)
    except BenchmarkError as error:
        out.print(f"{title}: could not be measured: {error}", style="red", markup=False)
        return FAILED_STATUS
    if findings.placement:
        out.print(f"{title}: {findings.placement}", markup=False)
    report = Report(
        name=name,
        title=title,
        quick=plan.quick,
        measured_at=datetime.now().astimezone().isoformat(timespec="seconds"),
        machine=machine.line(findings.placement),
        command=f"python -m benchmarks --only {name}{' --quick' if plan.quick else ''}",
        rows=findings.rows,
        notes=findings.notes,
    )
    path = plan.results / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    path.with_suffix(".md").write_text(markdown(report))
    print_report(report, out)
    if document:
        try:
            put_table(name, markdown(report))
        except BenchmarkError as error:
            out.print(f"{title}: not documented: {error}", style="red", markup=False)
            return FAILED_STATUS
    missed = any(row.met is False for row in report.rows)
    return MISSED_STATUS if missed and not plan.quick else 0


if __name__ == "__main__":
    typer.run(main)
