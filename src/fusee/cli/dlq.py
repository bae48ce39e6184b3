"""`fusee dlq`: dead letters, what they have in common, and giving them again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, DryRun, Group, NameServers, Yes, complete_topic, confirm, run
from fusee.cli.message_view import BodyForm, body_of, described
from fusee.cli.moments import TIME_HELP, parse_time_ms
from fusee.cli.render import (
    AsJson,
    body_text,
    count_text,
    note,
    output,
    print_json,
    progress,
    span_text,
    table,
    tell_failures,
    time_text,
)
from fusee.cli.tree import subcommands
from fusee.clock import SystemClock
from fusee.errors import ConfigError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.admin.views import DeadLetterCause, DeadLetterQueue, ReplayResult, ReplayState
    from fusee.client.received import ReceivedMessage
    from fusee.connection import Connection

app = subcommands("dlq")

Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"Dead since: {TIME_HELP}")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Dead before.")]


@app.command("list")
def list_dead_letters(name_servers: NameServers = DEFAULT_NAME_SERVER, as_json: AsJson = False) -> None:
    """**Which groups have dead letters**, how many, and since when.

    Example: `fusee dlq list`
    """

    async def ask(mq: Connection) -> tuple[DeadLetterQueue, ...]:
        return await mq.admin.dead_letter_queues()

    found = run(name_servers, ask)
    if as_json:
        print_json(found)
        return
    if not found:
        note("no group has dead letters")
        return
    rows = table("group", "dead letters", "last", right=("dead letters",))
    for each in found:
        count = Text("?" if each.failures else count_text(each.count), style="yellow" if each.count else "dim")
        rows.add_row(each.group, count, time_text(each.last_ms))
    output().print(rows)
    for each in found:
        tell_failures(each.failures)


@app.command("inspect")
def inspect_dead_letters(
    group: Group,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="NAME", help="topic, tag, why, tries, host, or a property; many times."),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="One line for each message instead.")] = False,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="Dead letters that are looked at.")] = 10_000,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    as_json: AsJson = False,
) -> None:
    """**What the dead letters of a group have in common**: by topic, tag and why they died, most first.

    RocketMQ keeps no error with a dead letter; a property that your consumers or producers set can be asked for with
    --by.

    Examples: `fusee dlq inspect billing`

    `fusee dlq inspect billing --by tag --by customer`
    """
    begin, end = _span(since, until)
    if each:

        async def letters(mq: Connection) -> tuple[ReceivedMessage, ...]:
            with suppress(TopicNotFoundError):  # made with the first dead letter
                return await mq.admin.dead_letters(group, begin=begin, end=end, limit=limit)
            return ()

        _show_letters(run(name_servers, letters), as_json=as_json)
        return

    async def ask(mq: Connection) -> tuple[DeadLetterCause, ...]:
        from fusee.admin.dead_letters import CAUSE_NAMES

        with suppress(TopicNotFoundError):  # made with the first dead letter
            return await mq.admin.dead_letter_causes(group, by=by or CAUSE_NAMES, begin=begin, end=end, limit=limit)
        return ()

    found = run(name_servers, ask)
    if as_json:
        print_json(
            [
                {
                    "values": cause.values,
                    "count": cause.count,
                    "first": cause.first_ms,
                    "last": cause.last_ms,
                    "sample": described(cause.sample),
                }
                for cause in found
            ]
        )
        return
    if not found:
        note(f"group {group} has no dead letters")
        return
    names = list(found[0].values)
    now_ms = SystemClock().time_ms()
    rows = table("count", *names, "last", "a body", right=("count",), whole=("last",))
    for cause in found:
        rows.add_row(
            count_text(cause.count),
            *(value or "-" for value in cause.values.values()),
            f"{span_text(now_ms - cause.last_ms, 1)} ago",
            Text(body_text(body_of(cause.sample), 120), no_wrap=True, overflow="ellipsis"),
        )
    output().print(rows)


@app.command("replay")
def replay_dead_letters(
    group: Group,
    to_topic: Annotated[
        str | None,
        typer.Option(
            "--to-topic",
            metavar="TOPIC",
            help="Send them to this topic, for all its groups.",
            autocompletion=complete_topic,
        ),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    message_id: Annotated[list[str] | None, typer.Option("--id", help="Only this message; many times.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="So many at most.")] = None,
    rate: Annotated[float, typer.Option(min=0.01, metavar="N", help="Messages a second at most.")] = 100.0,
    replays_max: Annotated[
        int, typer.Option("--max-replays", min=1, help="Pass over those that were given again so often already.")
    ] = 3,
    state_file: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="Where it is kept how far this is. [fusee-replay-GROUP.json]"),
    ] = None,
    afresh: Annotated[bool, typer.Option("--afresh", help="Begin at the first dead letter again.")] = False,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Give dead letters to their group again**, as if they had not been tried yet.

    They go to the group's retry topic, so no other group gets them. How far it is is kept in a file: interrupted, or
    ended by an error, the same command goes on where it was. The dead letters stay where they are.

    A message that dies again counts its replays, and is passed over after --max-replays of them.

    Examples: `fusee dlq replay billing --dry-run`

    `fusee dlq replay billing --tag paid --rate 50`
    """
    from fusee.admin.views import ReplayState

    path = state_file or Path(f"fusee-replay-{group.replace('%', '_')}.json")
    state = ReplayState(group=group) if afresh else _read_state(path, group)
    begin, end = _span(since, until)
    results: list[ReplayResult] = []
    chosen = _chooser(tag, message_id)

    async def replay(mq: Connection, *, dry: bool, keep: Callable[[ReplayResult], object]) -> None:
        mine = msgspec.structs.replace(state, next_offsets=dict(state.next_offsets)) if dry else state
        async for result in mq.admin.replay_dead_letters(
            group,
            topic=to_topic,
            begin=begin,
            end=end,
            choose=chosen,
            limit=limit,
            rate=None if dry else rate,
            replays_max=replays_max,
            state=mine,
            dry_run=dry,
        ):
            keep(result)

    planned: list[ReplayResult] = []
    run(name_servers, lambda mq: replay(mq, dry=True, keep=planned.append))
    if dry_run:
        _show_results(group, planned, path if state.next_offsets else None, as_json=as_json, dry_run=True)
        return
    wanted = sum(result.outcome.name == "WOULD_REPLAY" for result in planned)
    if not wanted:
        _show_results(group, planned, None, as_json=as_json, dry_run=False)
        return
    confirm(f"Give {count_text(wanted)} dead letters to group {group} again?", yes=yes)
    with progress() as advance:

        def keep(result: ReplayResult) -> None:
            results.append(result)
            _write_state(path, state)
            advance(f"replaying to {group}", len(results), len(planned))

        run(
            name_servers,
            lambda mq: replay(mq, dry=False, keep=keep),
            interrupted=lambda: f"{_counts_text(results)}; the same command goes on there ({path})",
        )
    if limit is None:
        note(f"kept in {path}: the next replay goes on after these; --afresh begins again")
    _show_results(group, results, None, as_json=as_json, dry_run=False)
    if any(result.outcome.name == "REFUSED" for result in results):
        raise typer.Exit(1)


