"""The way to a cluster: asked once at a time, remembered for a moment, failures and silence as values."""

from __future__ import annotations

import asyncio

import pytest

import fusee
from fusee.admin import Admin
from fusee.clock import ManualClock
from fusee.console import cluster_link
from fusee.console.cluster_link import ClusterLink
from fusee.errors import NoPermissionError
from fusee.service import run


def test_answers_are_shared_and_grow_old() -> None:
    asked: list[int] = []
    clock = ManualClock()

    async def question(_: Admin) -> int:
        asked.append(1)
        await asyncio.sleep(0)
        return len(asked)

    async def story() -> None:
        async with fusee.embedded() as server:
            link = ClusterLink(server.name_server, clock=clock)
            both = await asyncio.gather(link.ask("a", question), link.ask("a", question))
            assert [each.value for each in both] == [1, 1]
            assert (await link.ask("a", question)).value == 1
            assert (await link.ask("b", question)).value == 2
            clock.advance(2)
            assert (await link.ask("a", question, fresh_seconds=1)).value == 3
            link.forget()
            assert (await link.ask("b", question)).value == 4
            await link.close()

    run(story())


def test_what_fails_and_what_is_silent_is_unknown_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_link, "ANSWER_SECONDS", 0.05)

    async def refuse(_: Admin) -> int:
        raise NoPermissionError("not for you", code=16)

    async def never(_: Admin) -> int:
        await asyncio.Event().wait()
        return 0

    async def story() -> None:
        async with fusee.embedded() as server:
            link = ClusterLink(server.name_server)
            await link.connection()
            refused = await link.ask("refused", refuse)
            assert (refused.value, refused.is_known) == (None, False)
            assert "not for you" in refused.cause
            silent = await link.ask("silent", never)
            assert silent.cause == "no answer within 0.05 seconds"
            await link.close()

    run(story())


def test_a_cluster_that_comes_later_is_found() -> None:
    async def story() -> None:
        link = ClusterLink("127.0.0.1:1")
        assert not (await link.ask("brokers", lambda admin: admin.brokers(), fresh_seconds=0)).is_known
        async with fusee.embedded() as server:
            link.name_servers = server.name_server
            assert (await link.ask("brokers", lambda admin: admin.brokers(), fresh_seconds=0)).is_known
            await link.close()

    run(story())
