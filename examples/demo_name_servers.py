"""Two name servers, one of which dies: part of `make demo`.

Starts two name servers as real processes, registers a broker by protocol with both, asks for the route of a topic
over the wire, kills the name server that answered, and shows that the client moves on to the other.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fusee.client.name_servers import NameServers
from fusee.clock import SystemClock
from fusee.service import run
from fusee.transport import Client, TcpNetwork
from fusee.wire.bodies.route import TopicRouteData, decode_route
from fusee.wire.bodies.topic import RegisterBrokerBody, TopicConfig, TopicConfigTable, encode_register_body
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.namesrv import GetRouteInfo, RegisterBroker

out = Console(highlight=False)


def start_name_server(folder: Path, number: int) -> tuple[subprocess.Popen[str], str, float]:
    """A name server on a free port; the process, its address, and how long it took to start."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "fusee", "namesrv", "--listen", "127.0.0.1:0"),
            *("--kv-path", str(folder / f"kv-{number}.json"), "--log-level", "error"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"listening on (\S+)", line)
    if found is None:
        raise SystemExit(f"the name server did not start: {line!r}")
    return process, found[1], time.perf_counter() - begun


def registration() -> Command:
    """A broker group of one master that holds the topic `orders` in four queues."""
    topics = [TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in ("orders", "payments")]
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigTable(topic_config_table={t.topic_name: t for t in topics})
    )
    header = RegisterBroker(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        broker_id=0,
        broker_address="127.0.0.1:10911",
        ha_server_address="127.0.0.1:10912",
    )
    return Command.request(RequestCode.REGISTER_BROKER, header, body=encode_register_body(body))


def route_query() -> Command:
    return Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic="orders"))


def show(route: TopicRouteData) -> None:
    table = Table(title="route of topic 'orders', as any RocketMQ client gets it", title_justify="left")
    for column in ("broker", "cluster", "id", "address", "queues", "permission"):
        table.add_column(column)
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    for broker in route.broker_datas:
        queue = queues[broker.broker_name]
        for broker_id, address in sorted(broker.broker_addrs.items()):
            counts = (str(queue.write_queue_nums), str(queue.perm))
            table.add_row(broker.broker_name, broker.cluster, str(broker_id), address, *counts)
    out.print(table)


async def talk(processes: dict[str, subprocess.Popen[str]]) -> None:
    client = Client(network=TcpNetwork(), clock=SystemClock(), timers=asyncio.get_running_loop())
    try:
        name_servers = NameServers(client, list(processes))
        for address in name_servers.addresses:
            answer = await client.request(address, registration())
            out.print(f"[green]✓[/] broker-a registered with {address}: code {answer.code}")

        answer = await name_servers.request(route_query())
        out.print(f"[green]✓[/] route query answered by {name_servers.current}")
        show(decode_route(answer.body))

        lost = name_servers.current
        processes[lost].kill()
        processes[lost].wait()
        out.print(f"[yellow]✗[/] name server {lost} killed")
        begun = time.perf_counter()
        answer = await name_servers.request(route_query())
        took_ms = (time.perf_counter() - begun) * 1000
        out.print(f"[green]✓[/] the client moved to {name_servers.current}: code {answer.code} after {took_ms:.1f} ms")
        assert name_servers.current != lost
        assert decode_route(answer.body).broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
    finally:
        await client.close()


def main() -> None:
    processes: dict[str, subprocess.Popen[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number in (1, 2):
                process, address, seconds = start_name_server(Path(folder), number)
                processes[address] = process
                out.print(f"[green]✓[/] name server {number} listens on {address}, started in {seconds:.2f} s")
            run(talk(processes))
        finally:
            for process in processes.values():
                process.terminate()
                process.wait(10)


if __name__ == "__main__":
    main()
