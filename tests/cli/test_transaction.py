from __future__ import annotations

from collections.abc import Iterator

import pytest

from fusee.sync import Connection
from tests.cli.scene import Terminal, server, wait_for


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Terminal, Connection]]:
    with server(topics={"orders": 1}) as here, here.connect() as mq:
        yield Terminal(here.name_server), mq


def undecided(message: object) -> None:
    return None


def begin(mq: Connection, body: bytes) -> str:
    with mq.transaction("orders", body, check=undecided, group="shop") as transaction:
        transaction.leave_open()
    return transaction.transaction_id


def test_transactions_are_listed_shown_and_ended_by_hand(running: tuple[Terminal, Connection]) -> None:
    terminal, mq = running
    assert "no transaction waits" in terminal.run("transaction", "list").notes
    first, second = begin(mq, b"first"), begin(mq, b"second")
    found = terminal.json("transaction", "list")
    assert [each["transactionId"] for each in found["transactions"]] == [first, second]
    assert found["transactions"][0]["producerGroup"] == "shop"
    assert first in terminal.ok("transaction", "list")
    assert terminal.json("transaction", "show", first)["message"]["body"] == "first"
    assert "pending for orders, of shop" in terminal.ok("transaction", "show", first)

    assert "would have committed" in terminal.ok("transaction", "commit", first, "--dry-run")
    assert terminal.run("transaction", "commit", first).exit_code == 2  # nobody to ask
    assert terminal.ok("transaction", "commit", first, "--yes").startswith("committed transaction")
    assert terminal.json("transaction", "rollback", second, "--yes")["verdict"] == "rollback"
    wait_for(lambda: len(terminal.json("message", "browse", "orders")) == 1)
    wait_for(lambda: terminal.json("transaction", "list")["transactions"] == [])
    assert "is pending" in terminal.run("transaction", "commit", first, "--yes").error
    assert "no transaction was given up" in terminal.run("transaction", "list", "--given-up").notes
    assert "is pending" in terminal.run("transaction", "resume", "nothing", "--yes").error


def test_one_that_was_given_up_is_listed_and_resumed() -> None:
    options = {"transaction_check_max": 1, "transaction_check_interval": 100, "transaction_time_out": 100}
    with server(topics={"orders": 1}, **options) as here, here.connect() as mq:
        terminal = Terminal(here.name_server)
        unique = begin(mq, b"never decided")

        def given_up() -> list[str]:
            return [each["messageId"] for each in terminal.json("transaction", "list", "--given-up")]

        wait_for(lambda: unique in given_up())
        assert unique in terminal.ok("transaction", "list", "--given-up")
        assert "given up" in terminal.ok("transaction", "show", unique)
        assert "would resume" in terminal.ok("transaction", "resume", unique, "--dry-run")
        assert terminal.run("transaction", "resume", unique).exit_code == 2  # nobody to ask
        assert terminal.ok("transaction", "resume", unique, "--yes") == f"resumed {unique}\n"
        wait_for(lambda: len(given_up()) == 2)  # its producer was asked again, and did not decide again
