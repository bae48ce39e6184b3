"""`fusee message`: send messages, and look at those that are there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, NameServers, Topic, complete_topic, run
from fusee.cli.message_view import BodyForm, body_of, described, message_line, show_message
from fusee.cli.moments import TIME_HELP, parse_span_ms, parse_time_ms
from fusee.cli.render import (
    AsJson,
    body_text,
    count_text,
    note,
    output,
    plain_queue,
    print_json,
    print_json_line,
    progress,
    queue_text,
    span_text,
    table,
    tell_failures,
    time_text,
)
from fusee.cli.tree import subcommands
from fusee.clock import SystemClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from fusee.admin.views import MessageLife
    from fusee.client.received import ReceivedMessage
    from fusee.client.results import SendResult
    from fusee.connection import Connection
    from fusee.message.model import MessageQueue

app = subcommands("message")

Tags = Annotated[str, typer.Option("--tag", metavar="TAG||TAG", help="Only messages with one of these tags.")]
Sql = Annotated[
    str | None, typer.Option("--sql", metavar="EXPRESSION", help="Only messages whose properties match (SQL92).")
]
Queue = Annotated[str | None, typer.Option("--queue", "-q", metavar="BROKER/QUEUE", help="Only this queue.")]
Body = Annotated[BodyForm, typer.Option("--body", help="How bodies are printed; what is no text is printed as hex.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"Stored at or after: {TIME_HELP}")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored at or before.")]

_IN_FLIGHT = 256


@app.command("send")
def send_message(
    topic: Topic,
    body: Annotated[str, typer.Argument(metavar="BODY", help="What to send; `-` reads standard input.")],
    tag: Annotated[str | None, typer.Option(help="Tag, by which consumers choose.")] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", "-k", help="Key to find it by; may be given many times.")
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property; may be given many times."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Deliver it later: 30s, 10m, 2h. Needs a timer on the broker.")
    ] = None,
    delay_level: Annotated[int, typer.Option(min=0, help="Deliver it later, by level: 1 to 18.")] = 0,
    order_by: Annotated[
        str | None, typer.Option("--order-by", metavar="KEY", help="Messages of equal key keep their order.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="How many; {n} in BODY and keys counts.")] = 1,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of standard input is a message.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Send this file; BODY is ignored.")
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long a send may take.")] = 3.0,
    as_json: AsJson = False,
) -> None:
    """**Send a message**, or many.

    Tells for each where it is kept, and the ids to find it by. A topic that does not exist is made where the brokers
    make topics by themselves.

    Examples: `fusee message send orders '{"id": 1}' --tag paid --key order-1`

    `fusee message send orders 'number {n}' --count 1000 --order-by customer-7`

    `cat orders.txt | fusee message send orders - --lines`
    """
    from fusee.cli.topic import pairs

    options: dict[str, Any] = {"tag": tag, "timeout_ms": round(timeout * 1000)}
    if properties:
        options["properties"] = pairs(properties, "--property")
    if delay is not None:
        options["deliver_in"] = parse_span_ms(delay, "--delay") / 1000
    if delay_level:
        options["delay_level"] = delay_level
    if order_by is not None:
        options["order_by"] = order_by
    bodies = _bodies(body, file, count, lines=lines)
    done: list[SendResult] = []

    async def send(mq: Connection) -> None:

        waiting: list[asyncio.Future[SendResult]] = []
        with progress() as advance:
            for number, each in enumerate(bodies, 1):
                keys = [text.replace("{n}", str(number)) for text in key or ()]
                waiting.append(mq.send(topic, each, keys=keys, **options))
                if len(waiting) >= _IN_FLIGHT:
                    await _settle(waiting, done, len(bodies))
                    if len(bodies) > _IN_FLIGHT:
                        advance("sending", len(done), len(bodies))
            await _settle(waiting, done, len(bodies))

    run(name_servers, send, interrupted=lambda: f"{len(done):,} of {len(bodies):,} messages are known to be sent")
    _tell_sent(done, as_json=as_json)


@app.command("tail")
def tail_topic(
    topic: Topic,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="`earliest`, `latest`, a time (2026-11-16T09:30, or 10m before now), or an offset in each queue.",
        ),
    ] = "latest",
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="End after so many messages.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new messages, or end at the last one.")
    ] = True,
    tags: Tags = "*",
    sql: Sql = None,
    queue: Queue = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    body: Body = BodyForm.UTF8,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """**Follow a topic**: each message on one line, as it comes; ^C ends.

    No consumer group is needed and nothing is acknowledged, so nobody else misses a message.

    Examples: `fusee message tail orders`

    `fusee message tail orders --from earliest --limit 10`

    `fusee message tail orders --from 10m --tag paid --json`
    """
    start_offset = int(start) if start.isdigit() and int(start) < _FIRST_TIME_MS else None
    begin: Any = {"earliest": "first", "latest": "last"}.get(start)
    if begin is None:
        begin = 0 if start_offset is not None else parse_time_ms(start, "--from")
    shown = 0

    async def tail(mq: Connection) -> None:
        nonlocal shown
        place = None if queue is None else _parsed_queue(topic, queue)
        messages: AsyncIterator[ReceivedMessage]
        if follow:
            messages = mq.admin.follow(topic, begin, start_offset=start_offset, queue=place, tags=tags, sql=sql)
        else:
            if start_offset is not None or begin == "last":
                raise typer.BadParameter("--no-follow goes with --from earliest or a time", param_hint="--no-follow")
            messages = mq.admin.browse(
                topic, begin=None if begin == "first" else begin, queue=place, tags=tags, sql=sql
            )
        console = output()
        async for message in messages:
            if as_json:
                print_json_line(described(message, body))
            else:
                console.print(message_line(message, console.width))
            shown += 1
            if shown == limit:
                return

    run(name_servers, tail, interrupted=lambda: f"{shown:,} messages shown")


@app.command("browse")
def browse_topic(
    topic: Topic,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Messages at most.")] = 20,
    tags: Tags = "*",
    sql: Sql = None,
    queue: Queue = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="Only the message at this offset; needs --queue.")
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    body: Body = BodyForm.UTF8,
    as_json: AsJson = False,
) -> None:
    """**Look through a topic**: messages of a span of time, in the order in which they were stored.

    Examples: `fusee message browse orders --since 1h --limit 5`

    `fusee message browse orders --queue broker-a/3 --offset 1200`
    """
    if offset is not None and queue is None:
        raise typer.BadParameter("an offset is one of a queue; give --queue", param_hint="--offset")

    async def ask(mq: Connection) -> tuple[ReceivedMessage, ...]:
        place = None if queue is None else _parsed_queue(topic, queue)
        if place is not None and offset is not None:
            return (await mq.admin.message_at(place, offset),)
        return await mq.admin.messages_between(
            topic,
            None if since is None else parse_time_ms(since, "--since"),
            None if until is None else parse_time_ms(until, "--until"),
            queue=place,
            tags=tags,
            sql=sql,
            limit=limit,
        )

    _show_found(run(name_servers, ask), topic, as_json=as_json, form=body, limit=limit)


@app.command("query")
def query_messages(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]", help="The topic; not needed with an offset id.", autocompletion=complete_topic
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="A key that its producer gave.")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", "-i", help="Its id, of either kind: the producer's, or its place.")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Messages at most, by broker.")] = 64,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    body: Body = BodyForm.UTF8,
    as_json: AsJson = False,
) -> None:
    """**Find messages** by key, by id, or by time.

    Examples: `fusee message query orders --key order-1`

    `fusee message query orders --id 7F00000100002A139A46000000000001`

    `fusee message query orders --since 10m`
    """
    if key is not None and message_id is not None:
        raise typer.BadParameter("give --key or --id, not both")
    if topic is None and message_id is None:
        raise typer.BadParameter("name the topic to look in", param_hint="TOPIC")
    if key is None and message_id is None and since is None and until is None:
        raise typer.BadParameter("give --key, --id, or --since and --until")

    async def ask(mq: Connection) -> tuple[ReceivedMessage, ...]:
        if message_id is not None:
            return (await mq.admin.message(message_id, topic),)
        begin = None if since is None else parse_time_ms(since, "--since")
        end = None if until is None else parse_time_ms(until, "--until")
        name = str(topic)
        if key is None:
            return await mq.admin.messages_between(name, begin, end, limit=limit)
        return await mq.admin.messages_by_key(
            name, key, limit=limit, begin=begin or 0, end=_FOREVER_MS if end is None else end
        )

    found = run(name_servers, ask)
    if not found and not as_json:
        note(f"nothing found; keys are indexed within a second or two, and exactly as they were sent: {key or ''}")
    if message_id is not None and not as_json:
        show_message(output(), found[0], body)
        return
    _show_found(found, str(topic), as_json=as_json, form=body, limit=limit)
    if not found:
        raise typer.Exit(1)


@app.command("life")
@app.command("trace")
def message_life(
    topic: Topic,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Its id: the producer's, or its place.")],
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show **the life of a message**: born, stored, delayed, delivered to whom, tried again, dead.

    Who sent and who consumed it is known where clients write traces (`fusee.connect(..., enable_trace=True)`, Java's
    enableMsgTrace); the rest is read from the store.

    Example: `fusee message life orders 7F00000100002A139A46000000000001`
    """

    async def ask(mq: Connection) -> MessageLife:
        return await mq.admin.message_life(await mq.admin.find_message(message_id, topic))

    life = run(name_servers, ask)
    if as_json:
        print_json(
            {
                "message": described(life.message),
                "events": life.events,
                "groups": life.groups,
                "isTraced": life.is_traced,
                "failures": life.failures,
            }
        )
        return
    out = output()
    show_message(out, life.message, BodyForm.NONE)
    out.print()
    now_ms = SystemClock().time_ms()
    events = table("when", "what", "group", "where", "")
    for event in life.events:
        style = "dim" if event.at_ms > now_ms else ""
        what = {"dead": "bold red", "tried again": "yellow", "not consumed": "yellow"}.get(event.what, "bold")
        when = time_text(event.at_ms)
        events.add_row(Text(when, style=style), Text(event.what, style=what), event.group, event.where, event.details)
    out.print(events)
    if life.groups:
        out.print()
        groups = table("group", "has it", "online")
        for status in life.groups:
            groups.add_row(status.group, status.cause or status.consumption.value, "yes" if status.is_online else "no")
        out.print(groups)
    else:
        note("no group consumes the topic")
    if not life.is_traced:
        note("no client traced it, so who sent and consumed it is not known")
    tell_failures(life.failures)


