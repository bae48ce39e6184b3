"""The console looks at a cluster of Apache RocketMQ's own name server and broker: every page works, with data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import fusee.sync
from tests.console.test_pages import PATHS
from tests.console.world import ORDERS, Browser, World, browsing
from tests.interop.clients.servers import SETTINGS
from tests.interop.harness.servers import JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.quick, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def place(fleet: Fleet, current: Runtime) -> Iterator[tuple[World, Browser]]:
    name_server = JavaNameServer(fleet, "console-namesrv", current)
    broker = JavaBroker(fleet, current, [name_server], name="console-broker", settings=SETTINGS)
    name_server.start()
    name_server.await_ready()
    broker.start()
    broker.await_registration(name_server)
    with fusee.sync.connect(name_server.address) as mq:
        for topic in ("orders", "payments", "reminders"):
            mq.admin.create_topic(topic, queues=4)
        world = World(name_server, mq)
        world.furnish()
        with browsing(name_server.address) as browser:
            yield world, browser


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_shown(place: tuple[World, Browser], path: str) -> None:
    _, browser = place
    text = browser.get(path)
    if not path.startswith(("/groups/billing/members", "/pipelines")):
        assert "unknown-note" not in text, text


def test_figures_are_those_of_the_cluster(place: tuple[World, Browser]) -> None:
    world, browser = place
    overview = browser.api("/overview")
    assert overview["put_tps"] is not None
    assert overview["topics"]["value"] >= 3
    counts = {each["topic"]: each["count"] for each in browser.api("/topic-counts?topics=orders,payments")["counts"]}
    assert counts == {"orders": ORDERS, "payments": 2}
    group = browser.api("/groups/billing")
    assert group["queues"]["cause"] == ""
    found = browser.api(f"/messages/{world.sent[3]}?topic=orders")
    assert [event["what"] for event in found["events"]][:2] == ["born", "stored"]
    assert browser.api("/configuration?search=brokerName")["settings"]
    assert browser.api("/pending")["delays"]["cause"] == ""
