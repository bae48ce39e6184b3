from __future__ import annotations

from collections.abc import Iterator

import pytest

from fusee.sync import Connection
from tests.cli.scene import Terminal, server, wait_for


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Terminal, Connection]]:
    with server(topics={"orders": 2}) as here, here.connect() as mq:
        yield Terminal(here.name_server), mq


def test_groups_members_and_lag_by_queue_and_owner(running: tuple[Terminal, Connection]) -> None:
    terminal, mq = running
    for number in range(6):
        mq.send("orders", str(number).encode())
    seen: list[bytes] = []
    listener = lambda message: seen.append(message.body)  # noqa: E731
    with mq.consumer("orders", group="billing", consume_from="first", listener=listener):
        wait_for(lambda: len(seen) == 6)
        wait_for(lambda: _committed(terminal) == 6, 60)
        lag = terminal.json("group", "lag", "billing", "--topic", "orders")
        assert {queue["owner"] for queue in lag["queues"]} == {mq.client_id}
        assert lag["lag"] == 0
        text = terminal.ok("group", "lag", "billing")
        assert mq.client_id in text.replace("\n", "")
        (line,) = [each for each in terminal.json("group", "list") if each["group"] == "billing"]
        assert (line["members"], line["lag"]) == (1, 0)
        assert "pushed" in terminal.ok("group", "list")
        shown = terminal.json("group", "show", "billing")
        assert [client["client_id"] for client in shown["online"]["clients"]] == [mq.client_id]
        assert "tries" in terminal.ok("group", "show", "billing")
    assert "no member is online" in terminal.run("group", "show", "billing").notes
    assert terminal.ok("group", "list", "--names") == "billing\n"


def test_a_group_is_made_and_deleted(running: tuple[Terminal, Connection]) -> None:
    terminal, _ = running
    assert terminal.ok("group", "create", "audit", "--tries", "3") == "created group audit on embedded\n"
    assert terminal.json("group", "show", "audit")["settings"][0]["retry_max_times"] == 3
    assert terminal.json("group", "delete", "audit", "--dry-run")["dryRun"] is True
    assert "audit" in terminal.ok("group", "list", "--names")
    terminal.ok("group", "delete", "audit", "--offsets", "--yes")
    assert "audit" not in terminal.ok("group", "list", "--names")
    assert "no broker knows group 'audit'" in terminal.run("group", "show", "audit").error


def _committed(terminal: Terminal) -> int:
    return sum(queue["committedOffset"] for queue in terminal.json("group", "lag", "billing")["queues"])
