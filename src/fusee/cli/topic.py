"""`fusee topic`: topics of a cluster."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from fusee.cli.connect import (
    DEFAULT_NAME_SERVER,
    Broker,
    Cluster,
    DryRun,
    NameServers,
    Topic,
    Yes,
    confirm,
    run,
)
from fusee.cli.render import (
    AsJson,
    count_text,
    facts,
    output,
    plain_queue,
    print_json,
    queue_text,
    table,
    tell_failures,
    time_text,
)
from fusee.cli.tree import subcommands

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.admin.views import BrokerAddress, TopicRouteView, TopicSettings, TopicState
    from fusee.connection import Connection

app = subcommands("topic")


class MessageType(Enum):
    """What a topic is for."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    MIXED = "mixed"


Queues = Annotated[int | None, typer.Option(min=1, max=65_535, help="Queues on each broker.")]
Perm = Annotated[str | None, typer.Option(metavar="rw|r|w", help="What clients may do.")]
Attributes = Annotated[
    list[str] | None, typer.Option("--attribute", metavar="NAME=VALUE", help="An attribute; may be given many times.")
]


@app.command("list")
def list_topics(
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Topics of the system, retry topics and dead letters, too.")
    ] = False,
    details: Annotated[bool, typer.Option("--details", "-l", help="Queues, messages and groups of each.")] = False,
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """**List topics** by name.

    Example: `fusee topic list --details`
    """

    async def ask(mq: Connection) -> list[dict[str, Any]]:
        names = await mq.admin.list_topics(cluster=cluster, system=everything, retry=everything)
        return [await _line(mq, name) if details else {"topic": name} for name in names]

    found = run(name_servers, ask)
    if as_json:
        print_json(found)
        return
    if not details:
        for line in found:
            output().print(Text(line["topic"]))
        return
    rows = table("topic", "brokers", "queues", "messages", "last written", "groups", right=("queues", "messages"))
    for line in found:
        if "failure" in line:
            rows.add_row(line["topic"], "-", "-", "-", "-", Text(line["failure"], style="yellow"))
            continue
        rows.add_row(
            line["topic"],
            ", ".join(line["brokers"]),
            count_text(line["queues"]),
            count_text(line["messages"]),
            time_text(line["lastUpdate"]),
            ", ".join(line["groups"]),
        )
    output().print(rows)


@app.command("show")
def show_topic(topic: Topic, name_servers: NameServers = DEFAULT_NAME_SERVER, as_json: AsJson = False) -> None:
    """Show **one topic**: settings by broker, every queue with its offsets, and the groups that consume it.

    Example: `fusee topic show orders`
    """

    async def ask(
        mq: Connection,
    ) -> tuple[TopicRouteView, tuple[TopicSettings, ...], TopicState, tuple[str, ...]]:
        admin = mq.admin
        return (
            await admin.topic_route(topic),
            await admin.topic_settings(topic),
            await admin.topic_stats(topic),
            await admin.topic_groups(topic),
        )

    route, settings, state, groups = run(name_servers, ask)
    if as_json:
        print_json(
            {
                "topic": topic,
                "settings": settings,
                "route": route.groups,
                "orderConfig": route.order_config,
                "messages": state.count,
                "putTps": state.put_tps,
                "groups": groups,
                "queues": [
                    plain_queue(each.queue)
                    | {
                        "minOffset": each.min_offset,
                        "maxOffset": each.max_offset,
                        "messages": each.count,
                        "lastUpdate": each.last_update_ms,
                    }
                    for each in state.queues
                ],
                "failures": state.failures,
            }
        )
        return
    out = output()
    out.print(
        facts(
            [
                ("topic", Text(topic, style="bold")),
                ("messages", count_text(state.count)),
                ("in", f"{state.put_tps:.1f} messages/s"),
                ("groups", ", ".join(groups) or "none"),
                ("in order", route.order_config),
            ]
        )
    )
    out.print()
    places = table("broker", "cluster", "read", "write", "permission", "type", "master", right=("read", "write"))
    configured = {each.broker_name: each for each in settings}
    for group in route.groups:
        own = configured.get(group.broker_name)
        places.add_row(
            group.broker_name,
            group.cluster,
            str(group.read_queues),
            str(group.write_queues),
            group.permission,
            own.message_type.lower() if own is not None else "-",
            group.addresses.get(0, Text("away", style="red")),
        )
    out.print(places)
    out.print()
    queues = table("queue", "first", "next", "messages", "last written", right=("first", "next", "messages"))
    for each in state.queues:
        queues.add_row(
            queue_text(each.queue),
            count_text(each.min_offset),
            count_text(each.max_offset),
            count_text(each.count),
            time_text(each.last_update_ms),
        )
    out.print(queues)
    tell_failures(state.failures)


