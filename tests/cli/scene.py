"""A server in this process, and the command line as a person or a program uses it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

import fusee
from fusee.cli.render import error_text
from fusee.cli.tree import app
from fusee.errors import FuseeError
from fusee.sync import Connection, EmbeddedServer


@dataclass
class Answer:
    """What a command printed, and how it ended."""

    exit_code: int
    output: str
    notes: str
    error: str = ""

    @property
    def data(self) -> Any:
        return json.loads(self.output)


class Terminal:
    """Commands for one cluster. Errors are told as `main` does, by their text."""

    def __init__(self, name_servers: str, columns: int = 120) -> None:
        self._environment = {"NAMESRV_ADDR": name_servers, "COLUMNS": str(columns), "TERM": "dumb"}

    def run(self, *arguments: str, typed: str | None = None) -> Answer:
        result = CliRunner().invoke(app, list(arguments), env=self._environment, input=typed)
        if isinstance(result.exception, FuseeError):
            return Answer(1, result.stdout, result.stderr, error_text(result.exception))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        answer = self.run(*arguments)
        assert answer.exit_code == 0, (arguments, answer)
        return answer.output

    def json(self, *arguments: str) -> Any:
        """What it says to programs."""
        return json.loads(self.ok(*arguments, "--json"))


def server(**options: Any) -> EmbeddedServer:
    return fusee.sync.embedded(**options)


def bury(mq: Connection, topic: str, group: str, count: int = 1, tag: str = "paid") -> None:
    """Let dead letters come to be: a consumer fails and wants no second try."""
    for number in range(count):
        mq.send(topic, f"poison {number}".encode(), tag=tag)

    failed: list[bytes] = []

    def fail(message: fusee.ReceivedMessage) -> None:
        failed.append(message.body)
        raise ValueError("it cannot be done")

    with mq.consumer(topic, group=group, listener=fail, consume_from="first", max_reconsume_times=0):
        wait_for(lambda: _count(mq, group) >= count)


def _count(mq: Connection, group: str) -> int:
    return sum(queue.count for queue in mq.admin.dead_letter_queues() if queue.group == group)


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    """Until it is so; the server's own threads make it so."""
    import threading
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        threading.Event().wait(0.02)
