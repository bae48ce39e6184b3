from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusee.sync import Connection
from tests.cli.scene import Terminal, bury, server


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Terminal, Connection]]:
    with server(topics={"orders": 1}) as here, here.connect() as mq:
        yield Terminal(here.name_server), mq


def test_dead_letters_from_list_to_replay_and_no_circles(
    running: tuple[Terminal, Connection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, mq = running
    monkeypatch.chdir(tmp_path)
    assert terminal.json("dlq", "list") == []
    assert terminal.json("dlq", "inspect", "billing") == []
    assert terminal.json("dlq", "inspect", "billing", "--each") == []
    assert "has no dead letters" in terminal.run("dlq", "inspect", "billing").notes
    bury(mq, "orders", "billing", 3)
    (line,) = terminal.json("dlq", "list")
    assert (line["group"], line["count"]) == ("billing", 3)
    assert "billing" in terminal.ok("dlq", "list")
    (cause,) = terminal.json("dlq", "inspect", "billing")
    assert (cause["count"], cause["values"]["topic"], cause["values"]["tag"]) == (3, "orders", "paid")
    assert "given up by its consumer" in terminal.ok("dlq", "inspect", "billing")
    assert len(terminal.json("dlq", "inspect", "billing", "--each")) == 3

    dry = terminal.json("dlq", "replay", "billing", "--dry-run")
    assert dry["counts"] == {"replayed": 0, "would_replay": 3, "looped": 0, "refused": 0}
    assert terminal.json("dlq", "replay", "billing", "--tag", "other", "--dry-run")["results"] == []
    assert terminal.run("dlq", "replay", "billing").exit_code == 2  # nobody to ask
    first = terminal.json("dlq", "replay", "billing", "--limit", "1", "--yes")
    assert first["counts"]["replayed"] == 1
    rest = terminal.json("dlq", "replay", "billing", "--yes", "--rate", "1000")
    assert (rest["counts"]["replayed"], [each["queueOffset"] for each in rest["results"]]) == (2, [1, 2])
    assert "no dead letters to replay" in terminal.run("dlq", "replay", "billing", "--yes").notes

    seen: list[str] = []

    def remember(message: object) -> None:
        seen.append("given")

    with mq.consumer("orders", group="billing", listener=remember):
        from tests.cli.scene import wait_for

        wait_for(lambda: len(seen) >= 3)
    looped = terminal.json("dlq", "replay", "billing", "--afresh", "--max-replays", "1", "--dry-run")
    assert looped["counts"]["would_replay"] == 3


def test_a_state_file_of_something_else_is_refused(running: tuple[Terminal, Connection], tmp_path: Path) -> None:
    terminal, _ = running
    path = tmp_path / "state.json"
    path.write_text('{"group": "other"}')
    assert "'other'" in terminal.run("dlq", "replay", "billing", "--state", str(path)).error
    path.write_text("no JSON")
    assert "--afresh" in terminal.run("dlq", "replay", "billing", "--state", str(path)).error
