"""`fusee offset`: how far groups are, and where they go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fusee.cli.connect import (
    DEFAULT_NAME_SERVER,
    DryRun,
    Group,
    NameServers,
    OnlyTopic,
    Yes,
    complete_group,
    complete_topic,
    confirm,
    run,
)
from fusee.cli.moments import TIME_HELP, parse_time_ms
from fusee.cli.render import AsJson, count_text, note, output, plain_queue, print_json, queue_text, table
from fusee.cli.tree import subcommands
from fusee.errors import ConfigError

if TYPE_CHECKING:
    from fusee.admin.offsets import Target
    from fusee.admin.views import CommittedOffset, OffsetChanges
    from fusee.connection import Connection
    from fusee.message.model import MessageQueue

app = subcommands("offset")

TopicOption = Annotated[
    str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic.", autocompletion=complete_topic)
]
To = Annotated[
    str,
    typer.Option("--to", metavar="WHERE", help=f"`earliest`, `latest`, a time ({TIME_HELP}), or an offset with QUEUE."),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", "-q", metavar="BROKER/QUEUE", help="Only this queue, e.g. broker-a/3; --to is an offset."),
]


@app.command("show")
def show_offsets(
    group: Group, topic: OnlyTopic = None, name_servers: NameServers = DEFAULT_NAME_SERVER, as_json: AsJson = False
) -> None:
    """Show **what a group has committed**, queue by queue; a dash where it has not.

    `fusee group lag` shows how much that leaves to do.

    Example: `fusee offset show billing --topic orders`
    """

    async def ask(mq: Connection) -> list[CommittedOffset]:
        topics = (topic,) if topic is not None else await mq.admin.group_topics(group)
        return [each for name in topics for each in await mq.admin.committed_offsets(group, name)]

    found = run(name_servers, ask)
    if as_json:
        print_json([plain_queue(each.queue) | {"committedOffset": each.committed_offset} for each in found])
        return
    if not found:
        note(f"group {group} has committed nothing")
        return
    rows = table("topic", "queue", "committed", right=("committed",))
    for each in found:
        at = each.committed_offset
        rows.add_row(each.queue.topic, queue_text(each.queue), "-" if at is None else count_text(at))
    output().print(rows)


@app.command("reset")
def reset_offsets(
    group: Group,
    topic: TopicOption,
    to: To,
    queue: Queue = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Let a group go on elsewhere** in a topic, its members running or not.

    Shows each queue with its offset before and after, and asks. Going back delivers messages again; going ahead skips
    messages.

    Examples: `fusee offset reset billing --topic orders --to 10m --dry-run`

    `fusee offset reset billing --topic orders --to 1200 --queue broker-a/3`
    """
    if queue is not None:
        _reset_queue(group, topic, to, queue, name_servers, yes=yes, dry_run=dry_run, as_json=as_json)
        return
    target: Target = "first" if to == "earliest" else "last" if to == "latest" else parse_time_ms(to, "--to")

    async def look(mq: Connection) -> OffsetChanges:
        await mq.admin.group_settings(group)  # a broker would make the group by itself
        return await mq.admin.reset_offsets(group, topic, target, dry_run=True)

    async def reset(mq: Connection) -> OffsetChanges:
        return await mq.admin.reset_offsets(group, topic, target)

    preview = run(name_servers, look)
    if dry_run:
        _show_changes(preview, as_json=as_json)
        return
    if not yes:
        _show_changes(preview, as_json=False, on_error_stream=True)
    confirm(f"Let group {group} go on there?", yes=yes)
    _show_changes(run(name_servers, reset), as_json=as_json)


