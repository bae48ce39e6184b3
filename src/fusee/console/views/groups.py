"""Consumer groups: all with lag and trend; one with lag by queue and owner, members, and when it will be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.admin.views import (
    ConsumerGroupView,
    ConsumerView,
    GroupSettings,
    OffsetChanges,
    QueueLag,
)
from fusee.console.history import LagPoint, Trend
from fusee.console.known import Known, known
from fusee.console.moments import target_of
from fusee.errors import ConfigError, ConsumerOfflineError

if TYPE_CHECKING:
    from fusee.console.context import Asked, Context

if TYPE_CHECKING:
    from fusee.admin import Admin

PAGE_SIZE: Final = 100


class GroupLine(msgspec.Struct, frozen=True, kw_only=True):
    """One group of the list; None is unknown."""

    group: str
    lag: int | None
    consume_tps: float | None
    topics: tuple[str, ...] | None
    trend: Trend | None


class GroupsPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of groups that contain `search`, those with the greatest lag first."""

    groups: Known[tuple[GroupLine, ...]]
    total: int | None
    page: int
    pages: int
    search: str
    cause: str = ""
    """Why lags are not known."""


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one queue."""

    queue: QueueLag
    lag: int
    in_flight: int


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    group: str
    queues: Known[tuple[QueueLine, ...]]
    lag: int | None
    in_flight: int | None
    consume_tps: float | None
    missing: tuple[str, ...]
    """What did not tell its part."""
    trend: Trend | None
    points: tuple[LagPoint, ...]
    members: Known[ConsumerGroupView]
    settings: Known[tuple[GroupSettings, ...]]
    topics: tuple[str, ...]


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a group: its queues, its rates, what it runs."""

    group: str
    client_id: str
    member: Known[ConsumerView]


class ResetPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset of offsets would do, queue by queue."""

    group: str
    topic: str
    to: str
    changes: Known[OffsetChanges]
    skipped: int
    """Messages that the group would not get any more."""
    repeated: int
    """Messages that the group would get again."""


async def groups(context: Context, asked: Asked) -> GroupsPage:
    """Consumer groups, the greatest lag first: `search` is a part of the name, `page` counts from 1."""
    search, page = asked.text("search"), asked.number("page", 1, least=1)
    names = await context.link.ask("groups", lambda admin: admin.list_groups(), fresh_seconds=2)
    history = context.history
    if names.value is None:
        return GroupsPage(groups=Known(cause=names.cause), total=None, page=1, pages=1, search=search)
    figures = history.figures
    lines = []
    for name in names.value:
        if search.lower() not in name.lower():
            continue
        figure = None if figures is None else figures.get(name)
        if figures is not None and figure is None:
            lines.append(GroupLine(group=name, lag=0, consume_tps=0.0, topics=(), trend=None))
        else:
            lines.append(
                GroupLine(
                    group=name,
                    lag=None if figure is None or not figure.is_whole else figure.lag,
                    consume_tps=None if figure is None else figure.consume_tps,
                    topics=None if figure is None else figure.topics,
                    trend=history.trend(name),
                )
            )
    lines.sort(key=lambda line: (-(line.lag if line.lag is not None else 1 << 62), line.group))
    pages = max(-(-len(lines) // PAGE_SIZE), 1)
    page = min(page, pages)
    return GroupsPage(
        groups=known(tuple(lines[(page - 1) * PAGE_SIZE : page * PAGE_SIZE])),
        total=len(lines),
        page=page,
        pages=pages,
        search=search,
        cause=history.cause,
    )


async def group(context: Context, asked: Asked) -> GroupPage:
    """One group: lag by queue with its owner, where it is going and when it will be gone, members and settings."""
    name, link = asked.text("group"), context.link
    lag = await link.ask(("lag", name), lambda admin: admin.lag(name))
    members = await link.ask(("members", name), lambda admin: _members(admin, name), fresh_seconds=2)
    settings = await link.ask(("group settings", name), lambda admin: admin.group_settings(name), fresh_seconds=5)
    value = lag.value
    is_whole = value is not None and not value.failures
    queues: Known[tuple[QueueLine, ...]] = Known(cause=lag.cause or "unknown")
    if value is not None:
        queues = known(
            tuple(QueueLine(queue=each, lag=max(each.lag, 0), in_flight=each.in_flight) for each in value.queues)
        )
    return GroupPage(
        group=name,
        queues=queues,
        lag=sum(max(each.lag, 0) for each in value.queues) if value is not None and is_whole else None,
        in_flight=value.in_flight if value is not None and is_whole else None,
        consume_tps=value.consume_tps if value is not None and is_whole else None,
        missing=tuple(f"{failure.broker_name or failure.address}: {failure.cause}" for failure in value.failures)
        if value is not None
        else (),
        trend=context.history.trend(name),
        points=context.history.points(name),
        members=members,
        settings=settings,
        topics=value.topics if value is not None else (),
    )


async def _members(admin: Admin, name: str) -> ConsumerGroupView:
    try:
        return await admin.consumers(name)
    except ConsumerOfflineError:  # every broker says so: that is known
        return ConsumerGroupView(
            group=name, clients=(), subscriptions=(), consume_type="", message_model="", consume_from=""
        )


async def member(context: Context, asked: Asked) -> MemberPage:
    """One member of a group: what it runs and how fast."""
    name, client_id = asked.text("group"), asked.text("client_id")
    answer = await context.link.ask(("member", name, client_id), lambda admin: admin.consumer(name, client_id))
    return MemberPage(group=name, client_id=client_id, member=answer)


async def reset_preview(context: Context, asked: Asked) -> ResetPreview:
    """What moving a group would do: `topic`, and `to` as `first`, `last` or a time in UTC."""
    name, topic, to = asked.text("group"), asked.text("topic"), asked.text("to")
    if not topic or not to:
        raise ConfigError("name a topic, and where to go: first, last, or a time like 2026-01-05T10:20:30")
    target = target_of(to)
    changes = await context.link.ask(
        ("preview", name, topic, to),
        lambda admin: admin.reset_offsets(name, topic, target, dry_run=True),
        fresh_seconds=0,
    )
    moved = changes.value.changes if changes.value is not None else ()
    steps = [each.after - each.before for each in moved if each.before is not None]
    return ResetPreview(
        group=name,
        topic=topic,
        to=to,
        changes=changes,
        skipped=sum(step for step in steps if step > 0),
        repeated=-sum(step for step in steps if step < 0),
    )