@app.command("create")
def create_topic(
    topic: Topic,
    queues: Annotated[int, typer.Option(min=1, max=65_535, help="Queues on each broker.")] = 8,
    perm: Annotated[str, typer.Option(metavar="rw|r|w", help="What clients may do.")] = "rw",
    ordered: Annotated[bool, typer.Option("--ordered", help="Keep the order of queues in the name servers.")] = False,
    kind: Annotated[MessageType | None, typer.Option("--type", help="What kind of messages it takes.")] = None,
    attributes: Attributes = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Cluster = None,
    broker: Broker = None,
    as_json: AsJson = False,
) -> None:
    """**Make a topic** on every broker, or on those named; comes back when clients can use it.

    A topic that exists gets these settings. Use `fusee topic update` to change only some.

    Example: `fusee topic create orders --queues 4`
    """

    async def create(mq: Connection) -> tuple[BrokerAddress, ...]:
        return await mq.admin.create_topic(
            topic,
            queues=queues,
            perm=perm,
            ordered=ordered,
            message_type=None if kind is None else kind.value,
            attributes=pairs(attributes, "--attribute"),
            cluster=cluster,
            broker=broker,
        )

    _tell("created", topic, run(name_servers, create), as_json=as_json)


@app.command("update")
def update_topic(
    topic: Topic,
    queues: Queues = None,
    read_queues: Annotated[int | None, typer.Option(min=0, max=65_535, help="Queues that are read.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=0, max=65_535, help="Queues that are written.")] = None,
    perm: Perm = None,
    ordered: Annotated[bool | None, typer.Option("--ordered/--not-ordered", help="Whether order matters.")] = None,
    attributes: Attributes = None,
    remove_attributes: Annotated[
        list[str] | None, typer.Option("--remove-attribute", metavar="NAME", help="An attribute to remove.")
    ] = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Cluster = None,
    broker: Broker = None,
    as_json: AsJson = False,
) -> None:
    """**Change what is given** of a topic, on each broker that has it; the rest stays.

    To take queues away without losing what is in them: lower `--write-queues` first, wait until the groups have
    consumed the rest, then lower `--read-queues`.

    Example: `fusee topic update orders --queues 16`
    """
    if not any((queues, perm, attributes, remove_attributes)) and (read_queues, write_queues, ordered) == (None,) * 3:
        raise typer.BadParameter("nothing to change is given; see `fusee topic update --help`")

    async def update(mq: Connection) -> tuple[BrokerAddress, ...]:
        return await mq.admin.update_topic(
            topic,
            queues=queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            ordered=ordered,
            attributes=pairs(attributes, "--attribute"),
            remove_attributes=remove_attributes or (),
            cluster=cluster,
            broker=broker,
        )

    _tell("updated", topic, run(name_servers, update), as_json=as_json)


@app.command("delete")
def delete_topic(
    topic: Topic,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    cluster: Cluster = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Delete a topic** with its messages from every broker, and from the name servers.

    Asks first, and says how many messages are in it and which groups consume it.

    Example: `fusee topic delete orders --dry-run`
    """

    async def look(mq: Connection) -> tuple[TopicState, tuple[str, ...], tuple[str, ...]]:
        route = await mq.admin.topic_route(topic)
        return (
            await mq.admin.topic_stats(topic),
            await mq.admin.topic_groups(topic),
            tuple(group.broker_name for group in route.groups),
        )

    state, groups, brokers = run(name_servers, look)
    consumed = f"; {', '.join(groups)} consume it" if groups else "; nobody consumes it"
    what = f"topic {topic} with {count_text(state.count)} messages on {', '.join(brokers)}{consumed}"
    if dry_run:
        if as_json:
            print_json({"topic": topic, "messages": state.count, "groups": groups, "brokers": brokers, "dryRun": True})
        else:
            output().print(Text(f"would delete {what}"))
        return
    confirm(f"Delete {what}?", yes=yes)

    async def delete(mq: Connection) -> tuple[BrokerAddress, ...]:
        return await mq.admin.delete_topic(topic, cluster=cluster)

    _tell("deleted", topic, run(name_servers, delete), as_json=as_json)


# Within


async def _line(mq: Connection, topic: str) -> dict[str, Any]:
    from fusee.errors import FuseeError

    try:
        state = await mq.admin.topic_stats(topic)
        groups = await mq.admin.topic_groups(topic)
    except FuseeError as error:
        return {"topic": topic, "failure": str(error)}
    return {
        "topic": topic,
        "brokers": sorted({each.queue.broker_name for each in state.queues}),
        "queues": len(state.queues),
        "messages": state.count,
        "lastUpdate": max((each.last_update_ms for each in state.queues), default=0),
        "groups": groups,
    }


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        pairs[name.strip()] = value
    return pairs


def _tell(what: str, topic: str, brokers: Iterable[BrokerAddress], *, as_json: bool) -> None:
    names = sorted({place.broker_name for place in brokers})
    if as_json:
        print_json({"topic": topic, "brokers": names, "done": what})
    else:
        output().print(Text(f"{what} topic {topic} on {', '.join(names)}"))