# Within

_FOREVER_MS = 2**63 - 1
_FIRST_TIME_MS = 100_000_000_000  # as milliseconds, the year 1973: smaller numbers are offsets


def _bodies(body: str, file: Path | None, count: int, *, lines: bool) -> list[bytes]:
    if file is not None:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint="--file") from error
        return [content] * count
    if body == "-":
        text = sys.stdin.buffer.read()
        if lines:
            return [line for line in text.splitlines() if line] * count
        return [text] * count
    if lines:
        raise typer.BadParameter("--lines reads standard input; give `-` as BODY", param_hint="--lines")
    return [body.replace("{n}", str(number)).encode() for number in range(1, count + 1)]


async def _settle(waiting: list[asyncio.Future[SendResult]], done: list[SendResult], total: int) -> None:
    """Wait for what was sent. Raises the first error when all are settled, and tells how many succeeded."""
    import asyncio

    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    waiting.clear()
    done.extend(outcome for outcome in outcomes if not isinstance(outcome, BaseException))
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            if total > 1:
                note(f"{len(done):,} of {total:,} messages were sent", style="yellow")
            raise outcome


def _tell_sent(done: list[SendResult], *, as_json: bool) -> None:
    if as_json:
        sent = [
            plain_queue(each.queue)
            | {
                "queueOffset": each.queue_offset,
                "messageId": each.message_id,
                "offsetId": each.offset_id,
                "status": each.status.value,
                "durability": each.durability.value,
            }
            for each in done
        ]
        print_json(sent)
        return
    out = output()
    if len(done) > 1:
        queues = {each.queue for each in done}
        statuses = ", ".join(sorted({each.status.value for each in done}))
        out.print(Text(f"sent {count_text(len(done))} messages to {len(queues)} queues: {statuses}"))
        return
    for each in done:
        out.print(
            Text.assemble(
                ("sent ", ""),
                (each.message_id, "bold"),
                f" to {each.topic} {queue_text(each.queue)} at {each.queue_offset}",
            )
        )
        if each.status.value != "SEND_OK":
            note(f"{each.status.value}: it is stored, but not as safe as the broker is set up to promise", "yellow")


