"""`fusee group`: consumer groups, their members and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fusee.cli.connect import DEFAULT_NAME_SERVER, Cluster, DryRun, Group, NameServers, OnlyTopic, Yes, confirm, run
from fusee.cli.offset import reset_offsets
from fusee.cli.render import (
    AsJson,
    count_text,
    facts,
    note,
    output,
    plain_queue,
    print_json,
    queue_text,
    span_text,
    table,
    tell_failures,
)
from fusee.cli.tree import subcommands
from fusee.clock import SystemClock

if TYPE_CHECKING:
    from fusee.admin.views import BrokerAddress, ConsumerGroupView, GroupLag, GroupSettings, GroupSummary
    from fusee.connection import Connection

app = subcommands("group")
app.command("reset")(reset_offsets)


@app.command("list")
def list_groups(
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Cluster = None,
    names_only: Annotated[bool, typer.Option("--names", help="Only the names, which is quicker.")] = False,
    as_json: AsJson = False,
) -> None:
    """**List consumer groups**: members that are online, how they consume, rate and lag.

    Example: `fusee group list`
    """
    if names_only:

        async def names(mq: Connection) -> tuple[str, ...]:
            return await mq.admin.list_groups(cluster=cluster)

        found = run(name_servers, names)
        if as_json:
            print_json([{"group": name} for name in found])
        else:
            for name in found:
                output().print(Text(name))
        return

    async def ask(mq: Connection) -> tuple[GroupSummary, ...]:
        return await mq.admin.group_summaries(cluster=cluster)

    summaries = run(name_servers, ask)
    if as_json:
        print_json(summaries)
        return
    rows = table("group", "members", "consumes", "out/s", "lag", right=("members", "out/s", "lag"))
    for each in summaries:
        is_unknown = bool(each.failures) and not each.consume_type and not each.lag
        rows.add_row(
            each.group,
            "?" if is_unknown else str(each.members),
            _way(each.consume_type, each.message_model),
            "?" if is_unknown else f"{each.consume_tps:.1f}",
            "?" if is_unknown else _lag_text(each.lag),
        )
    output().print(rows)
    for each in summaries:
        tell_failures(each.failures)


@app.command("show")
def show_group(group: Group, name_servers: NameServers = DEFAULT_NAME_SERVER, as_json: AsJson = False) -> None:
    """Show **one group**: settings, members that are online, and what they subscribe to.

    Example: `fusee group show billing`
    """
    from fusee.errors import ConsumerOfflineError

    async def ask(mq: Connection) -> tuple[tuple[GroupSettings, ...], ConsumerGroupView | None, tuple[str, ...]]:
        settings = await mq.admin.group_settings(group)
        try:
            online = await mq.admin.consumers(group)
        except ConsumerOfflineError:
            online = None
        return settings, online, await mq.admin.group_topics(group)

    settings, online, topics = run(name_servers, ask)
    if as_json:
        print_json({"group": group, "settings": settings, "online": online, "topics": topics})
        return
    out = output()
    first = settings[0]
    delays = ", ".join(span_text(delay) for delay in first.retry_delays_ms)
    out.print(
        facts(
            [
                ("group", Text(group, style="bold")),
                ("on", ", ".join(each.broker_name for each in settings)),
                ("tries", f"{first.retry_max_times + 1}, then it is a dead letter"),
                ("waits", delays or ("growing" if first.retry_backoff else "the broker's delay levels")),
                ("in order", "yes" if first.consume_message_orderly else ""),
                ("consuming", "" if first.consume_enable else Text("disabled", style="red")),
                ("topics", ", ".join(topics) or "none yet"),
                ("consumes", "" if online is None else _way(online.consume_type, online.message_model)),
            ]
        )
    )
    if online is None:
        note("no member is online")
        return
    out.print()
    wanted = table("topic", "expression", "kind")
    for each in online.subscriptions:
        wanted.add_row(each.topic, each.expression, each.expression_type)
    out.print(wanted)
    out.print()
    members = table("client", "address", "language", "version", "brokers")
    for client in online.clients:
        members.add_row(
            client.client_id, client.address, client.language, str(client.version), ", ".join(client.brokers)
        )
    out.print(members)
    tell_failures(online.failures)


@app.command("lag")
def group_lag(
    group: Group,
    topic: OnlyTopic = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    owners: Annotated[bool, typer.Option("--owners/--no-owners", help="Ask members which queues they have.")] = True,
    as_json: AsJson = False,
) -> None:
    """Show **how far a group is**: in every queue, with the client that owns it.

    *Lag* is what is not consumed yet, *in flight* what a member has and has not acknowledged.

    Example: `fusee group lag billing`
    """

    async def ask(mq: Connection) -> GroupLag:
        return await mq.admin.lag(group, topic, owners=owners)

    found = run(name_servers, ask)
    if as_json:
        print_json(
            {
                "group": group,
                "lag": found.total,
                "inFlight": found.in_flight,
                "consumeTps": found.consume_tps,
                "queues": [
                    plain_queue(each.queue)
                    | {
                        "brokerOffset": each.broker_offset,
                        "committedOffset": each.committed_offset,
                        "lag": each.lag,
                        "inFlight": each.in_flight,
                        "lastConsumed": each.last_consumed_ms,
                        "owner": each.owner,
                    }
                    for each in found.queues
                ],
                "failures": found.failures,
            }
        )
        return
    now_ms = SystemClock().time_ms()
    numbers = ("end", "committed", "lag", "in flight")
    out = output()
    for name in found.topics:
        rows = table("queue", *numbers, "consumed up to", "owner", right=numbers, title=name)
        for each in found.queues:
            if each.queue.topic == name:
                at = each.last_consumed_ms
                rows.add_row(
                    queue_text(each.queue),
                    count_text(each.broker_offset),
                    count_text(each.committed_offset),
                    _lag_text(each.lag),
                    count_text(each.in_flight),
                    f"{span_text(now_ms - at, 1)} ago" if at else "-",
                    each.owner or Text("nobody", style="dim"),
                )
        out.print(rows)
        out.print()
    out.print(
        Text.assemble(
            ("in all ", "dim"),
            _lag_text(found.total),
            (" behind, ", "dim"),
            count_text(found.in_flight),
            (" in flight, ", "dim"),
            f"{found.consume_tps:.1f}",
            (" consumed a second", "dim"),
        )
    )
    tell_failures(found.failures)


@app.command("create")
def create_group(
    group: Group,
    tries: Annotated[int, typer.Option(min=0, max=1000, help="Times that a message is tried again.")] = 16,
    ordered: Annotated[bool, typer.Option("--ordered", help="It consumes in order.")] = False,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """**Make a group** on every broker, or give it these settings; brokers usually make groups by themselves.

    Example: `fusee group create billing --tries 5`
    """

    async def create(mq: Connection) -> tuple[BrokerAddress, ...]:
        return await mq.admin.create_group(
            group, cluster=cluster, retry_max_times=tries, consume_message_orderly=ordered
        )

    brokers = [place.broker_name for place in run(name_servers, create)]
    if as_json:
        print_json({"group": group, "brokers": brokers, "done": "created"})
    else:
        output().print(Text(f"created group {group} on {', '.join(brokers)}"))


@app.command("delete")
def delete_group(
    group: Group,
    offsets: Annotated[bool, typer.Option("--offsets", help="Forget how far it was, too.")] = False,
    dead_letters: Annotated[bool, typer.Option("--dead-letters", help="Delete its dead letters, too.")] = False,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Cluster = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Delete a group** with its retry topic; its offsets and its dead letters only when that is asked for.

    Example: `fusee group delete billing --offsets --dry-run`
    """

    async def look(mq: Connection) -> tuple[tuple[GroupSettings, ...], GroupSummary]:
        return await mq.admin.group_settings(group), await mq.admin.group_summary(group)

    settings, summary = run(name_servers, look)
    also = [name for name, wanted in (("its offsets", offsets), ("its dead letters", dead_letters)) if wanted]
    what = f"group {group} on {', '.join(each.broker_name for each in settings)}" + "".join(
        f", {each}" for each in also
    )
    state = f"{summary.members} members online, lag {count_text(summary.lag)}"
    done: dict[str, Any] = {"group": group, "members": summary.members, "lag": summary.lag, "dryRun": dry_run}
    if not dry_run:
        confirm(f"Delete {what}? ({state})", yes=yes)

        async def delete(mq: Connection) -> None:
            await mq.admin.delete_group(
                group, delete_offsets=offsets, delete_dead_letters=dead_letters, cluster=cluster
            )

        run(name_servers, delete)
    if as_json:
        print_json(done)
    else:
        output().print(Text(f"{'would delete' if dry_run else 'deleted'} {what} ({state})"))


# Within


def _way(consume_type: str, message_model: str) -> str:
    ways = {"CONSUME_ACTIVELY": "pulls", "CONSUME_PASSIVELY": "pushed", "CONSUME_POP": "pops"}
    if not consume_type:
        return "-"
    return ways.get(consume_type, consume_type) + (", broadcast" if message_model == "BROADCASTING" else "")


def _lag_text(lag: int) -> Text:
    return Text(count_text(lag), style="yellow" if lag else "green")
