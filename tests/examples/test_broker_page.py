"""The examples of docs/broker.md: the commands start, the program runs, the settings exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from fusee.broker.config import load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "broker.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found


def test_commands_and_program_of_the_page_run(tmp_path: Path) -> None:
    with ExitStack() as running:

        def start(line: str) -> str:
            """The address at which the command of this line listens."""
            process = subprocess.Popen(
                [sys.executable, "-m", *shlex.split(line)],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
            running.enter_context(process)
            running.callback(process.terminate)
            assert process.stdout is not None
            found = re.search(r"listening on ([\d.:]+)", process.stdout.readline())
            assert found is not None
            return found[1]

        name_server_line, broker_line = blocks("bash")[0].splitlines()
        name_server = start(name_server_line.replace(":9876", ":0"))
        broker = start(broker_line.replace("127.0.0.1:9876", name_server).replace(":10911", ":0"))
        (program,) = blocks("python")
        done = subprocess.run(
            [sys.executable, "-c", program.replace("127.0.0.1:10911", broker)],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 SendMessageResponse(")
    assert done.stdout.endswith("[b'order 1']\n")


@pytest.mark.parametrize("text", blocks("properties"))
def test_settings_of_the_page_are_known(text: str, tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text(text)
    settings = load_settings(file=file)
    assert not settings.ignored
    assert sum(origin != "default" for origin in settings.origins.values()) == len(text.splitlines())


def test_settings_named_on_the_page_exist() -> None:
    known = load_settings().to_properties()
    for name in set(re.findall(r"`([a-z]+(?:[A-Z][a-z]*)+)`", PAGE)):
        assert f"\n{name}=" in f"\n{known}", name
