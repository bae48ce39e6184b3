"""What the console can change: each is a value that is checked, done through `fusee.admin`, and written down.

A change is written to the audit log before it is made, and again with its outcome. One that can be put back says how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from fusee.admin.views import ReplayOutcome
from fusee.console.moments import target_of
from fusee.errors import ConfigError, FuseeError, NotFoundError
from fusee.message.model import MessageQueue
from fusee.message.topics import is_system_topic
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fusee.admin.views import OffsetChanges
    from fusee.console.context import Context

REPLAYED_MAX: Final = 10_000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a change did: a sentence, figures, and its number in the audit log."""

    text: str
    figures: dict[str, Any] = {}
    audit: int = 0
    undo: dict[str, Any] = {}


class CreateTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Make a topic on every master."""

    topic: str
    queues: int = 4
    kind: Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"] = "NORMAL"


class UpdateTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Change queues and permission of a topic."""

    topic: str
    queues: int
    permission: Literal["RW", "R", "W"] = "RW"


class DeleteTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a topic and its messages; `confirm` is its name once more."""

    topic: str
    confirm: str


class SendMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Send a message."""

    topic: str
    body: str
    tag: str = ""
    key: str = ""
    delay_level: int = 0
    encoding: Literal["text", "hex"] = "text"


class ResetOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Let a group go on elsewhere in every queue of a topic: `first`, `last`, or a time in UTC."""

    group: str
    topic: str
    to: str


class SetOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Let a group go on at an offset of one queue."""

    group: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a consumer group and its offsets; `confirm` is its name once more."""

    group: str
    confirm: str


class ReplayDeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Give dead letters to their group again: one by its offset id, or all, at most `limit`."""

    group: str
    offset_id: str = ""
    limit: int = 1_000
    dry_run: bool = False


class EndTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """Decide a pending transaction in place of its producer."""

    transaction_id: str
    verdict: Literal["commit", "rollback"]


class ChangeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Change a setting of one broker, or of every one when none is named."""

    name: str
    value: str
    broker: str = ""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """Put back what an earlier change did, by its number in the audit log."""

    number: int


class Change(NamedTuple):
    """A change: its name, what it takes, what it is done to, how."""

    name: str
    takes: type[msgspec.Struct]
    target: Callable[[Any], str]
    do: Callable[[Context, Any], Awaitable[Outcome]]
    back: Callable[[Any], str]
    """The page to show afterwards."""


async def create_topic(context: Context, wanted: CreateTopic) -> Outcome:
    admin = await context.link.admin()
    await admin.create_topic(wanted.topic, queues=wanted.queues, message_type=wanted.kind)
    return Outcome(text=f"topic {wanted.topic} was made with {wanted.queues} queues on every master")


async def update_topic(context: Context, wanted: UpdateTopic) -> Outcome:
    admin = await context.link.admin()
    before = [msgspec.to_builtins(each) for each in await admin.topic_settings(wanted.topic)]
    await admin.update_topic(
        wanted.topic, read_queues=wanted.queues, write_queues=wanted.queues, perm=wanted.permission
    )
    return Outcome(text=f"topic {wanted.topic} was changed", figures={"before": before})


async def delete_topic(context: Context, wanted: DeleteTopic) -> Outcome:
    _check_confirmed(wanted.topic, wanted.confirm)
    if is_system_topic(wanted.topic):
        raise ConfigError(f"{wanted.topic} is a topic of the system; brokers need it")
    await (await context.link.admin()).delete_topic(wanted.topic)
    return Outcome(text=f"topic {wanted.topic} was deleted")


async def send_message(context: Context, wanted: SendMessage) -> Outcome:
    try:
        body = bytes.fromhex(wanted.body) if wanted.encoding == "hex" else wanted.body.encode()
    except ValueError as error:
        raise ConfigError(f"the body is no hex: {error}") from error
    connection = await context.link.connection()
    sent = await connection.send(
        wanted.topic, body, tag=wanted.tag or None, key=wanted.key or None, delay_level=wanted.delay_level
    )
    return Outcome(
        text=f"sent: {sent.status.name}, id {sent.message_id}",
        figures={"message_id": sent.message_id, "size": len(body)},
    )


async def reset_offsets(context: Context, wanted: ResetOffsets) -> Outcome:
    admin = await context.link.admin()
    changes = await admin.reset_offsets(wanted.group, wanted.topic, target_of(wanted.to))
    return _moved(changes)


async def set_offset(context: Context, wanted: SetOffset) -> Outcome:
    admin = await context.link.admin()
    queue = MessageQueue(wanted.topic, wanted.broker_name, wanted.queue_id)
    return _moved(await admin.set_offset(wanted.group, queue, wanted.queue_offset))


async def delete_group(context: Context, wanted: DeleteGroup) -> Outcome:
    _check_confirmed(wanted.group, wanted.confirm)
    await (await context.link.admin()).delete_group(wanted.group, delete_offsets=True)
    return Outcome(text=f"group {wanted.group} was deleted with its offsets")


async def replay_dead_letters(context: Context, wanted: ReplayDeadLetters) -> Outcome:
    if not 1 <= wanted.limit <= REPLAYED_MAX:
        raise ConfigError(f"limit={wanted.limit}: from 1 to {REPLAYED_MAX}")
    admin = await context.link.admin()
    counts: dict[str, int] = {}
    is_chosen = (lambda letter: letter.offset_id == wanted.offset_id) if wanted.offset_id else None
    limit = 1 if wanted.offset_id else wanted.limit
    async for result in admin.replay_dead_letters(wanted.group, choose=is_chosen, limit=limit, dry_run=wanted.dry_run):
        counts[result.outcome.value] = counts.get(result.outcome.value, 0) + 1
        if wanted.offset_id:
            break
    done = counts.get(ReplayOutcome.REPLAYED.value, 0) + counts.get(ReplayOutcome.WOULD_REPLAY.value, 0)
    if wanted.offset_id and not counts:
        raise NotFoundError(
            f"group {wanted.group} has no dead letter {wanted.offset_id} any more", code=ResponseCode.NO_MESSAGE
        )
    text = "would be given" if wanted.dry_run else "were given"
    others = "".join(f"; {count} {what}" for what, count in counts.items() if not what.endswith("replayed"))
    return Outcome(text=f"{done} dead letters {text} to {wanted.group} again{others}", figures=dict(counts))


async def end_transaction(context: Context, wanted: EndTransaction) -> Outcome:
    admin = await context.link.admin()
    pending = await admin.pending_transaction(wanted.transaction_id)
    await admin.end_transaction(pending, wanted.verdict)
    return Outcome(text=f"transaction {wanted.transaction_id}: {wanted.verdict} was sent to its broker")


async def change_setting(context: Context, wanted: ChangeSetting) -> Outcome:
    admin = await context.link.admin()
    brokers = await admin.brokers(broker=wanted.broker or None)
    before = {place.broker_name: (await admin.broker_config(place.address)).get(wanted.name) for place in brokers}
    if not any(value is not None for value in before.values()):
        raise ConfigError(f"no broker has a setting {wanted.name!r}; the configuration page lists all")
    await admin.update_broker_config({wanted.name: wanted.value}, broker=wanted.broker or None)
    return Outcome(
        text=f"{wanted.name} is {wanted.value} at {', '.join(before)}",
        figures={"before": before},
        undo={
            "settings": [
                {"broker": broker, "name": wanted.name, "value": value}
                for broker, value in before.items()
                if value is not None
            ]
        },
    )


async def undo(context: Context, wanted: Undo) -> Outcome:
    entry = context.audit.get(wanted.number)
    if entry is None or not entry.undo:
        raise ConfigError(f"change {wanted.number} is not known, or cannot be put back")
    if entry.undone_by:
        raise ConfigError(f"change {wanted.number} was put back already, by change {entry.undone_by}")
    admin = await context.link.admin()
    for each in entry.undo.get("offsets", ()):
        queue = MessageQueue(each["topic"], each["broker_name"], each["queue_id"])
        await admin.set_offset(each["group"], queue, each["queue_offset"])
    for each in entry.undo.get("settings", ()):
        await admin.update_broker_config({each["name"]: each["value"]}, broker=each["broker"])
    return Outcome(text=f"change {wanted.number} ({entry.action} {entry.target}) was put back")


def _moved(changes: OffsetChanges) -> Outcome:
    back = [
        {
            "group": changes.group,
            "topic": each.queue.topic,
            "broker_name": each.queue.broker_name,
            "queue_id": each.queue.queue_id,
            "queue_offset": each.before,
        }
        for each in changes.changes
        if each.before is not None
    ]
    told = "" if changes.is_told else "; members that run may overwrite it with their next commit"
    return Outcome(
        text=f"{changes.group} goes on elsewhere in {len(changes.changes)} queues of {changes.topic}{told}",
        figures={"changes": msgspec.to_builtins(changes.changes)},
        undo={"offsets": back} if back else {},
    )


def _check_confirmed(name: str, confirm: str) -> None:
    if name != confirm:
        raise ConfigError(f"to delete {name}, write its name once more")


CHANGES: Final = (
    Change("create-topic", CreateTopic, lambda w: w.topic, create_topic, lambda w: f"/topics/{w.topic}"),
    Change("update-topic", UpdateTopic, lambda w: w.topic, update_topic, lambda w: f"/topics/{w.topic}"),
    Change("delete-topic", DeleteTopic, lambda w: w.topic, delete_topic, lambda _: "/topics"),
    Change("send", SendMessage, lambda w: w.topic, send_message, lambda w: f"/topics/{w.topic}"),
    Change("reset-offsets", ResetOffsets, lambda w: w.group, reset_offsets, lambda w: f"/groups/{w.group}"),
    Change("set-offset", SetOffset, lambda w: w.group, set_offset, lambda w: f"/groups/{w.group}"),
    Change("delete-group", DeleteGroup, lambda w: w.group, delete_group, lambda _: "/groups"),
    Change("replay", ReplayDeadLetters, lambda w: w.group, replay_dead_letters, lambda w: f"/dead-letters/{w.group}"),
    Change("end-transaction", EndTransaction, lambda w: w.transaction_id, end_transaction, lambda _: "/pending"),
    Change("change-setting", ChangeSetting, lambda w: w.name, change_setting, lambda _: "/configuration"),
    Change("undo", Undo, lambda w: str(w.number), undo, lambda _: "/audit"),
)


async def carry_out(context: Context, change: Change, wanted: msgspec.Struct, who: str) -> Outcome:
    """Do it and write it down. Raises what it raises, and ConfigError when it cannot be written down."""
    details = msgspec.to_builtins(wanted)
    if isinstance(details.get("body"), str):
        details["body"] = f"{len(details['body'])} characters"
    entry = context.audit.begin(who, change.name, change.target(wanted), details)
    try:
        outcome = await change.do(context, wanted)
    except FuseeError as error:
        context.audit.finish(entry, failure=str(error))
        raise
    except BaseException as error:
        context.audit.finish(entry, failure=f"broken off: {type(error).__name__}")
        raise
    finally:
        context.link.forget()
    ended = context.audit.finish(entry, undo=outcome.undo)
    if isinstance(wanted, Undo):
        undone = context.audit.get(wanted.number)
        if undone is not None:
            context.audit.mark_undone(undone, ended)
    return msgspec.structs.replace(outcome, audit=ended.number)
