"""Topics: the list of them, and one with its queues, settings, groups and traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.admin.fan_out import ask_all
from fusee.admin.views import BrokerAddress, TopicRouteView, TopicSettings, TopicState, TopicTraffic
from fusee.console.known import Known, known
from fusee.message.topics import is_dlq_topic, is_retry_topic, is_system_topic

if TYPE_CHECKING:
    from fusee.admin import Admin
    from fusee.console.context import Asked, Context

PAGE_SIZE: Final = 100
_COUNTED_MAX: Final = 100


class TopicLine(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the list."""

    topic: str
    kind: str
    """normal, fifo, delay, transaction, mixed, retry, dead letters, system."""
    read_queues: int
    write_queues: int
    permission: str
    brokers: tuple[str, ...]


class TopicsPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of topics that contain `search`."""

    topics: Known[tuple[TopicLine, ...]]
    total: int | None
    page: int
    pages: int
    search: str
    kinds: str
    missing: tuple[str, ...] = ()
    """Brokers that did not tell their topics."""


class TopicCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages a topic has now, and how many come in per second."""

    topic: str
    count: int | None
    put_tps: float | None
    last_update_ms: int = 0
    cause: str = ""


class TopicCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of some topics."""

    counts: tuple[TopicCount, ...]


class TopicPage(msgspec.Struct, frozen=True, kw_only=True):
    """One topic."""

    topic: str
    kind: str
    state: Known[TopicState]
    route: Known[TopicRouteView]
    settings: Known[tuple[TopicSettings, ...]]
    groups: Known[tuple[str, ...]]
    traffic: Known[tuple[TopicTraffic, ...]]


async def topics(context: Context, asked: Asked) -> TopicsPage:
    """Topics by name: `search` is a part of it, `kinds` is `user` or `all`, `page` counts from 1."""
    search, kinds = asked.text("search"), asked.text("kinds", "user")
    page = asked.number("page", 1, least=1)
    answer = await context.link.ask("topic table", _topic_table, fresh_seconds=3)
    if answer.value is None:
        return TopicsPage(topics=Known(cause=answer.cause), total=None, page=1, pages=1, search=search, kinds=kinds)
    table, missing = answer.value
    wanted = [
        line
        for line in table
        if search.lower() in line.topic.lower()
        and (kinds == "all" or line.kind not in ("system", "retry", "dead letters"))
    ]
    pages = max(-(-len(wanted) // PAGE_SIZE), 1)
    page = min(page, pages)
    shown = wanted[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    return TopicsPage(
        topics=known(tuple(shown)),
        total=len(wanted),
        page=page,
        pages=pages,
        search=search,
        kinds=kinds,
        missing=missing,
    )


async def topic_counts(context: Context, asked: Asked) -> TopicCounts:
    """How many messages some topics have: `topics` are their names, joined by commas."""
    names = [name for name in asked.text("topics").split(",") if name][:_COUNTED_MAX]
    places = [BrokerAddress(address=name) for name in names]

    async def count(place: BrokerAddress) -> TopicCount:
        name = place.address
        answer = await context.link.ask(("topic state", name), lambda admin: admin.topic_stats(name), fresh_seconds=3)
        if answer.value is None or answer.value.failures:
            cause = answer.cause or "; ".join(
                failure.cause for failure in (answer.value.failures if answer.value else ())
            )
            return TopicCount(topic=name, count=None, put_tps=None, cause=cause)
        state = answer.value
        return TopicCount(
            topic=name,
            count=state.count,
            put_tps=state.put_tps,
            last_update_ms=max((queue.last_update_ms for queue in state.queues), default=0),
        )

    return TopicCounts(counts=tuple((await ask_all(places, count)).values))


async def topic(context: Context, asked: Asked) -> TopicPage:
    """One topic: where its queues are and how far they are written, its settings, who consumes it and how fast."""
    name, link = asked.text("topic"), context.link
    settings = await link.ask(("settings", name), lambda admin: admin.topic_settings(name))
    return TopicPage(
        topic=name,
        kind=_kind(name, settings.value[0].message_type if settings.value else "NORMAL"),
        state=await link.ask(("topic state", name), lambda admin: admin.topic_stats(name)),
        route=await link.ask(("route", name), lambda admin: admin.topic_route(name)),
        settings=settings,
        groups=await link.ask(("groups of", name), lambda admin: admin.topic_groups(name), fresh_seconds=2),
        traffic=await link.ask(("traffic", name), lambda admin: admin.traffic(name), fresh_seconds=5),
    )


async def _topic_table(admin: Admin) -> tuple[tuple[TopicLine, ...], tuple[str, ...]]:
    """Every topic of every master, and the brokers that did not tell theirs."""
    masters = [broker for broker in await admin.brokers() if broker.is_master]
    answers = await ask_all(masters, lambda broker: admin.topics_of_broker(broker.address, system=True))
    answers.some("tell their topics")
    of_system = set(await admin.list_topics(system=True, retry=True)) - set(await admin.list_topics(retry=True))
    found: dict[str, list[TopicSettings]] = {}
    for place, settings in answers.answers:
        for each in settings:
            found.setdefault(each.topic, []).append(msgspec.structs.replace(each, broker_name=place.broker_name))
    lines = tuple(
        TopicLine(
            topic=name,
            kind="system" if name in of_system else _kind(name, parts[0].message_type),
            read_queues=sum(part.read_queues for part in parts),
            write_queues=sum(part.write_queues for part in parts),
            permission=parts[0].permission,
            brokers=tuple(part.broker_name for part in parts),
        )
        for name, parts in sorted(found.items())
    )
    return lines, tuple(failure.broker_name or failure.address for failure in answers.failures)


def _kind(name: str, message_type: str) -> str:
    if is_retry_topic(name):
        return "retry"
    if is_dlq_topic(name):
        return "dead letters"
    if is_system_topic(name):
        return "system"
    return message_type.lower()
