"""`fusee doctor`: what is wrong with a cluster, and how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, NameServers, run
from fusee.cli.render import AsJson, output, print_json
from fusee.errors import ConnectError

if TYPE_CHECKING:
    from rich.console import Console

    from fusee.admin.views import Finding
    from fusee.connection import Connection

_MARKS = {"ok": ("✓", "green"), "note": ("·", "cyan"), "warning": ("!", "yellow"), "error": ("✗", "bold red")}


def doctor(
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    servers_only: Annotated[
        bool, typer.Option("--servers", help="Look at name servers and brokers only, not at topics and groups.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only what is wrong.")] = False,
    as_json: AsJson = False,
) -> None:
    """**Examine a cluster** from where you are: name servers, routes, addresses that clients are told, clocks, disks,
    versions, slaves, topics and groups. Each finding comes with its fix; nothing is changed.

    Exit code 0: nothing is wrong (notes do not count). 1: something is, or will be soon.

    Example: `fusee doctor --namesrv 10.0.0.1:9876`
    """
    from fusee.admin.views import Finding, Severity

    async def examine(mq: Connection) -> tuple[Finding, ...]:
        return await mq.admin.diagnose(topics=not servers_only, groups=not servers_only)

    try:
        findings = run(name_servers, examine)
    except ConnectError as error:
        findings = (
            Finding(
                check="name server",
                subject=name_servers,
                severity=Severity.ERROR,
                what=str(error).partition("; start one with")[0],
                fix="start one (fusee serve), or name the right one with --namesrv or NAMESRV_ADDR",
            ),
        )
    if show_findings(findings, as_json=as_json, quiet=quiet):
        raise typer.Exit(1)


def show_findings(findings: tuple[Finding, ...], *, as_json: bool, quiet: bool = False) -> bool:
    """Show what was found; whether something is wrong."""
    wrong = [finding for finding in findings if finding.is_wrong]
    if as_json:
        print_json({"healthy": not wrong, "findings": findings})
        return bool(wrong)
    out = output()
    for finding in findings:
        if finding.is_wrong or not quiet:
            _show(out, finding)
    words = f"{len(wrong)} of {len(findings)} checks found something wrong" if wrong else "nothing is wrong"
    out.print()
    out.print(Text(words, style="bold red" if wrong else "bold green"))
    return bool(wrong)


def _show(out: Console, finding: Finding) -> None:
    mark, style = _MARKS[finding.severity.value]
    words: list[Any] = [
        (f"{mark} ", style),
        (f"{finding.check} ", "dim"),
        (finding.subject, "bold"),
        f" {finding.what}",
    ]
    out.print(Text.assemble(*words))
    if finding.fix:
        out.print(Padding(Text.assemble(("fix: ", "green"), finding.fix), (0, 0, 0, 4)))