@app.command("clone")
def clone_offsets(
    source: Annotated[
        str, typer.Argument(metavar="FROM_GROUP", help="The group that is copied.", autocompletion=complete_group)
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO_GROUP", help="The group that gets them.", autocompletion=complete_group)
    ],
    topic: OnlyTopic = None,
    name_servers: NameServers = DEFAULT_NAME_SERVER,
    offline: Annotated[
        bool, typer.Option("--offline", help="Topics, too, that members of FROM_GROUP do not want now.")
    ] = True,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """**Let a group be where another one is**, in one topic or in all.

    The members of the group that gets the offsets should not run: one that runs writes its own again.

    Example: `fusee offset clone billing billing-new --topic orders`
    """

    async def look(mq: Connection) -> list[tuple[MessageQueue, int | None, int]]:
        topics = (topic,) if topic is not None else await mq.admin.group_topics(source)
        changes: list[tuple[MessageQueue, int | None, int]] = []
        for name in topics:
            before = {each.queue: each.committed_offset for each in await mq.admin.committed_offsets(target, name)}
            changes += [
                (each.queue, before.get(each.queue), each.committed_offset)
                for each in await mq.admin.committed_offsets(source, name)
                if each.committed_offset is not None
            ]
        return changes

    async def clone(mq: Connection) -> tuple[str, ...]:
        return await mq.admin.clone_offsets(source, target, topic, offline=offline)

    changes = run(name_servers, look)
    if not changes:
        raise ConfigError(f"group {source!r} has committed nothing that could be copied; look with `fusee offset show`")
    topics = sorted({queue.topic for queue, _, _ in changes})
    if not dry_run:
        confirm(f"Give group {target} the offsets of {source} in {', '.join(topics)}?", yes=yes)
        topics = list(run(name_servers, clone))
    if as_json:
        print_json(
            {
                "from": source,
                "to": target,
                "topics": topics,
                "dryRun": dry_run,
                "changes": [plain_queue(queue) | {"before": before, "after": at} for queue, before, at in changes],
            }
        )
        return
    rows = table("topic", "queue", "before", "after", right=("before", "after"))
    for queue, before, after in changes:
        rows.add_row(queue.topic, queue_text(queue), "-" if before is None else count_text(before), count_text(after))
    output().print(rows)
    note("nothing was changed" if dry_run else f"copied the offsets of {source} to {target}")


# Within


def _reset_queue(
    group: str, topic: str, to: str, queue: str, name_servers: str, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    from fusee.admin.views import OffsetChange, OffsetChanges
    from fusee.message.model import MessageQueue

    broker_name, slash, number = queue.rpartition("/")
    if not slash or not number.isdigit():
        raise typer.BadParameter(f"{queue!r} is no queue: write broker-a/3", param_hint="--queue")
    if not to.isdigit():
        raise typer.BadParameter(f"{to!r} is no offset; with --queue, --to is a number", param_hint="--to")
    place, queue_offset = MessageQueue(topic, broker_name, int(number)), int(to)

    async def look(mq: Connection) -> OffsetChanges:
        before = {each.queue: each.committed_offset for each in await mq.admin.committed_offsets(group, topic)}
        if place not in before:
            there = ", ".join(queue_text(each) for each in before)
            raise ConfigError(f"topic {topic!r} has no queue {queue}; there are {there}")
        change = OffsetChange(queue=place, before=before[place], after=queue_offset)
        return OffsetChanges(group=group, topic=topic, changes=(change,), is_told=False, is_dry_run=True)

    async def reset(mq: Connection) -> OffsetChanges:
        return await mq.admin.set_offset(group, place, queue_offset)

    preview = run(name_servers, look)
    if dry_run:
        _show_changes(preview, as_json=as_json)
        return
    confirm(f"Let group {group} go on at offset {queue_offset} of {queue}?", yes=yes)
    _show_changes(run(name_servers, reset), as_json=as_json)


def _show_changes(changes: OffsetChanges, *, as_json: bool, on_error_stream: bool = False) -> None:
    from fusee.cli.render import notes

    if as_json:
        print_json(
            {
                "group": changes.group,
                "topic": changes.topic,
                "dryRun": changes.is_dry_run,
                "told": changes.is_told,
                "changes": [
                    plain_queue(each.queue) | {"before": each.before, "after": each.after} for each in changes.changes
                ],
            }
        )
        return
    rows = table("queue", "before", "after", "", right=("before", "after"))
    for each in changes.changes:
        moved = None if each.before is None else each.after - each.before
        if moved is None:
            words = Text("no offset until now", style="dim")
        elif moved < 0:
            words = Text(f"{count_text(-moved)} again", style="yellow")
        else:
            words = Text(f"{count_text(moved)} skipped" if moved else "stays", style="yellow" if moved else "dim")
        rows.add_row(
            queue_text(each.queue),
            "-" if each.before is None else count_text(each.before),
            count_text(each.after),
            words,
        )
    (notes() if on_error_stream else output()).print(rows)
    if changes.is_dry_run:
        if not on_error_stream:
            note("nothing was changed")
    elif not changes.is_told:
        note("written as commits: members that run would overwrite them with their next commit", style="yellow")
