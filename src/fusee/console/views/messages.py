"""Messages: browsed, found by key or id, decoded for people; the life of one; dead letters; what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

from fusee.admin.newest import newest_messages
from fusee.admin.views import (
    DeadLetterCause,
    DeadLetterQueue,
    DelayView,
    LifeEvent,
    MessageLife,
    MessageStatus,
    PendingTransactions,
)
from fusee.console.decoding import Decoded, Form, decoded
from fusee.console.known import Known, known
from fusee.console.moments import moment_of
from fusee.errors import ConfigError
from fusee.message.model import MessageQueue

if TYPE_CHECKING:
    from fusee.admin import Admin
    from fusee.client.received import ReceivedMessage
    from fusee.console.context import Asked, Context

SHOWN_MAX: Final = 200
_PREVIEW_SIZE: Final = 512
_FORMS: Final = ("auto", "text", "json", "hex")
_LETTERS_MAX: Final = 100
_CAUSES_OF_MAX: Final = 2_000


class MessageLine(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a list, with the beginning of its body."""

    topic: str
    queue: MessageQueue
    queue_offset: int
    message_id: str
    offset_id: str
    tag: str
    keys: tuple[str, ...]
    born_ms: int
    stored_ms: int
    reconsume_times: int
    body: Decoded
    properties: dict[str, str]


