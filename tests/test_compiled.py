"""The form that is tested is the one that is meant: compiled where it can be had, interpreted where it is asked for."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from fusee import compiled
from fusee.compiled import HOT_MODULES, SHARED_SOURCES, CompiledFinder, compiled_path, form

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fusee"


def builder() -> ModuleType:
    """The module that compiles, which is no part of the package; under the name that hatchling gives it."""
    spec = importlib.util.spec_from_file_location("hatch_build.py", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(program: str, **environment: str) -> str:
    """What this program prints, in a process of its own."""
    plain = {name: value for name, value in os.environ.items() if name != compiled.PURE_VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", program], env=plain | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_this_run_has_the_form_that_it_is_meant_to_have() -> None:
    reason = builder().why_not()
    expected = "interpreted" if reason else "compiled"
    assert form() == expected, f"run `make compile`: the sources have changed ({reason or 'a compiler is at hand'})"


@pytest.mark.parametrize("name", HOT_MODULES)
def test_hot_module_runs_in_that_form(name: str) -> None:
    module = import_module(name)
    is_extension = (module.__file__ or "").endswith((".so", ".pyd"))
    assert is_extension == (not builder().why_not())


def test_environment_forces_the_interpreted_form() -> None:
    program = "import fusee.wire.framing as f, fusee.compiled as c; print(c.form(), f.__file__.endswith('.py'))"
    assert told(program, FUSEE_PURE="1") == "interpreted True"


def test_machine_code_that_does_not_fit_its_source_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "framing.py").write_text("A = 1\n")
    finder = CompiledFinder(str(tmp_path))
    assert finder.find_spec("fusee.wire.framing") is None
    built = Path(compiled_path(str(tmp_path), "fusee.wire.framing"))
    built.parent.mkdir()
    built.write_bytes(b"")
    found = finder.find_spec("fusee.wire.framing")
    assert found is not None
    assert found.origin == str(built)
    for changed in ("framing.py", "framing.pxd", "framing.pyx"):
        (tmp_path / "wire" / changed).write_text("A = 2\n")
        assert finder.find_spec("fusee.wire.framing") is None
        (tmp_path / "wire" / changed).unlink()
        (tmp_path / "wire" / "framing.py").write_text("A = 1\n")
        assert finder.find_spec("fusee.wire.framing") is not None


@pytest.mark.parametrize("shared", SHARED_SOURCES, ids="/".join)
def test_machine_code_that_does_not_fit_a_shared_source_is_not_found(tmp_path: Path, shared: tuple[str, str]) -> None:
    paths: list[str] = []
    for text in ("/* one */", "/* another */"):
        package = tmp_path / f"package{len(paths)}"
        package.joinpath(*shared).parent.mkdir(parents=True)
        package.joinpath(*shared).write_text(text)
        paths.append(Path(compiled_path(str(package), "fusee.wire.framing")).name)
    assert paths[0] != paths[1]


def test_whatever_twins_include_is_a_shared_source() -> None:
    included = {
        Path(name).name
        for twin in (*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxi"))
        for name in re.findall(r'^(?:cdef extern from|include) "(.+)"', twin.read_text(), re.MULTILINE)
    }
    assert included == {name for _, name in SHARED_SOURCES}


def test_modules_that_are_not_hot_are_left_to_python() -> None:
    assert CompiledFinder(str(PACKAGE)).find_spec("fusee.errors") is None


@pytest.mark.parametrize("twin", sorted(PACKAGE.rglob("*.pyx")), ids=lambda path: path.stem)
def test_twin_has_the_public_names_of_its_module(twin: Path) -> None:
    name = "fusee." + ".".join(twin.relative_to(PACKAGE).with_suffix("").parts)
    assert name in HOT_MODULES
    spec = importlib.util.spec_from_file_location(f"plain_{twin.stem}", twin.with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    running = import_module(name)
    own = {key for key, value in vars(plain).items() if getattr(value, "__module__", None) == plain.__name__}
    assert {key for key in own if not key.startswith("_")} <= set(vars(running))


def test_declarations_belong_to_hot_modules() -> None:
    declared = {path.with_suffix(".py") for path in PACKAGE.rglob("*.pxd")}
    hot = {PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py") for name in HOT_MODULES}
    assert declared <= hot
    assert all(path.exists() for path in hot)


def test_module_is_compiled_from_nothing_where_that_can_be_done(tmp_path: Path) -> None:
    build = builder()
    if build.why_not():
        assert build.compiled_or_not() == []
        return
    target = tmp_path / "compiled" / "usual_properties.so"
    build.compile_in_child("fusee.message.usual_properties", target)
    assert target.stat().st_size > 0
    with pytest.raises(RuntimeError, match=r"fusee\.message\.absent: "):
        build.compile_in_child("fusee.message.absent", tmp_path / "absent.so")


def wheel(folder: Path, **environment: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | environment,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_without_a_compiler_is_for_every_platform(tmp_path: Path) -> None:
    built = wheel(tmp_path, FUSEE_PURE="1")
    assert built.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(built).namelist() if compiled.FOLDER in name]


def test_wheel_has_every_compiled_module_where_they_can_be_made(tmp_path: Path) -> None:
    built = wheel(tmp_path)
    packed = [name for name in zipfile.ZipFile(built).namelist() if compiled.FOLDER in name]
    if builder().why_not():
        assert built.name.endswith("-py3-none-any.whl")
        assert packed == []
    else:
        assert f"cp{sys.version_info.major}{sys.version_info.minor}" in built.name
        expected = {Path(compiled_path(str(PACKAGE), name)).name for name in HOT_MODULES}
        assert {Path(name).name for name in packed} == expected


def test_start_reads_no_more_than_before() -> None:
    program = (
        "import sys, fusee; print(sorted({'asyncio', 'Cython', 'setuptools', 'pathlib', 'hashlib'} & set(sys.modules)))"
    )
    assert told(program) == told("import sys; print(sorted({'pathlib'} & set(sys.modules)))")
