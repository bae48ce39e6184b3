"""What the documents say is so: their programs run, their tables match the code, their links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest

import fusee
import fusee.admin
import fusee.errors
import fusee.sync
from fusee.client.consumer.options import ConsumerOptions
from fusee.client.consumer.pull_options import PullOptions
from fusee.client.producer import Producer

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"])
CLIENTS = ROOT / "docs" / "clients.md"
HIGH_AVAILABILITY = ROOT / "docs" / "high_availability.md"
TESTING = ROOT / "docs" / "testing.md"
NAME_SERVERS = ("127.0.0.1:9876;127.0.0.1:9877", "127.0.0.1:9876")


def blocks(document: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found


# Programs


def test_programs_of_the_readme_run() -> None:
    with fusee.sync.embedded() as server:
        for program in blocks(ROOT / "README.md"):
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", program.replace(NAME_SERVERS[1], server.name_server)],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout
            assert done.stderr == ""


def run_as_pages(pages: list[str], name_server: str) -> None:
    """Run these one after another, each with the names of those before and with `await` allowed everywhere."""
    names: dict[str, Any] = {"__name__": "__page__"}

    async def run() -> None:
        for number, page in enumerate(pages, 1):
            text = page
            for address in NAME_SERVERS:
                text = text.replace(address, name_server)
            code = compile(text, f"block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            result = FunctionType(code, names)()
            if code.co_flags & inspect.CO_COROUTINE:
                async with asyncio.timeout(30):
                    await cast("Coroutine[Any, Any, None]", result)
        mq = names.get("mq")
        if isinstance(mq, fusee.Connection):
            await mq.close()

    asyncio.run(run())


def test_blocks_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with fusee.sync.embedded() as server:
        run_as_pages(blocks(CLIENTS), server.name_server)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="processes are known by Linux's /proc")
def test_program_of_the_page_on_high_availability_runs() -> None:
    (program,) = blocks(HIGH_AVAILABILITY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    first, other, *bodies = done.stdout.splitlines()
    assert first == "SEND_OK REPLICA"
    assert other in ("broker-a", "broker-b")
    assert sorted(bodies) == ["b'order 1'", "b'order 2'"]


def test_blocks_of_the_page_on_testing_run(tmp_path: Path) -> None:
    programs = [block for block in blocks(TESTING) if "def test_" not in block]
    tests = [block for block in blocks(TESTING) if "def test_" in block]
    run_as_pages(programs, "")
    file = tmp_path / "test_page.py"
    file.write_text("\n\n".join(tests))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--strict-markers", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(block.count('def test_') for block in tests)} passed" in done.stdout


# Tables


def table(document: Path, heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading, by the name in their first cell."""
    text = document.read_text()
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    rows = re.findall(r"^\| (`.*) \|$", section[1], re.MULTILINE)
    found = {}
    for row in rows:
        first, *cells = row.split(" | ")
        for name in re.findall(r"`([A-Za-z_]+)`", first):
            found[name] = cells
    return found


def defaults_of(function: Any) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


CONNECTION_SEAMS = {"network", "clock", "timers", "chooser"}


@pytest.mark.parametrize(
    ("heading", "function", "left_out"),
    [
        ("Connection", fusee.connect, CONNECTION_SEAMS),
        ("Producer", Producer, {"group", "hooks"}),
        ("Consumer", ConsumerOptions, set()),
        ("Pull consumer", PullOptions, set()),
    ],
)
def test_options_of_the_guide_are_those_of_the_code(heading: str, function: Any, left_out: set[str]) -> None:
    said = table(CLIENTS, heading)
    said.pop("concurrency", None)
    defaults = {name: value for name, value in defaults_of(function).items() if name not in left_out}
    assert said.keys() == defaults.keys()
    for name, (default, _java) in said.items():
        if name != "name_servers":
            shown = re.match(r"`([^`]*)`", default)
            assert shown is not None, name
            assert ast.literal_eval(shown[1]) == defaults[name], name


def test_errors_of_the_guide_are_those_of_the_code() -> None:
    said = table(CLIENTS, "Errors")
    of_clients = {
        name: error
        for name, error in vars(fusee.errors).items()
        if isinstance(error, type)
        and issubclass(error, fusee.FuseeError)
        and not issubclass(error, fusee.errors.StoreError)
        and error not in (fusee.FuseeError, fusee.errors.TransportError, fusee.errors.FieldError)
    }
    of_clients["AdminError"] = fusee.admin.AdminError
    assert said.keys() == of_clients.keys()
    for name, (_cause, _fix, retryable) in said.items():
        if name not in ("SendFailedError", "AdminError"):
            assert (retryable == "yes") is of_clients[name].retryable, name


def test_names_of_the_guide_exist() -> None:
    text = CLIENTS.read_text()
    for name in set(re.findall(r"\bfusee\.([A-Z]\w+)", text)):
        assert hasattr(fusee, name), name
    for name in set(re.findall(r"\badmin\.(\w+)\(", text)):
        assert hasattr(fusee.Admin, name), name
    for name in set(re.findall(r"`mq\.(\w+)", text)):
        assert hasattr(fusee.Connection, name), name


# Links


def anchors(document: Path) -> set[str]:
    """The places of a document that a link can name, as forges make them of headings."""
    outside = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)
    named = set(re.findall(r'<a (?:id|name)="([^"]+)">', outside))
    return named | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (document.parent / file).resolve() if file else document
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target
