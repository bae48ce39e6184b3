"""A cluster with something on every page, and a console that looks at it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

import fusee.sync
from fusee.console.app import Console
from fusee.console.config import ConsoleConfig
from fusee.console.server import ConsoleServer

ORDERS = 12


class World:
    """The server, a connection to it, and what was sent."""

    def __init__(self, server: Any, mq: Any) -> None:
        self.server = server
        self.mq = mq
        self.sent: list[str] = []

    @property
    def name_server(self) -> str:
        return str(self.server.name_server)

    def furnish(self) -> None:
        """Messages, a group that is behind, dead letters, a delayed message, a transaction without a decision."""
        mq = self.mq
        mq.admin.create_group("billing")
        for number in range(ORDERS):
            body = json.dumps({"order": number, "total": number * 10}).encode()
            self.sent.append(mq.send("orders", body, tag="paid", key=f"order-{number}").message_id)
        mq.send("payments", "grüße, 1 €".encode())
        mq.send("payments", b"\x00\x01\xff\xfe")
        with (
            suppress(ValueError),
            mq.consumer("orders", group="billing", consume_from="first", max_reconsume_times=0) as messages,
        ):
            for _ in messages:
                raise ValueError("it cannot be consumed")
        mq.send("reminders", b"pay, please", delay_level=18)
        with mq.transaction("orders", b"half", check=lambda _: None) as transaction:
            transaction.leave_open()


@contextmanager
def furnished() -> Iterator[World]:
    """A world with data."""
    topics = {"orders": 4, "payments": 2, "reminders": 1}
    with fusee.sync.embedded(topics=topics) as server, server.connect() as mq:
        world = World(server, mq)
        world.furnish()
        yield world


@contextmanager
def browsing(name_servers: str, data: Path | None = None, **settings: Any) -> Iterator[Browser]:
    """A console, and somebody who uses it."""
    server = ConsoleServer(ConsoleConfig(name_servers=name_servers, port=0, data=data, **settings))
    ready = threading.Event()
    url = server.start(on_ready=lambda _: ready.set())
    try:
        assert ready.wait(60)
        assert server.console is not None
        with httpx.Client(base_url=url.rstrip("/"), timeout=60) as client:
            yield Browser(client, server.console)
    finally:
        server.stop()


class Browser:
    """Somebody at a console."""

    def __init__(self, client: httpx.Client, console: Console) -> None:
        self.client = client
        self.console = console

    def get(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:2000]}"
        return answer.text

    def api(self, path: str, status: int = 200) -> Any:
        answer = self.client.get("/api" + path)
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json()

    @property
    def csrf(self) -> str:
        return str(self.api("/session")["csrf"])

    def change(self, change: str, status: int = 200, **values: Any) -> Any:
        answer = self.client.post(f"/api/changes/{change}", json=values, headers={"X-CSRF-Token": self.csrf})
        assert answer.status_code == status, f"{change}: {answer.status_code} {answer.text}"
        return answer.json()

    def submit(self, name: str, **values: Any) -> Any:
        """As a form of a page does."""
        return self.client.post(f"/changes/{name}", data={"csrf": self.csrf, **values})


def checkpoint(folder: Path, broker_name: str) -> None:
    """As Spark keeps a stream that reads from Fusee: batch 4 is at work, batch 3 is done."""
    for part, number in (("offsets", 3), ("offsets", 4), ("commits", 3)):
        (folder / part).mkdir(parents=True, exist_ok=True)
        offset = f'{{"from":null,"to":{{"orders":{{"{broker_name}":{{"0":1,"1":2}}}}}},"version":1}}'
        (folder / part / str(number)).write_text("v1\n{}\n" + (f"{offset}\n" if part == "offsets" else ""))
    (folder / "metadata").write_text('{"id":"stream"}')
