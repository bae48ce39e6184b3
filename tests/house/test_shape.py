"""The shape of the house, held to by tests: floors, names, sizes, openings, and what the project says of itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fusee"
MODULES = sorted(SOURCE.rglob("*.py"))
# Tables are read from top to bottom and may be long; everything else that grows this far has become two things.
LINES_MAX = 800
TABLES = {"wire/codes.py", "wire/protocol_table.py", "wire/headers/admin.py"}
FORBIDDEN_NAMES = re.compile(r"(^|_)(utils?|commons?|helpers?|managers?|impl|base|misc)(_|$)")


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_opens_with_one_sentence(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, "a module says in its first line what it is"
    assert docstring.splitlines()[0].rstrip().endswith((".", ":")) or "." in docstring


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_has_one_thing_to_be(path: Path) -> None:
    if name_of(path) not in TABLES:
        assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_named_for_what_it_is(path: Path) -> None:
    assert not FORBIDDEN_NAMES.search(path.stem)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_is_left_for_later(path: Path) -> None:
    # The delay topic of RocketMQ really is called SCHEDULE_TOPIC_XXXX.
    text = path.read_text().replace("SCHEDULE_TOPIC_XXXX", "")
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError", text)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_clock_reads_time(path: Path) -> None:
    if name_of(path) == "clock.py":
        return
    calls = re.findall(r"\btime\.(?:time|time_ns|monotonic|perf_counter|sleep)\(|datetime\.now\(", path.read_text())
    assert not calls


def test_every_package_is_mirrored_in_tests() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    tested = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert packages <= tested


@pytest.mark.parametrize(
    "module", ["fusee.message", "fusee.message.record", "fusee.wire.framing", "fusee.wire.exchange"]
)
def test_what_has_no_io_loads_no_loop_and_no_socket(module: str) -> None:
    program = f"import sys, {module}; print(sorted({{'asyncio', 'socket', 'ssl', 'uvloop'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_project_speaks_only_of_itself() -> None:
    foreign = re.compile("/" + r"work/|\.\./shared|/root/|pypi" + r"\.org|repo1\.maven|registry\.npmjs", re.IGNORECASE)
    for path in tracked_files():
        if path.suffix in {".xz", ".gz", ".png", ".bin"} or path == Path(__file__):
            continue
        found = foreign.search(path.read_text(errors="replace"))
        if found is not None:
            pytest.fail(f"{path.relative_to(ROOT)} names {found[0]}")


def test_readme_shows_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_every_example_is_run_by_a_test() -> None:
    runner = (ROOT / "tests" / "examples" / "test_examples.py").read_text()
    assert "examples" in runner
    assert 'glob("*.py")' in runner
