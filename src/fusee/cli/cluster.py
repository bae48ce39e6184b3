"""`fusee cluster`: run a whole cluster on this machine; `list` and `health` look at any one.

Exit codes: 0 done, 1 it failed, or `status` found something that is not as it should be, 2 the command line is wrong.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fusee.cli.cluster_health import cluster_health, list_clusters
from fusee.cli.render import AsJson, output, print_json
from fusee.cli.tree import subcommands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fusee.cluster.local import LocalCluster
    from fusee.cluster.status import ClusterStatus, NodeStatus

app = subcommands("cluster")
app.command("list")(list_clusters)
app.command("health")(cluster_health)

_STATE_STYLES = {"running": "green", "paused": "yellow", "stopped": "dim"}

Data = Annotated[
    Path,
    typer.Option(
        "--data", metavar="DIR", envvar="FUSEE_CLUSTER_DATA", help="Folder of the cluster: stores, settings, logs."
    ),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Nodes, as `fusee cluster status` calls them.")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How long it may take.")]

DEFAULT_DATA = Path("fusee-cluster")


class Mode(Enum):
    """When something is acknowledged."""

    SYNC = "sync"
    ASYNC = "async"


@app.command("start")
def start_cluster(
    groups: Annotated[int | None, typer.Option(metavar="N", min=1, max=26, help="Broker groups. [2]")] = None,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=9, help="Brokers of each group: a master, the others slaves. [2]"),
    ] = None,
    replicated_groups: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=26, help="Groups that have slaves, the first ones. [all]"),
    ] = None,
    name_servers: Annotated[
        int | None, typer.Option("--namesrvs", metavar="N", min=1, max=9, help="Name servers. [3]")
    ] = None,
    role: Annotated[
        Mode | None,
        typer.Option(
            help="`sync`: a send is acknowledged when a slave has it. `async`: when the master has it. [async]"
        ),
    ] = None,
    flush: Annotated[
        Mode | None,
        typer.Option(help="`sync`: a send is acknowledged when it is on disk. `async`: when it is written. [async]"),
    ] = None,
    data: Data = DEFAULT_DATA,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1024,
            max=65_000,
            help="Name servers take this port and the next ones, brokers from 20 above, ten apart. [any free ones]",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting for every broker; may be given many times."),
    ] = None,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """**Start a cluster**: name servers, masters and slaves, each a process of its own that goes on running.

    Comes back when every broker is registered with every name server and every slave replicates from its master, and
    prints where everything is. If that does not succeed, nothing is left running.

    A cluster that was stopped, or that a reboot ended, is started again with its data and its ports: give its folder
    and nothing else. Each node has a folder with its settings (`broker.conf`), `log` and `store`; edited settings hold
    from the next start of the node.

    Examples: `fusee cluster start --groups 2 --replicas 2 --namesrvs 3`

    `fusee cluster start --groups 1 --role sync --flush sync --port 9876 --set slaveReadEnable=true`
    """
    from fusee.cluster.local import LocalCluster
    from fusee.cluster.state_file import read_state

    given = {
        "groups": groups,
        "replicas": replicas,
        "replicated_groups": replicated_groups,
        "name_servers": name_servers,
        "role": None if role is None else role.value,
        "flush": None if flush is None else flush.value,
        "first_port": port,
        "settings": _parsed(settings) if settings else None,
    }
    known = read_state(data.absolute())
    options: dict[str, Any] = {} if known is None else msgspec.structs.asdict(known.shape)
    options |= {name: value for name, value in given.items() if value is not None}
    cluster = LocalCluster(data, **options)
    with _progress() as progress:
        cluster.start(timeout=timeout, progress=progress)
    _show(cluster.status(), as_json=as_json)
    if not as_json:
        _hints(data)


@app.command("status")
def cluster_status(
    data: Data = DEFAULT_DATA,
    watch: Annotated[
        float | None, typer.Option("--watch", "-w", metavar="SECONDS", min=0.2, help="Look again and again; ^C ends.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show **how a cluster is**: roles, addresses, processes, how far slaves are behind, and what a death would cost.

    *Behind* is what a slave lacks of its master's log, in bytes, and the age of the oldest message that it lacks.

    *If it died now* tells what no other node has: lost with the node's machine if it was not flushed, with its disk in
    any case. A process that dies alone loses nothing: what it wrote is with the operating system.

    Exit code 0: every node runs, is registered everywhere and replicates. 1: something is missing; it is named.

    Example: `fusee cluster status --watch 1`
    """
    from fusee.cluster.local import LocalCluster

    cluster = LocalCluster.open(data)
    if watch is not None:
        _watch(cluster, watch, as_json=as_json)
        return
    found = cluster.status()
    _show(found, as_json=as_json)
    if not found.is_ready:
        raise typer.Exit(1)


