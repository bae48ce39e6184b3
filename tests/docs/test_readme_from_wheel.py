"""The README, followed by a reader with a built wheel, an empty environment, and no compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
# What a terminal has. Compilers are in the same folders of the system, which are therefore not on the path.
TOOLS = ("bash", "env", "sh", "uname")
SERVER = "fusee serve"
NAME_SERVER = "127.0.0.1:9876"
# Said while `doctor` looks at what the reader has made: a group whose only consumer has ended.
ALLOWED_TO_FIND = "fusee doctor"

pytestmark = [pytest.mark.registry, pytest.mark.timeout(900)]


class Block(NamedTuple):
    language: str
    text: str


def blocks() -> list[Block]:
    section = re.search(r"^## Five minutes.*?(?=^## )", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    found = re.findall(r"^```(sh|python)\n(.*?)^```", section[0], re.DOTALL | re.MULTILINE)
    return [Block(*each) for each in found]


class Reader:
    """Somebody with an empty folder, an environment made by `python -m venv`, and a terminal or two."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "reader"
        self.folder.mkdir()
        self._wheel = wheel
        tools = folder / "tools"
        tools.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found is not None
            (tools / name).symlink_to(found)
        environment = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        dropped = ("PYTHONPATH", "VIRTUAL_ENV", "PYTEST_", "COVERAGE", "NAMESRV_ADDR", "FUSEE_")
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        self._environ |= {
            "PATH": f"{environment / 'bin'}:{tools}",
            "CC": "/bin/false",
            "CXX": "/bin/false",
            "HOME": str(folder),
            "PYTHONUNBUFFERED": "1",
        }
        # Settings of pip are the machine's, not the reader's: where its registry and its cache are.
        for name, option in (("PIP_CONFIG_FILE", ".config/pip/pip.conf"), ("PIP_CACHE_DIR", ".cache/pip")):
            path = Path.home() / option
            if path.exists():
                self._environ.setdefault(name, str(path))
        self._exports = ""
        self.name_server = ""
        self.console = ""

    @property
    def path(self) -> str:
        return self._environ["PATH"]

    def follow(self, block: Block, running: ExitStack) -> str:
        """What is printed when this block is typed in."""
        if block.language == "python":
            return self._run(["python", "-W", "error", "-c", self._here(block.text)], block)
        said = ""
        for line in block.text.splitlines():
            command = line.partition(" #")[0].strip()
            if command == SERVER:
                server = self._serve()
                running.enter_context(server)
                running.callback(server.terminate)
            elif command.startswith("export "):
                self._exports += self._here(command) + "\n"
            else:
                said += self._run(["bash", "-ec", self._exports + self._here(command)], block)
        return said

    def _here(self, text: str) -> str:
        text = text.replace("pip install '.[", f"pip install --disable-pip-version-check '{self._wheel}[")
        return text.replace(NAME_SERVER, self.name_server or NAME_SERVER)

    def _run(self, command: list[str], block: Block) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environ, capture_output=True, text=True, timeout=600, check=False
        )
        shown = f"{block.text}\n{command[-1]}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0 or command[-1].endswith(ALLOWED_TO_FIND), shown
        assert "Traceback" not in done.stderr, shown
        return done.stdout

    def _serve(self) -> subprocess.Popen[str]:
        # The ports of the README may be in use on a machine that runs tests.
        process = subprocess.Popen(
            ["bash", "-ec", f"exec {SERVER} --namesrv-port 0 --broker-port 0 --console-port 0"],
            cwd=self.folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"name server listening on ([\d.:]+)", line):
                self.name_server = found[1]
            if found := re.search(r"console.*(http://[\d.:]+/)", line):
                self.console = found[1]
            if "message tail" in line:
                return process
        raise AssertionError("the server ended")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built where there is no compiler."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
        env={**os.environ, "CC": str(folder / "no-compiler")},
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture
def reader(tmp_path: Path, wheel: Path) -> Iterator[Reader]:
    yield Reader(tmp_path, wheel)
    shutil.rmtree(tmp_path)


def test_wheel_is_for_every_machine(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")


def test_reader_gets_to_a_first_message_and_through_the_rest(reader: Reader) -> None:
    for compiler in ("cc", "gcc", "g++", "clang", "rustc", "cargo"):
        assert shutil.which(compiler, path=reader.path) is None
    with ExitStack() as running:
        said = [reader.follow(block, running) for block in blocks()]
        with urllib.request.urlopen(reader.console, timeout=60) as page:
            console = page.read().decode()
    shown = "\n".join(said)
    assert "hello, world" in said[1]
    assert "<title>" in console
    assert re.search(r"^SEND_OK Durability\.MEMORY\nb'order 1' paid \('1',\)$", shown, re.MULTILINE), shown
    assert "b'pay, please'" in said[4]
    assert "order 3" in shown
    assert (reader.folder / "fusee-data" / "store" / "commitlog").is_dir()
    assert not (reader.folder / "fusee-cluster").exists()
