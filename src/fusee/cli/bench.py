"""`fusee bench`: rates and latencies of any cluster."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusee.cli.connect import DEFAULT_NAME_SERVER, NameServers, complete_topic, run_alone
from fusee.cli.render import AsJson, note, output, print_json
from fusee.cli.tree import subcommands

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fusee.cli.bench_loads import Plan
    from fusee.cli.bench_measure import Measured

app = subcommands("bench")

Duration = Annotated[float, typer.Option("--duration", "-d", metavar="SECONDS", min=0.1, help="How long to send.")]
Count = Annotated[int | None, typer.Option("--count", "-c", min=1, help="Messages, instead of a duration.")]
Size = Annotated[int, typer.Option("--size", "-s", metavar="BYTES", min=8, max=4_194_304, help="Body of a message.")]
Rate = Annotated[float | None, typer.Option(metavar="N", min=0.1, help="Messages a second; as many as go without.")]
Connections = Annotated[int, typer.Option(min=1, max=256, help="Connections, each with a client of its own.")]
InFlight = Annotated[int, typer.Option(min=1, max=65_536, help="Sends under way on each connection.")]
TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        help="Use this topic, which stays. Without it one is made, and deleted afterwards.",
        autocompletion=complete_topic,
    ),
]
Queues = Annotated[int, typer.Option(min=1, max=1024, help="Queues of the topic that is made, on each broker.")]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a report with plots, one file that stands alone.")
]


@app.command("produce")
def bench_produce(
    duration: Duration = 10.0,
    count: Count = None,
    size: Size = 1024,
    rate: Rate = None,
    connections: Connections = 1,
    in_flight: InFlight = 256,
    topic: TopicOption = None,
    queues: Queues = 8,
    html: Html = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**Send**, and measure from each send to the broker's answer.

    With --rate, a message that had to wait for its turn counts from when it was due.

    Examples: `fusee bench produce --size 128 --in-flight 1024`

    `fusee bench produce --rate 1000 --duration 30 --html produce.html`
    """
    from fusee.cli.bench_loads import produce

    plan = _plan(
        name_servers,
        topic,
        size=size,
        connections=connections,
        in_flight=in_flight,
        queues=queues,
        duration=duration,
        count=count,
        rate=rate,
    )
    _measure("produce", plan, produce, html=html, as_json=as_json)


