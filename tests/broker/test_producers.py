"""Producer groups: members, the client's connection, taking turns, limits and expiry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fusee.broker.config import BrokerConfig
from fusee.broker.consumers import Member
from fusee.broker.producers import ProducerTable
from fusee.clock import ManualClock
from fusee.errors import SystemBusyError
from fusee.transport.link import Link
from fusee.transport.memory import MemoryNetwork
from fusee.wire.codes import LanguageCode, RequestCode, ResponseCode
from fusee.wire.command import Command


def new_link() -> Link:
    clock = ManualClock()
    return Link(clock=clock, timers=clock)


def table_with(**settings: Any) -> ProducerTable:
    return ProducerTable(config=BrokerConfig(**settings))


def beat(table: ProducerTable, group: str, link: Link, client_id: str = "c", now_ms: int = 1000) -> Member:
    return table.register(group, link, client_id=client_id, language=LanguageCode.GO, version=411, now_ms=now_ms)


def test_register_when_first_makes_group_and_finds_the_client() -> None:
    table, link = table_with(), new_link()
    member = beat(table, "p", link)
    assert table.members("p") == {link: member}
    assert table.all() == {"p": {link: member}}
    assert (member.client_id, member.language, member.version) == ("c", LanguageCode.GO, 411)
    assert table.link_of("c") is link
    assert table.members("q") is None
    assert table.link_of("d") is None


def test_register_when_repeated_renews() -> None:
    table, link = table_with(), new_link()
    first = beat(table, "p", link, now_ms=1000)
    assert beat(table, "p", link, now_ms=2000) is first
    assert first.last_update_ms == 2000


def test_unregister_when_client_is_in_another_group_keeps_its_link() -> None:
    table, link = table_with(), new_link()
    beat(table, "p", link)
    beat(table, "q", link)
    assert table.unregister("p", link)
    assert table.link_of("c") is link
    assert table.unregister("q", link)
    assert table.link_of("c") is None
    assert table.all() == {}
    assert not table.unregister("q", link)


def test_link_lost_when_client_has_come_back_keeps_the_new_link() -> None:
    table, old, new = table_with(), new_link(), new_link()
    lost = beat(table, "p", old)
    beat(table, "p", new)
    table.link_lost(old)
    assert table.link_of("c") is new
    assert list(table.members("p") or ()) == [new]
    assert not lost.is_registered
    table.link_lost(old)


def test_register_when_link_has_another_client_id_forgets_the_first() -> None:
    table, link = table_with(), new_link()
    first = beat(table, "p", link, "a")
    beat(table, "p", link, "b")
    assert not first.is_registered
    assert table.link_of("a") is None
    assert table.link_of("b") is link


def test_expire_when_silent_for_longer_than_the_limit_removes() -> None:
    table, link, other = table_with(), new_link(), new_link()
    beat(table, "p", link, now_ms=0)
    beat(table, "q", link, now_ms=0)
    beat(table, "p", other, "d", now_ms=1)
    assert table.expire(120_000) == []
    assert table.expire(120_001) == [link]
    assert list(table.members("p") or ()) == [other]
    assert table.members("q") is None
    assert table.link_of("c") is None


def test_register_when_group_or_table_is_full_refuses() -> None:
    table, link = table_with(clients_per_group_max=1, groups_max=1), new_link()
    beat(table, "p", link)
    with pytest.raises(SystemBusyError, match="clientsPerGroupMax") as refused:
        beat(table, "p", new_link(), "d")
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    with pytest.raises(SystemBusyError, match="groupsMax"):
        beat(table, "q", link)
    assert table.link_of("d") is None
    beat(table, "p", link)


def test_pick_when_nobody_is_connected_finds_none() -> None:
    table = table_with()
    assert table.pick("p") is None
    beat(table, "p", new_link())
    assert table.pick("p") is None


def test_pick_takes_turns_and_prefers_those_that_read() -> None:
    async def scene() -> None:
        clock = ManualClock()
        network = MemoryNetwork(clock)
        accepted: list[Link] = []

        def accept() -> Any:
            accepted.append(Link(clock=clock, timers=clock))
            return accepted[-1]

        await network.host("b").listen(accept, "b", 1)
        for name in ("x", "y", "z"):
            await network.host(name).connect(lambda: Link(clock=clock, timers=clock), "b", 1)
        table = table_with()
        for number, link in enumerate(accepted):
            beat(table, "p", link, f"c{number}")
        x, y, z = accepted
        turns = [table.pick("p") for _ in range(6)]
        assert {*turns[:3]} == {x, y, z}
        assert turns[:3] == turns[3:]
        network.weather("b", "x").held = True
        x.send_oneway(Command(RequestCode.CHECK_TRANSACTION_STATE, body=b"." * 100_000))
        assert {table.pick("p") for _ in range(6)} == {y, z}
        network.cut("b", "y")
        network.cut("b", "z")
        await network.settle()
        assert table.pick("p") is x
        table.link_lost(x)
        assert table.pick("p") is None

    asyncio.run(scene())
