"""`fusee cluster list` and `health`: clusters anywhere, as their name servers and brokers tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, Cluster, NameServers, run
from fusee.cli.doctor import show_findings
from fusee.cli.render import AsJson, count_text, output, print_json, size_text, span_text, table, tell_failures
from fusee.clock import SystemClock

if TYPE_CHECKING:
    from fusee.admin.views import ClusterView, Finding
    from fusee.connection import Connection

_WIDE: Final = 100


def list_clusters(
    cluster: Cluster = None, name_servers: NameServers = DEFAULT_NAME_SERVER, as_json: AsJson = False
) -> None:
    """**List the brokers** of any cluster: role, version, rates, log, disk; found by its name servers.

    Example: `fusee cluster list --namesrv 10.0.0.1:9876`
    """

    async def ask(mq: Connection) -> tuple[ClusterView, ...]:
        return await mq.admin.clusters(cluster=cluster)

    found = run(name_servers, ask)
    if as_json:
        print_json(found)
        return
    out, now_ms = output(), SystemClock().time_ms()
    for view in found:
        is_wide = out.width >= _WIDE
        numbers = ("in/s", "out/s", *(("today",) if is_wide else ()), "log", "disk")
        heads = ("broker", "role", "address", "version", "up")
        rows = table(*heads, *numbers, right=numbers, whole=("address", "up"), title=view.cluster)
        for entry in view.brokers:
            role = "master" if entry.broker.is_master else f"slave {entry.broker.broker_id}"
            cells: list[Any] = [Text(entry.broker.broker_name, style="bold"), role, entry.broker.address]
            state = entry.state
            if state is None:
                cells.append(Text("does not answer", style="bold red"))
            else:
                disk = Text(f"{state.disk_used_ratio:.0%}", style="yellow" if state.disk_used_ratio > 0.75 else "")
                cells += [
                    state.version,
                    span_text(now_ms - state.boot_ms, 1),
                    count_text(state.put_tps),
                    count_text(state.get_tps),
                    *((count_text(state.put_today),) if is_wide else ()),
                    size_text(state.log_max_offset - max(state.log_min_offset, 0)),
                    disk,
                ]
            rows.add_row(*cells)
        out.print(rows)
        tell_failures([entry.failure for entry in view.brokers if entry.failure is not None])


def cluster_health(name_servers: NameServers = DEFAULT_NAME_SERVER, as_json: AsJson = False) -> None:
    """**Whether the servers of a cluster are well**: name servers, masters, slaves, disks, clocks.

    `fusee doctor` looks at topics and groups, too. Exit code 1 when something is wrong.

    Example: `fusee cluster health`
    """

    async def examine(mq: Connection) -> tuple[Finding, ...]:
        return await mq.admin.diagnose(topics=False, groups=False)

    if show_findings(run(name_servers, examine), as_json=as_json):
        raise typer.Exit(1)
