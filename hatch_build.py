"""Compiles the hot modules where Cython and a C compiler are at hand, for wheels and in the source folder.

    python hatch_build.py           compile what is not compiled yet, in place
    pip install .                   the same by way of hatchling, whose build hook is below

Compiling is optional everywhere. Without a compiler, with FUSEE_PURE=1, or when it fails, one line says so, and what is
built is the plain package, as a wheel for every platform.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # in place there is nothing to hook into
    BuildHookInterface = object  # type: ignore[assignment, misc]

ROOT = Path(__file__).parent
PACKAGE = ROOT / "src" / "fusee"
NEEDS = ["cython>=3.1", "setuptools>=70"]
DIRECTIVES = {
    "language_level": 3,
    # An annotation is a promise to readers and mypy; C types are given in .pxd files alone, one by one.
    "annotation_typing": False,
    "embedsignature": False,
}
HEADERS = [str(PACKAGE / "message")]
OPTIONS = ["-O2", "-g0", "-w", "-fno-semantic-interposition"]


def _compiled() -> Any:
    """The module `fusee.compiled`, without the package around it."""
    spec = importlib.util.spec_from_file_location("fusee_compiled", PACKAGE / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def has_compiler() -> bool:
    """Whether the compiler that this Python would use is there, with Python's headers."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return shutil.which(command.split()[0]) is not None and headers.exists()


def why_not() -> str:
    """Why nothing can be compiled here; empty when it can."""
    if _compiled().is_pure():
        return "FUSEE_PURE is set"
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name} runs the plain form"
    if not has_compiler():
        return "no C compiler with Python's headers was found"
    for module in ("Cython", "setuptools"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    return ""


def wanted_files() -> dict[str, Path]:
    """The file that each hot module has when it is compiled."""
    compiled = _compiled()
    return {name: Path(compiled.compiled_path(str(PACKAGE), name)) for name in compiled.HOT_MODULES}


def source_of(name: str) -> Path:
    """What is compiled: the twin written for C where there is one, else the module itself."""
    source = PACKAGE.joinpath(*name.split(".")[1:]).with_suffix(".py")
    twin = source.with_suffix(".pyx")
    return twin if twin.exists() else source


def compile_one(name: str, target: Path) -> None:
    """Compile one module into this file. Raises whatever Cython or the compiler does."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as work:
        source = source_of(name).relative_to(ROOT)
        modules = cythonize(
            [Extension(name, [str(source)], include_dirs=HEADERS, extra_compile_args=OPTIONS)],
            build_dir=work,
            compiler_directives=DIRECTIVES,
            quiet=True,
            force=True,
        )
        distribution = Distribution({"name": "fusee", "ext_modules": modules})
        command = build_ext(distribution)
        command.build_lib, command.build_temp = f"{work}/lib", f"{work}/temp"
        command.ensure_finalized()
        command.run()
        built = Path(command.get_ext_fullpath(name))
        target.parent.mkdir(exist_ok=True)
        # Under another name first: a process that starts meanwhile must not load half a file.
        half = target.with_name(f".{os.getpid()}.{target.name}")
        shutil.copyfile(built, half)
        half.replace(target)


def compile_in_child(name: str, target: Path) -> None:
    """The same in a process of its own: neither Cython nor setuptools is made for threads. Raises RuntimeError."""
    command = [sys.executable, str(Path(__file__).resolve()), name, str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["nothing was said"]
        raise RuntimeError(f"{name}: {lines[-1]}")


def compile_all() -> list[Path]:
    """Compile what is not compiled yet and remove what fits no source any more; the files."""
    files = wanted_files()
    folder = PACKAGE / _compiled().FOLDER
    missing = {name: file for name, file in files.items() if not file.exists()}
    if missing:
        print(f"compiling {len(missing)} hot modules of fusee", file=sys.stderr, flush=True)
        with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, len(missing))) as workers:
            list(workers.map(compile_in_child, missing, missing.values()))
    if folder.is_dir():
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        for file in folder.iterdir():
            if file.name.endswith(suffix) and not file.name.startswith(".") and file not in files.values():
                file.unlink(missing_ok=True)
    return list(files.values())


def compiled_or_not() -> list[Path]:
    """The compiled files; none, and a line that says why, where they cannot be made."""
    reason = why_not()
    if not reason:
        try:
            return compile_all()
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever fails, there is a form that works
            reason = f"compiling failed: {error}"
    print(f"fusee runs interpreted: {reason}", file=sys.stderr, flush=True)
    return []


class CompilingHook(BuildHookInterface):
    """Adds the compiled modules to a wheel, which is then for this platform alone."""

    def dependencies(self) -> list[str]:
        return NEEDS if has_compiler() and not _compiled().is_pure() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return  # in place it is `make` that compiles, again and again
        files = compiled_or_not()
        if files:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"].update({str(file): f"fusee/{file.parent.name}/{file.name}" for file in files})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        compile_one(sys.argv[1], Path(sys.argv[2]))
    else:
        compiled_or_not()
