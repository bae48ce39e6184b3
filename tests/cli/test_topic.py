from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.scene import Terminal, server


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with server(topics={"orders": 4}) as running:
        yield Terminal(running.name_server)


def test_topics_are_listed_for_people_and_programs(terminal: Terminal) -> None:
    assert "orders" in terminal.ok("topic", "list").splitlines()
    (line,) = [each for each in terminal.json("topic", "list", "--details") if each["topic"] == "orders"]
    assert (line["queues"], line["messages"], line["brokers"]) == (4, 0, ["embedded"])
    assert "TBW102" not in terminal.ok("topic", "list")
    assert "TBW102" in terminal.ok("topic", "list", "--all")
    assert "queues" in terminal.ok("topic", "list", "-l").splitlines()[0]


def test_a_topic_is_made_shown_changed_and_deleted(terminal: Terminal) -> None:
    assert (
        terminal.ok("topic", "create", "blog", "--queues", "2", "--type", "fifo") == "created topic blog on embedded\n"
    )
    shown = terminal.json("topic", "show", "blog")
    assert [queue["queue"] for queue in shown["queues"]] == [0, 1]
    assert shown["settings"][0]["attributes"] == {"message.type": "FIFO"}
    terminal.ok("topic", "update", "blog", "--queues", "3", "--perm", "r")
    shown = terminal.json("topic", "show", "blog")
    assert (len(shown["queues"]), shown["settings"][0]["perm"]) == (3, 4)
    text = terminal.ok("topic", "show", "blog")
    assert "embedded/2" in text
    assert "R--" in text

    would = terminal.ok("topic", "delete", "blog", "--dry-run")
    assert would.startswith("would delete topic blog with 0 messages")
    assert "blog" in terminal.ok("topic", "list")
    refused = terminal.run("topic", "delete", "blog")
    assert refused.exit_code == 2
    assert "give --yes" in refused.notes.replace("\n", " ")
    assert terminal.json("topic", "delete", "blog", "--yes")["done"] == "deleted"
    assert "blog" not in terminal.ok("topic", "list")


def test_what_is_wrong_is_said_with_its_fix(terminal: Terminal) -> None:
    assert "'none'" in terminal.run("topic", "show", "none").error
    assert terminal.run("topic", "update", "orders").exit_code == 2
    bad = terminal.run("topic", "create", "a b")
    assert (bad.exit_code, "a b" in bad.error) == (1, True)
    assert terminal.run("topic", "create", "x", "--attribute", "nothing").exit_code == 2
