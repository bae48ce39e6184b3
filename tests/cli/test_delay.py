from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.scene import Terminal, server, wait_for


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with server(topics={"orders": 1}) as here:
        yield Terminal(here.name_server)


def test_what_waits_is_listed_by_level_and_in_the_order_in_which_it_is_due(terminal: Terminal) -> None:
    assert "nothing waits" in terminal.run("delay", "list").notes
    terminal.ok("message", "send", "orders", "in two hours", "--delay-level", "18")
    terminal.ok("message", "send", "orders", "in an hour", "--delay-level", "17")
    wait_for(lambda: sum(level["waiting"] for level in terminal.json("delay", "list")["levels"]) == 2)
    assert [line.split()[1] for line in terminal.ok("delay", "list").splitlines()[1:]] == ["17", "18"]
    found = terminal.json("delay", "due")
    assert [each["message"]["body"] for each in found] == ["in an hour", "in two hours"]
    assert len(terminal.json("delay", "due", "--level", "18")) == 1
    assert terminal.json("delay", "due", "--within", "30m") == []
    assert "in 59 min" in terminal.ok("delay", "due", "--topic", "orders")
    assert "nothing waits" in terminal.run("delay", "due", "--topic", "other").notes
    assert len(terminal.ok("delay", "list", "--all").splitlines()) == 19