def _parsed_queue(topic: str, text: str) -> MessageQueue:
    from fusee.message.model import MessageQueue

    broker_name, slash, number = text.rpartition("/")
    if not slash or not number.isdigit():
        raise typer.BadParameter(f"{text!r} is no queue: write broker-a/3", param_hint="--queue")
    return MessageQueue(topic, broker_name, int(number))


def _show_found(found: tuple[ReceivedMessage, ...], topic: str, *, as_json: bool, form: BodyForm, limit: int) -> None:
    if as_json:
        print_json([described(message, form) for message in found])
        return
    if not found:
        note(f"no such message in {topic}")
        return
    out = output()
    if len(found) == 1:
        show_message(out, found[0], form)
        return
    now_ms = SystemClock().time_ms()
    is_wide = out.width >= _WIDE
    has_tags, has_keys = any(message.tag for message in found), any(message.keys for message in found)
    heads = ["stored", "queue", "offset", *(["tag"] * has_tags), *(["keys"] * has_keys), *(["id"] * is_wide), "body"]
    rows = table(*heads, right=("offset",), whole=("stored", "queue", "id"))
    for message in found:
        at = message.store_timestamp_ms
        cells = [
            time_text(at) if is_wide else f"{span_text(now_ms - at, 1)} ago",
            queue_text(message.queue),
            str(message.queue_offset),
            *([message.tag or ""] * has_tags),
            *([" ".join(message.keys)] * has_keys),
            *([message.message_id] * is_wide),
        ]
        rows.add_row(*cells, Text(body_text(body_of(message), 200), no_wrap=True, overflow="ellipsis"))
    out.print(rows)
    if len(found) == limit:
        note(f"the first {limit}; --limit shows more")


_WIDE = 110  # below, ids would leave no room for bodies; `tail`, `query` and --json have them
