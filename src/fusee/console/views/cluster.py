"""Overview and cluster: brokers with roles, rates, disk and replication; name servers; recent rates and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fusee.admin.fan_out import ask_all
from fusee.admin.views import BrokerAddress, BrokerState, ReplicationView
from fusee.console.history import Sample
from fusee.console.known import Known, known
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from fusee.admin import Admin
    from fusee.console.context import Asked, Context


class BrokerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One broker: what it says of itself, and of the replication to or from it."""

    broker: BrokerAddress
    role: str
    state: Known[BrokerState]
    replication: Known[ReplicationView]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at a glance; None is unknown."""

    name_servers: tuple[str, ...]
    brokers: Known[tuple[BrokerLine, ...]]
    put_tps: float | None
    get_tps: float | None
    put_today: int | None
    get_today: int | None
    topics: Known[int]
    groups: Known[int]
    lag: int | None
    dead_letter_topics: Known[int]
    samples: tuple[Sample, ...]
    interval_ms: int


class ClusterPage(msgspec.Struct, frozen=True, kw_only=True):
    """Every broker of every cluster, and every name server."""

    name_servers: tuple[NameServerLine, ...]
    brokers: Known[tuple[BrokerLine, ...]]


class NameServerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One name server, and whether it answers."""

    address: str
    settings: Known[dict[str, str]]


async def overview(context: Context, asked: Asked) -> Overview:
    """The cluster at a glance: rates, lag, brokers, and how they developed."""
    link, history = context.link, context.history
    brokers = await broker_lines(context)
    names = await link.ask("topics and more", lambda admin: admin.list_topics(retry=True), fresh_seconds=2)
    groups = await link.ask("groups", lambda admin: admin.list_groups(), fresh_seconds=2)
    states = [line.state.value for line in brokers.value or () if line.broker.is_master]
    told = [state for state in states if state is not None]
    is_whole = brokers.is_known and len(told) == len(states) and bool(states)
    newest = history.samples[-1] if history.samples else None
    all_names = names.value or ()
    return Overview(
        name_servers=_addresses(context),
        brokers=brokers,
        put_tps=sum(state.put_tps for state in told) if is_whole else None,
        get_tps=sum(state.get_tps for state in told) if is_whole else None,
        put_today=sum(state.put_today for state in told) if is_whole else None,
        get_today=sum(state.get_today for state in told) if is_whole else None,
        topics=known(sum(not name.startswith("%") for name in all_names)) if names.is_known else _lost(names),
        groups=known(len(groups.value or ())) if groups.is_known else _lost(groups),
        lag=None if newest is None else newest.lag,
        dead_letter_topics=known(sum(name.startswith("%DLQ%") for name in all_names))
        if names.is_known
        else _lost(names),
        samples=tuple(history.samples),
        interval_ms=round(history.interval_seconds * 1000),
    )


async def cluster(context: Context, asked: Asked) -> ClusterPage:
    """Brokers with their roles, versions, rates, disk and replication; name servers and whether they answer."""
    configs = await context.link.ask("name server configs", lambda admin: admin.name_server_configs(), fresh_seconds=5)
    lines = []
    for address in _addresses(context):
        if configs.value is None:
            settings: Known[dict[str, str]] = _lost(configs)
        elif address in configs.value:
            settings = known(configs.value[address])
        else:
            settings = Known(cause="it did not answer")
        lines.append(NameServerLine(address=address, settings=settings))
    return ClusterPage(name_servers=tuple(lines), brokers=await broker_lines(context))


async def broker_lines(context: Context) -> Known[tuple[BrokerLine, ...]]:
    """Every broker, with its state and replication as far as it tells them."""
    clusters = await context.link.ask("clusters", lambda admin: admin.clusters(), fresh_seconds=1)
    if clusters.value is None:
        return _lost(clusters)
    entries = [entry for view in clusters.value for entry in view.brokers]
    places = tuple(entry.broker for entry in entries)
    replications = await context.link.ask(
        ("replication", places), lambda admin: _replications(admin, places), fresh_seconds=2
    )
    lines = []
    for entry in entries:
        state = (
            known(entry.state)
            if entry.state is not None
            else Known(cause=entry.failure.cause if entry.failure else "it did not answer")
        )
        replication: Known[ReplicationView] = (
            (replications.value or {}).get(entry.broker.address, Known(cause="it did not answer"))
            if replications.is_known
            else _lost(replications)
        )
        role = "master" if entry.broker.is_master else "slave"
        lines.append(BrokerLine(broker=entry.broker, role=role, state=state, replication=replication))
    return known(tuple(lines))


async def _replications(admin: Admin, places: tuple[BrokerAddress, ...]) -> dict[str, Known[ReplicationView]]:

    async def ask(place: BrokerAddress) -> Known[ReplicationView]:
        try:
            return known(await admin.replication(place.address))
        except FuseeError as error:
            return Known(cause=str(error))

    answers = await ask_all(places, ask)
    return {place.address: answer for place, answer in answers.answers}


def _addresses(context: Context) -> tuple[str, ...]:
    return tuple(address for address in context.link.name_servers.replace(",", ";").split(";") if address)


def _lost(answer: Known[Any]) -> Known[Any]:
    return Known(cause=answer.cause)
