"""`fusee delay`: delayed messages that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, Broker, NameServers, OnlyTopic, run
from fusee.cli.message_view import body_of, described
from fusee.cli.moments import parse_span_ms
from fusee.cli.render import AsJson, body_text, count_text, note, output, print_json, span_text, table, tell_failures
from fusee.cli.tree import subcommands
from fusee.clock import SystemClock

if TYPE_CHECKING:
    from fusee.admin.views import DelayView, Failure, WaitingMessage
    from fusee.connection import Connection

app = subcommands("delay")


@app.command("list")
def list_delays(
    broker: Broker = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Levels in which nothing waits, too.")] = False,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**What waits**, by delay level and broker, and when the next of each is due.

    Example: `fusee delay list`
    """

    async def ask(mq: Connection) -> DelayView:
        return await mq.admin.delays(broker=broker)

    found = run(name_servers, ask)
    if as_json:
        print_json(found)
        return
    now_ms = SystemClock().time_ms()
    rows = table("broker", "level", "delay", "waiting", "next due", right=("level", "delay", "waiting"))
    for each in found.levels:
        if everything or each.waiting:
            due = "-" if each.next_due_ms is None else _due_text(each.next_due_ms, now_ms)
            rows.add_row(each.broker_name, str(each.level), span_text(each.delay_ms), count_text(each.waiting), due)
    out = output()
    if rows.row_count:
        out.print(rows)
    for topic, count in found.timed.items():
        out.print(Text(f"{count_text(count)} messages for {topic} wait for delivery times of their own"))
    if not found.waiting:
        note("nothing waits")
    tell_failures(found.failures)


@app.command("due")
def due_messages(
    within: Annotated[
        str | None, typer.Option("--within", metavar="SPAN", help="Only what is due that soon: 30s, 10m.")
    ] = None,
    topic: OnlyTopic = None,
    level: Annotated[
        int | None, typer.Option(min=0, help="Only this delay level; 0: those with a time of their own.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Messages at most.")] = 20,
    broker: Broker = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**The messages that wait**, in the order in which they are due.

    Example: `fusee delay due --within 10m --topic orders`
    """

    async def ask(mq: Connection) -> tuple[tuple[WaitingMessage, ...], tuple[Failure, ...]]:
        return await mq.admin.waiting_messages(level=level, topic=topic, limit=limit, broker=broker)

    found, failures = run(name_servers, ask)
    now_ms = SystemClock().time_ms()
    if within is not None:
        last_ms = now_ms + parse_span_ms(within, "--within")
        found = tuple(each for each in found if each.due_ms <= last_ms)
    if as_json:
        print_json(
            [
                {"due": each.due_ms, "level": each.level, "topic": each.topic, "message": described(each.message)}
                for each in found
            ]
        )
        return
    if not found:
        note("nothing waits" + (f" that is due within {within}" if within else ""))
    else:
        rows = table("due", "topic", "level", "id", "body", right=("level",), whole=("due", "id"))
        for each in found:
            rows.add_row(
                _due_text(each.due_ms, now_ms),
                each.topic,
                str(each.level or "-"),
                each.message.message_id,
                Text(body_text(body_of(each.message), 200), no_wrap=True, overflow="ellipsis"),
            )
        output().print(rows)
    tell_failures(failures)


def _due_text(due_ms: int, now_ms: int) -> str:
    return f"in {span_text(due_ms - now_ms)}" if due_ms > now_ms else f"now, since {span_text(now_ms - due_ms)}"
