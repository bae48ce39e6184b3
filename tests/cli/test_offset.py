from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.scene import Terminal, server


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with server(topics={"orders": 1}) as here, here.connect() as mq:
        for number in range(5):
            mq.send("orders", str(number).encode())
        mq.admin.create_group("billing")
        mq.admin.create_group("copy")
        yield Terminal(here.name_server)


def committed(terminal: Terminal, group: str = "billing") -> list[int | None]:
    return [each["committedOffset"] for each in terminal.json("offset", "show", group, "--topic", "orders")]


def test_offsets_are_reset_with_a_preview_and_cloned(terminal: Terminal) -> None:
    assert committed(terminal) == [None]
    dry = terminal.json("offset", "reset", "billing", "--topic", "orders", "--to", "latest", "--dry-run")
    assert [(change["before"], change["after"]) for change in dry["changes"]] == [(None, 5)]
    assert committed(terminal) == [None]
    terminal.ok("offset", "reset", "billing", "--topic", "orders", "--to", "latest", "--yes")
    assert committed(terminal) == [5]
    text = terminal.ok("offset", "reset", "billing", "--topic", "orders", "--to", "earliest", "--dry-run")
    assert "5 again" in text
    place = ["--queue", "embedded/0"]
    terminal.ok("group", "reset", "billing", "--topic", "orders", "--to", "2", *place, "--yes")
    assert committed(terminal) == [2]
    assert "3 skipped" in terminal.ok("offset", "reset", "billing", "-t", "orders", "--to", "5", *place, "--dry-run")

    dry = terminal.json("offset", "clone", "billing", "copy", "--topic", "orders", "--dry-run")
    assert (dry["changes"][0]["before"], dry["changes"][0]["after"]) == (None, 2)
    assert committed(terminal, "copy") == [None]
    terminal.ok("offset", "clone", "billing", "copy", "--topic", "orders", "--yes")
    assert committed(terminal, "copy") == [2]


def test_what_cannot_be_is_told(terminal: Terminal) -> None:
    reset = ["offset", "reset", "billing", "--topic", "orders"]
    assert terminal.run(*reset, "--to", "latest").exit_code == 2  # nobody to ask
    assert terminal.run(*reset, "--to", "x", "--queue", "embedded/0").exit_code == 2
    assert terminal.run(*reset, "--to", "1", "--queue", "embedded").exit_code == 2
    assert "there are embedded/0" in terminal.run(*reset, "--to", "1", "--queue", "embedded/9", "--yes").error
    assert "has the offsets 0 to 5" in terminal.run(*reset, "--to", "9", "--queue", "embedded/0", "--yes").error
    unknown = terminal.run("offset", "reset", "nobody", "--topic", "orders", "--to", "latest", "--yes")
    assert "no broker knows group" in unknown.error
