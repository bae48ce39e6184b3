"""Metrics, health and readiness over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

import fusee
from fusee.errors import ConnectError
from fusee.in_process.server import EmbeddedServer
from fusee.metrics import BrokerSource, Exposition, Looking
from fusee.metrics.families import Figures
from fusee.service import run


def told(story: Callable[[httpx.AsyncClient, EmbeddedServer], Awaitable[None]]) -> None:
    async def scene() -> None:
        async with fusee.embedded() as server:
            exposition = Exposition(Looking(asyncio.get_running_loop(), [BrokerSource(server.broker)]))
            address = exposition.start("127.0.0.1", 0)
            try:
                async with httpx.AsyncClient(base_url=f"http://{address}", timeout=30) as client:
                    await story(client, server)
            finally:
                await asyncio.to_thread(exposition.stop)

    run(scene())


def test_metrics_are_text_and_openmetrics_when_that_is_accepted() -> None:
    async def story(client: httpx.AsyncClient, _: EmbeddedServer) -> None:
        plain = await client.get("/metrics")
        assert plain.status_code == 200
        assert plain.headers["content-type"].startswith("text/plain")
        assert "# TYPE rocketmq_topic_number gauge" in plain.text
        open_form = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert open_form.text.endswith("# EOF\n")

    told(story)


def test_health_and_readiness() -> None:
    async def story(client: httpx.AsyncClient, server: EmbeddedServer) -> None:
        assert (await client.get("/health")).text == "ok\n"
        assert (await client.get("/ready")).status_code == 200
        server.broker.failure = fusee.errors.StoreFailedError("the disk is gone")
        try:
            unready = await client.get("/ready")
            assert unready.status_code == 503
            assert "the disk is gone" in unready.text
            assert (await client.get("/health")).status_code == 200
        finally:
            server.broker.failure = None

    told(story)


def test_nothing_else_is_served() -> None:
    async def story(client: httpx.AsyncClient, _: EmbeddedServer) -> None:
        assert (await client.get("/")).status_code == 404
        assert (await client.post("/metrics")).status_code == 404

    told(story)


def test_a_loop_that_stands_still_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusee.metrics.exposition.LOOP_TIMEOUT", 0.05)

    class Stuck:
        async def figures(self) -> Figures:
            raise AssertionError

        def missing(self) -> list[str]:
            raise AssertionError

    loop = asyncio.new_event_loop()  # never run
    exposition = Exposition(Looking(loop, [Stuck()]))
    address = exposition.start("127.0.0.1", 0)
    try:
        answer = httpx.get(f"http://{address}/health", timeout=30)
        assert answer.status_code == 503
        with pytest.raises(ConnectError, match="choose another --metrics-port"):
            Exposition(Looking(loop, [])).start("127.0.0.1", int(address.rpartition(":")[2]))
    finally:
        exposition.stop()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