@app.command("kill")
def kill_nodes(names: Names, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """**Kill nodes** as a crash would (kill -9): nothing is flushed, nobody is told.

    Example: `fusee cluster kill broker-a namesrv-1`
    """
    _each(names, data, "killed", lambda cluster, name: cluster.kill(name), as_json=as_json)


@app.command("pause")
def pause_nodes(names: Names, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """**Let nodes stand still** (SIGSTOP): their connections stay open and nothing answers, as in a long collection of
    garbage or on a machine that swaps.

    Example: `fusee cluster pause broker-a-s1`
    """
    _each(names, data, "paused", lambda cluster, name: cluster.pause(name), as_json=as_json)


@app.command("resume")
def resume_nodes(names: Names, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """**Let paused nodes go on** (SIGCONT).

    Example: `fusee cluster resume broker-a-s1`
    """
    _each(names, data, "running", lambda cluster, name: cluster.resume(name), as_json=as_json)


@app.command("restart")
def restart_nodes(names: Names, data: Data = DEFAULT_DATA, timeout: Timeout = 60.0, as_json: AsJson = False) -> None:
    """**Start nodes again**, one after the other: those that run are stopped in order first.

    Comes back when each is registered and replicates again. Its data and ports are those that it had.

    Example: `fusee cluster restart broker-a`
    """
    with _progress() as progress:
        _each(
            names,
            data,
            "running",
            lambda cluster, name: cluster.restart(name, timeout=timeout, progress=progress),
            as_json=as_json,
        )


@app.command("stop")
def stop_cluster(
    data: Data = DEFAULT_DATA,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the data of the nodes, too.")] = False,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long brokers may take to close their stores.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """**Stop every node**, brokers first, so that they take their leave of the name servers.

    The data stay, unless --remove, and `fusee cluster start` brings the cluster back. Stopping what does not run is no
    error.

    Example: `fusee cluster stop --remove`
    """
    from fusee.cluster.local import LocalCluster
    from fusee.cluster.state_file import read_state

    ended: list[str] = []
    is_known = read_state(data.absolute()) is not None
    if is_known:
        cluster = LocalCluster.open(data)
        ended = cluster.stop(grace=grace)
        if remove:
            cluster.remove()
    if as_json:
        print_json({"stopped": ended, "removed": remove and is_known})
        return
    out = output()
    if ended:
        out.print(f"stopped {', '.join(ended)}")
    else:
        out.print(
            f"nothing runs in {data}" if is_known else f"there is no cluster in {data}, so there is nothing to stop"
        )
    if remove and is_known:
        out.print(f"removed the data in {data}")


# Within


def _each(
    names: list[str], data: Path, state: str, do: Callable[[LocalCluster, str], object], *, as_json: bool
) -> None:
    """Do something to each node; names are checked before anything is done."""
    from fusee.cluster.local import LocalCluster

    cluster = LocalCluster.open(data)
    for name in names:
        cluster.node(name)
    for name in names:
        do(cluster, name)
    if as_json:
        print_json({"nodes": [{"name": name, "state": state} for name in names]})
    else:
        output().print(Text(f"{', '.join(names)}: {state}"))


def _parsed(settings: list[str]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{setting!r} is no setting: write KEY=VALUE", param_hint="--set")
        parsed[name.strip()] = value.strip()
    return parsed


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], object] | None]:
    """Bars on standard error, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield advance


def _watch(cluster: LocalCluster, interval: float, *, as_json: bool) -> None:
    """Show it again and again, until interrupted."""
    from fusee.cluster.patience import breathe

    console = output()
    if as_json or not console.is_terminal:
        while True:
            _show(cluster.status(), as_json=as_json)
            breathe(interval)
    with Live(_view(cluster.status()), console=console, auto_refresh=False) as live:
        while True:
            breathe(interval)
            live.update(_view(cluster.status()), refresh=True)


def _show(status: ClusterStatus, *, as_json: bool) -> None:
    if as_json:
        print_json(status)
    else:
        output().print(_view(status))


def _view(status: ClusterStatus) -> Group:
    """The nodes, what the death of each would cost, and what is wrong."""
    parts: list[Any] = [
        Text.assemble((status.cluster, "bold"), f" in {status.data}: {status.shape}"),
        Text(""),
        _nodes_table(status),
        Text(""),
        _loss_table(status),
    ]
    if status.missing:
        parts += [Text(""), *(Text.assemble(("! ", "bold yellow"), missing) for missing in status.missing)]
    parts += [Text(""), Text.assemble(("NAMESRV_ADDR=", "dim"), f"'{status.name_servers}'")]
    return Group(*parts)


def _nodes_table(status: ClusterStatus) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("node", "role", "state", "process", "address", "log", "behind"):
        table.add_column(column, justify="right" if column in ("process", "log") else "left", overflow="fold")
    for node in status.nodes:
        table.add_row(
            Text(node.name, style="bold"),
            node.role.lower().replace("_", " ") or "name server",
            Text(node.state, style=_STATE_STYLES.get(node.state, "bold red")),
            "-" if node.pid is None else str(node.pid),
            node.address,
            _size(node.log_end_offset),
            _lag_text(node),
        )
    return table


def _loss_table(status: ClusterStatus) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("if it died now", overflow="fold")
    table.add_column("this would be lost", overflow="fold")
    for node in status.nodes:
        style = "yellow" if node.loss.disk_bytes is None or node.loss.disk_bytes else ""
        table.add_row(Text(node.name, style="bold"), Text(node.loss.words, style=style))
    return table


def _size(size: int | None) -> str:
    from fusee.cluster.loss import size_text

    return "-" if size is None else size_text(size)


def _lag_text(node: NodeStatus) -> Text:
    if node.lag_bytes is None:
        return Text("-" if node.role != "SLAVE" else "not known")
    if not node.lag_bytes:
        return Text("nothing", style="green")
    seconds = "" if node.lag_seconds is None else f", {node.lag_seconds:.1f} s"
    return Text(f"{_size(node.lag_bytes)}{seconds}", style="yellow")


def _hints(data: Path) -> None:
    where = "" if data == DEFAULT_DATA else f" --data {data}"
    commands = ("status --watch 1", "kill broker-a", "restart broker-a", "stop")
    lines = [f"  fusee cluster {command}{where}" for command in commands]
    output().print(Text("\n".join(["", "next:", *lines]), style="dim"), soft_wrap=True)