class BrowsePage(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a topic, oldest first; `is_more` when there were more than are shown."""

    topic: str
    messages: Known[tuple[MessageLine, ...]]
    is_more: bool
    form: str
    begin: str
    end: str
    tags: str
    queue: str
    key: str


class MessagePage(msgspec.Struct, frozen=True, kw_only=True):
    """One message, and what happened to it."""

    message_id: str
    topic: str
    message: Known[MessageLine]
    events: tuple[LifeEvent, ...]
    groups: tuple[MessageStatus, ...]
    is_traced: bool
    missing: tuple[str, ...]
    """What could not be learnt."""


class DeadLettersPage(msgspec.Struct, frozen=True, kw_only=True):
    """Every group that has dead letters."""

    queues: Known[tuple[DeadLetterQueue, ...]]


class CauseLine(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that have something in common."""

    values: dict[str, str]
    count: int
    first_ms: int
    last_ms: int


class DeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of one group: what they have in common, and the newest ones."""

    group: str
    causes: Known[tuple[CauseLine, ...]]
    letters: Known[tuple[MessageLine, ...]]


class PendingLine(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that waits for a decision."""

    transaction_id: str
    topic: str
    producer_group: str
    check_times: int
    message: MessageLine


class WaitingLine(msgspec.Struct, frozen=True, kw_only=True):
    """A delayed message that waits."""

    topic: str
    due_ms: int
    level: int
    message: MessageLine


class PendingPage(msgspec.Struct, frozen=True, kw_only=True):
    """What waits: transactions for a decision, delayed messages for their time."""

    transactions: Known[tuple[PendingLine, ...]]
    is_all: bool
    delays: Known[DelayView]
    waiting: Known[tuple[WaitingLine, ...]]
    missing: tuple[str, ...]


def line_of(message: ReceivedMessage, form: Form = "auto", shown_max: int = _PREVIEW_SIZE) -> MessageLine:
    """A message as a line."""
    return MessageLine(
        topic=message.topic,
        queue=message.queue,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        offset_id=message.offset_id,
        tag=message.tag or "",
        keys=message.keys,
        born_ms=message.born_timestamp_ms,
        stored_ms=message.store_timestamp_ms,
        reconsume_times=message.reconsume_times,
        body=decoded(message.body, form, shown_max),
        properties=dict(message.properties),
    )


def form_of(asked: Asked) -> Form:
    """The form that bodies are wanted in. Raises ConfigError."""
    form = asked.text("form", "auto") or "auto"
    if form not in _FORMS:
        raise ConfigError(f"form={form!r}: one of {', '.join(_FORMS)}")
    return cast("Form", form)


async def browse(context: Context, asked: Asked) -> BrowsePage:
    """Messages of a topic: from `begin` to `end`, with `tags`, of one `queue` (`broker/0`), or with a `key`.

    `form` is how bodies are shown: auto, text, json or hex. `limit` is how many, at most 200. Without a `begin` the
    newest are shown.
    """
    name, form = asked.text("topic"), form_of(asked)
    limit = asked.number("limit", 50, least=1, most=SHOWN_MAX)
    begin, end, tags, key, queue = (asked.text(part) for part in ("begin", "end", "tags", "key", "queue"))
    question = _Browse(name, limit, begin, end, tags or "*", key, queue)
    answer = await context.link.ask(("browse", question), question.ask, fresh_seconds=0.5)
    found = answer.value or ()
    lines: Known[tuple[MessageLine, ...]] = (
        known(tuple(line_of(message, form) for message in found[:limit]))
        if answer.is_known
        else Known(cause=answer.cause)
    )
    return BrowsePage(
        topic=name,
        messages=lines,
        is_more=len(found) > limit,
        form=form,
        begin=begin,
        end=end,
        tags=tags,
        queue=queue,
        key=key,
    )


class _Browse(msgspec.Struct, frozen=True):
    topic: str
    limit: int
    begin: str
    end: str
    tags: str
    key: str
    queue: str

    async def ask(self, admin: Admin) -> tuple[ReceivedMessage, ...]:
        if self.key:
            return await admin.messages_by_key(self.topic, self.key, limit=self.limit)
        queue = _queue_of(self.topic, self.queue) if self.queue else None
        if not self.begin:
            return await newest_messages(admin, self.topic, self.limit, queue=queue, tags=self.tags)
        found = [
            message
            async for message in admin.browse(
                self.topic,
                begin=moment_of(self.begin),
                end=moment_of(self.end) if self.end else None,
                tags=self.tags,
                queue=queue,
                limit=self.limit + 1,
            )
        ]
        return tuple(found)


def _queue_of(topic: str, text: str) -> MessageQueue:
    broker_name, separator, number = text.rpartition("/")
    if not separator or not number.isdigit():
        raise ConfigError(f"queue={text!r}: write it like broker-a/0")
    return MessageQueue(topic, broker_name, int(number))


async def message(context: Context, asked: Asked) -> MessagePage:
    """One message by its id (of either kind), with its life: born, stored, delayed, delivered, tried again, dead."""
    message_id, topic, form = asked.text("message_id"), asked.text("topic"), form_of(asked)
    answer = await context.link.ask(
        ("life", message_id, topic), lambda admin: _life(admin, message_id, topic), fresh_seconds=1
    )
    if answer.value is None:
        return MessagePage(
            message_id=message_id,
            topic=topic,
            message=Known(cause=answer.cause),
            events=(),
            groups=(),
            is_traced=False,
            missing=(),
        )
    life = answer.value
    return MessagePage(
        message_id=message_id,
        topic=life.message.topic,
        message=known(line_of(life.message, form, 64 * 1024)),
        events=life.events,
        groups=life.groups,
        is_traced=life.is_traced,
        missing=tuple(f"{failure.broker_name or failure.address}: {failure.cause}" for failure in life.failures),
    )


async def _life(admin: Admin, message_id: str, topic: str) -> MessageLife:
    return await admin.message_life(await admin.message(message_id, topic or None))


async def dead_letters(context: Context, asked: Asked) -> DeadLettersPage:
    """Groups that have dead letters, and how many."""
    return DeadLettersPage(
        queues=await context.link.ask("dead letters", lambda admin: admin.dead_letter_queues(), fresh_seconds=2)
    )


async def dead_letter(context: Context, asked: Asked) -> DeadLetterPage:
    """The dead letters of a group: what they have in common, and the newest of them."""
    name, form, link = asked.text("group"), form_of(asked), context.link
    causes: Known[tuple[DeadLetterCause, ...]] = await link.ask(
        ("causes", name), lambda admin: admin.dead_letter_causes(name, limit=_CAUSES_OF_MAX), fresh_seconds=3
    )
    letters = await link.ask(
        ("letters", name), lambda admin: newest_messages(admin, f"%DLQ%{name}", _LETTERS_MAX), fresh_seconds=1
    )
    return DeadLetterPage(
        group=name,
        causes=known(
            tuple(
                CauseLine(values=cause.values, count=cause.count, first_ms=cause.first_ms, last_ms=cause.last_ms)
                for cause in causes.value
            )
        )
        if causes.value is not None
        else Known(cause=causes.cause),
        letters=known(tuple(line_of(letter, form) for letter in letters.value))
        if letters.value is not None
        else Known(cause=letters.cause),
    )


async def pending(context: Context, asked: Asked) -> PendingPage:
    """Transactions that wait for a decision, and delayed messages that wait for their time."""
    link = context.link
    found: Known[PendingTransactions] = await link.ask(
        "pending", lambda admin: admin.pending_transactions(limit=SHOWN_MAX), fresh_seconds=1
    )
    delays = await link.ask("delays", lambda admin: admin.delays(), fresh_seconds=1)
    waiting = await link.ask("waiting", lambda admin: admin.waiting_messages(limit=SHOWN_MAX), fresh_seconds=1)
    failures = [
        *(found.value.failures if found.value else ()),
        *(delays.value.failures if delays.value else ()),
        *(waiting.value[1] if waiting.value else ()),
    ]
    return PendingPage(
        transactions=known(
            tuple(
                PendingLine(
                    transaction_id=each.transaction_id,
                    topic=each.topic,
                    producer_group=each.producer_group,
                    check_times=each.check_times,
                    message=line_of(each.message),
                )
                for each in found.value.transactions
            )
        )
        if found.value is not None
        else Known(cause=found.cause),
        is_all=found.value.is_all if found.value is not None else False,
        delays=delays,
        waiting=known(
            tuple(
                WaitingLine(topic=each.topic, due_ms=each.due_ms, level=each.level, message=line_of(each.message))
                for each in waiting.value[0]
            )
        )
        if waiting.value is not None
        else Known(cause=waiting.cause),
        missing=tuple(
            dict.fromkeys(f"{failure.broker_name or failure.address}: {failure.cause}" for failure in failures)
        ),
    )