# Within


def _span(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    return (
        None if since is None else parse_time_ms(since, "--since"),
        None if until is None else parse_time_ms(until, "--until"),
    )


def _chooser(tag: str | None, ids: list[str] | None) -> Callable[[ReceivedMessage], bool] | None:
    if tag is None and not ids:
        return None
    return lambda letter: (tag is None or letter.tag == tag) and (not ids or letter.message_id in ids)


def _read_state(path: Path, group: str) -> ReplayState:
    from fusee.admin.views import ReplayState

    try:
        state = msgspec.json.decode(path.read_bytes(), type=ReplayState)
    except FileNotFoundError:
        return ReplayState(group=group)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; --afresh begins without it") from error
    if state.group != group:
        raise ConfigError(f"{path} is of a replay for group {state.group!r}; give another --state")
    state.counts.clear()
    return state


def _write_state(path: Path, state: ReplayState) -> None:
    beside = path.with_suffix(path.suffix + ".new")
    beside.write_bytes(msgspec.json.encode(state))
    beside.replace(path)


def _counts(results: list[ReplayResult]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.outcome.value] = counts.get(result.outcome.value, 0) + 1
    return counts


def _counts_text(results: list[ReplayResult]) -> str:
    return ", ".join(f"{count_text(count)} {what}" for what, count in _counts(results).items()) or "nothing was done"


def _show_results(group: str, results: list[ReplayResult], path: Path | None, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        plain: list[dict[str, Any]] = [
            {
                "messageId": each.message_id,
                "broker": each.queue.broker_name,
                "queueOffset": each.queue_offset,
                "outcome": each.outcome.name.lower(),
                "offsetId": each.offset_id,
                "cause": each.cause,
            }
            for each in results
        ]
        counts = dict.fromkeys(("replayed", "would_replay", "looped", "refused"), 0)
        for each in results:
            counts[each.outcome.name.lower()] += 1
        print_json({"group": group, "dryRun": dry_run, "counts": counts, "results": plain})
        return
    if not results:
        note(f"group {group} has no dead letters to replay" + (f" after those in {path}" if path else ""))
        return
    out = output()
    refused = [each for each in results if each.cause]
    if refused:
        rows = table("refused", "cause")
        for each in refused[:20]:
            rows.add_row(each.message_id, each.cause)
        out.print(rows)
    out.print(Text(_counts_text(results), style="bold"))


def _show_letters(found: tuple[ReceivedMessage, ...], *, as_json: bool) -> None:
    from fusee.admin.redelivery import origin_topic

    if as_json:
        print_json([described(letter, BodyForm.UTF8) | {"originTopic": origin_topic(letter)} for letter in found])
        return
    rows = table("dead since", "topic", "tag", "tries", "id", "body", right=("tries",))
    for letter in found:
        rows.add_row(
            time_text(letter.store_timestamp_ms)[:19],
            origin_topic(letter),
            letter.tag or "",
            str(letter.reconsume_times),
            letter.message_id,
            Text(body_text(body_of(letter), 120), no_wrap=True, overflow="ellipsis"),
        )
    output().print(rows)
