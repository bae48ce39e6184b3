from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.scene import Terminal, server


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with server() as here:
        yield Terminal(here.name_server)


def test_settings_are_shown_with_their_origin_and_got_one_by_one(terminal: Terminal) -> None:
    (settings,) = terminal.json("config", "show").values()
    assert settings["flushDiskType"] == {"value": "ASYNC_FLUSH", "default": "ASYNC_FLUSH", "origin": "default"}
    assert settings["bindAddress"]["origin"] == "set"
    shown = terminal.ok("config", "show")
    assert "flushDiskType" not in shown
    assert "flushDiskType" in terminal.ok("config", "show", "--all", "--match", "flushdisk")
    assert terminal.ok("config", "get", "flushDiskType") == "ASYNC_FLUSH\n"
    (of_name_server,) = terminal.json("config", "show", "--name-servers").values()
    assert "listenPort" in of_name_server
    assert "is it flushDiskType" in terminal.run("config", "get", "flushdisktype").error


def test_settings_are_changed_with_a_preview(terminal: Terminal) -> None:
    change = ["config", "set", "longPollingEnable=false"]
    dry = terminal.json(*change, "--dry-run")
    assert dry["changes"][0]["after"] == "false"
    assert terminal.ok("config", "get", "longPollingEnable") != "false\n"
    assert terminal.run(*change).exit_code == 2  # nobody to ask
    assert "false" in terminal.ok(*change, "--yes")
    assert terminal.ok("config", "get", "longPollingEnable", "--broker", "embedded") == "false\n"
    assert "no setting 'nothingSuch'" in terminal.run("config", "set", "nothingSuch=1", "--yes").error
    assert terminal.run("config", "set", "nothing").exit_code == 2