@app.command("consume")
def bench_consume(
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Messages to consume.")] = 50_000,
    size: Size = 1024,
    connections: Connections = 1,
    in_flight: InFlight = 256,
    topic: TopicOption = None,
    queues: Queues = 8,
    html: Html = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**Consume** what was sent before, and measure the rate from the first message to the last.

    Sends the messages first, unless --topic names a topic that has them.

    Example: `fusee bench consume --count 100000`
    """
    from fusee.cli.bench_loads import consume
    from fusee.cli.render import progress

    plan = _plan(
        name_servers, topic, size=size, connections=connections, in_flight=in_flight, queues=queues, count=count
    )

    async def load(plan: Plan, measured: Measured) -> None:
        with progress() as advance:
            await consume(plan, measured, lambda done: done % 500 or advance("sending first", done, count))

    _measure("consume", plan, load, html=html, as_json=as_json)


@app.command("end-to-end")
def bench_end_to_end(
    duration: Duration = 10.0,
    count: Count = None,
    size: Size = 1024,
    rate: Rate = 1000.0,
    connections: Connections = 1,
    in_flight: InFlight = 256,
    topic: TopicOption = None,
    queues: Queues = 8,
    html: Html = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**Send and consume** at once, and measure from each send to the consumer's listener.

    Example: `fusee bench end-to-end --rate 500 --duration 30`
    """
    from fusee.cli.bench_loads import end_to_end

    plan = _plan(
        name_servers,
        topic,
        size=size,
        connections=connections,
        in_flight=in_flight,
        queues=queues,
        duration=duration,
        count=count,
        rate=rate,
    )
    _measure("end-to-end", plan, end_to_end, html=html, as_json=as_json)


@app.command("transaction")
def bench_transaction(
    duration: Duration = 10.0,
    count: Count = None,
    size: Size = 1024,
    rate: Rate = None,
    connections: Connections = 1,
    in_flight: Annotated[int, typer.Option(min=1, max=4096, help="Transactions open on each connection.")] = 32,
    topic: TopicOption = None,
    queues: Queues = 8,
    html: Html = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**Begin and commit transactions**, and measure both together.

    Example: `fusee bench transaction --in-flight 64`
    """
    from fusee.cli.bench_loads import transactions

    plan = _plan(
        name_servers,
        topic,
        size=size,
        connections=connections,
        in_flight=in_flight,
        queues=queues,
        duration=duration,
        count=count,
        rate=rate,
    )
    _measure("transaction", plan, transactions, html=html, as_json=as_json)


@app.command("delay")
def bench_delay(
    duration: Duration = 10.0,
    count: Count = None,
    size: Size = 1024,
    rate: Rate = 1000.0,
    level: Annotated[int, typer.Option(min=1, help="Delay level; 1 is a second on a default broker.")] = 1,
    connections: Connections = 1,
    in_flight: InFlight = 256,
    topic: TopicOption = None,
    queues: Queues = 8,
    html: Html = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**Send delayed messages**, and measure how much later than due the consumer gets each.

    Example: `fusee bench delay --level 2 --rate 200`
    """
    from fusee.cli.bench_loads import end_to_end

    plan = _plan(
        name_servers,
        topic,
        size=size,
        connections=connections,
        in_flight=in_flight,
        queues=queues,
        duration=duration,
        count=count,
        rate=rate,
    )

    async def load(plan: Plan, measured: Measured) -> None:
        await end_to_end(plan, measured, delay_level=level)

    _measure("delay", plan, load, html=html, as_json=as_json)


# Within


def _plan(name_servers: str, topic: str | None, **options: Any) -> Plan:
    """What the options ask for; a topic of the run's own where none is named."""
    from fusee.cli.bench_loads import Plan

    name = topic or f"FUSEE_BENCH_{os.getpid()}_{secrets.token_hex(3)}"
    return Plan(name_servers=name_servers, topic=name, is_own_topic=topic is None, **options)


def _measure(
    what: str,
    plan: Plan,
    load: Callable[[Plan, Measured], Coroutine[Any, Any, None]],
    *,
    html: Path | None,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from fusee.cli.bench_measure import Measured
    from fusee.cli.bench_report import plain, save, show
    from fusee.service import allow_many_files

    measured = Measured(what)
    settings = {name: value for name, value in asdict(plan).items() if value is not None}
    allow_many_files()
    ended: typer.Exit | None = None
    try:
        run_alone(
            _watched(load(plan, measured), plan, measured),
            interrupted=lambda: (
                f"{measured.done:,} messages were measured"
                + ("; the topic of the run is deleted" if plan.is_own_topic else "")
            ),
        )
    except typer.Exit as exit_:
        ended = exit_
        if not measured.done:
            raise
    if as_json:
        print_json(plain(measured, settings))
    else:
        show(output(), measured)
    if html is not None:
        save(html, measured, settings, f"{plan.size:,} bytes a message, {plan.connections} connections")
        note(f"report: {html}")
    if ended is not None:
        raise ended
    if measured.failures:
        raise typer.Exit(1)


async def _watched(work: Coroutine[Any, Any, None], plan: Plan, measured: Measured) -> None:
    """Do the work, and show how far it is where somebody looks."""
    import asyncio

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        await work
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(measured.what, total=plan.count or plan.duration)

        async def tell() -> None:
            while True:
                await asyncio.sleep(0.2)
                done = measured.done if plan.count else measured.ended - measured.begun
                words = f"{measured.what}: {measured.done:,} messages, {measured.rate:,.0f}/s"
                bars.update(task, completed=done, description=words)

        teller = asyncio.ensure_future(tell())
        try:
            await work
        finally:
            teller.cancel()
            with suppress(asyncio.CancelledError):
                await teller
