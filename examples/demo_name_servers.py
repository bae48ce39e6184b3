"""Two name servers, one of which dies: part of `make demo`.

Starts two name servers and a broker as real processes, makes a topic and asks for its route, kills the name server
that answered, and shows that the client moves on to the other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import fusee
from fusee.service import run

if TYPE_CHECKING:
    from fusee.admin.views import TopicRouteView

out = Console(highlight=False)


def done(text: str) -> None:
    out.print(f"[green]✓[/] {text}")


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A `fusee` process on a free port, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fusee", *arguments, "--listen", "127.0.0.1:0", "--log-level", "error"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"listening on ([\d.:]+)", line)
    if found is None:
        raise SystemExit(f"{arguments[0]} did not start: {line!r}")
    return process, found[1]


def show(route: TopicRouteView) -> None:
    table = Table(title=f"route of topic {route.topic!r}, as any RocketMQ client gets it", title_justify="left")
    for column in ("broker", "cluster", "id", "address", "queues"):
        table.add_column(column)
    for group in route.groups:
        for broker_id, address in sorted(group.addresses.items()):
            table.add_row(group.broker_name, group.cluster, str(broker_id), address, str(group.write_queues))
    out.print(table)


async def talk(name_servers: dict[str, subprocess.Popen[str]]) -> None:
    async with fusee.connect(";".join(name_servers)) as mq:
        await mq.admin.create_topic("orders", queues=4)
        show(await mq.admin.topic_route("orders"))
        lost = mq.session.name_servers.current
        done(f"answered by {lost}")

        name_servers[lost].kill()
        name_servers[lost].wait()
        out.print(f"[yellow]✗[/] name server {lost} killed")
        begun = time.perf_counter()
        await mq.admin.topic_route("orders")
        took_ms = (time.perf_counter() - begun) * 1000
        done(f"the client moved to {mq.session.name_servers.current} within {took_ms:.1f} ms")
        sent = await mq.send("payments", b"a topic that is made now")
        done(f"and a new topic is found there: stored in queue {sent.queue.queue_id} of {sent.queue.broker_name}")
        assert mq.session.name_servers.current != lost


def main() -> None:
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            name_servers: dict[str, subprocess.Popen[str]] = {}
            for number in (1, 2):
                process, address = start("namesrv", "--kv-path", str(Path(folder) / f"kv-{number}.json"))
                name_servers[address] = process
                processes.append(process)
            settings = Path(folder) / "broker.properties"
            settings.write_text("fastListenPort=0\nhaListenPort=0\nmappedFileSizeCommitLog=16777216\n")
            process, address = start(
                *("broker", "-n", ";".join(name_servers), "--name", "broker-a"),
                *("--store", str(Path(folder) / "store"), "-c", str(settings)),
            )
            processes.append(process)
            done(f"name servers on {' and '.join(name_servers)}, a broker on {address}")
            run(talk(name_servers))
        finally:
            for process in processes:
                process.terminate()
                process.wait(10)


if __name__ == "__main__":
    main()
