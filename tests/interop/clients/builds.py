"""What the client programs need before they run: compiled classes, a Go binary, node modules, a virtual environment.

Everything lies in the cache folder of the toolchain under the hash of what it was made from, and is made once. The
package managers are used as this machine has them set up.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop.harness.toolchain import BuildError, ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.harness.toolchain import Runtime, Toolchain

CLIENTS_DIR: Final = Path(__file__).resolve().parent
BUILD_TIMEOUT_S: Final = 540
CPP_REQUIREMENT: Final = "rocketmq==0.4.4"


def java_program(toolchain: Toolchain, runtime: Runtime) -> Runtime:
    """The run time with the matrix program compiled in front of its class path."""
    sources = sorted((CLIENTS_DIR / "java/src/fusee/interop/matrix").glob("*.java"))

    def compile_into(folder: Path) -> None:
        _run(
            f"javac could not compile the client program for {runtime.name}",
            [
                *(str(toolchain.javac), "-proc:none", "-encoding", "UTF-8", "-cp", runtime.classpath),
                *("-d", str(folder), *map(str, sources)),
            ],
        )

    classes = _made_once(
        toolchain.cache_dir, f"matrix-{runtime.name}", [runtime.classpath.encode(), *_contents(sources)], compile_into
    )
    return dataclasses.replace(runtime, classpath=f"{classes}{os.pathsep}{runtime.classpath}")


def go_program(toolchain: Toolchain) -> Path:
    """The binary of the Go client. Raises ToolMissingError where there is no Go."""
    go = _tool("go", "Go 1.22 or newer (Debian and Ubuntu: apt install golang)")
    sources = sorted(path for path in (CLIENTS_DIR / "go").iterdir() if path.suffix in {".go", ".mod", ".sum"})

    def build_into(folder: Path) -> None:
        command = [go, "build", "-mod=readonly", "-o", str(folder / "client"), "."]
        _run("go could not build the Go client", command, folder=CLIENTS_DIR / "go")

    return _made_once(toolchain.cache_dir, "matrix-go", [go.encode(), *_contents(sources)], build_into) / "client"


def node_modules(toolchain: Toolchain) -> tuple[str, Path]:
    """The node executable and a folder of modules with ali-ons. Raises ToolMissingError where there is no Node.js."""
    node = _tool("node", "Node.js (Debian and Ubuntu: apt install nodejs)")
    npm = _tool("npm", "npm (Debian and Ubuntu: apt install npm)")
    package = CLIENTS_DIR / "node/package.json"

    def install_into(folder: Path) -> None:
        shutil.copy(package, folder)
        command = [
            npm,
            "install",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--loglevel=error",
        ]
        _run("npm could not install ali-ons", command, folder=folder)

    folder = _made_once(toolchain.cache_dir, "matrix-node", _contents([package]), install_into)
    return node, folder / "node_modules"


def cpp_python(toolchain: Toolchain) -> Path:
    """The Python of an environment with the C++ client. Raises ToolMissingError where its library cannot load."""

    def install_into(folder: Path) -> None:
        _run("no virtual environment for the C++ client", [sys.executable, "-m", "venv", "--copies", str(folder)])
        command = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run("pip could not install the C++ client", [*command, CPP_REQUIREMENT])

    content = [CPP_REQUIREMENT.encode(), sys.version.encode(), sys.executable.encode()]
    python = _made_once(toolchain.cache_dir, "matrix-cpp", content, install_into) / "bin/python"
    run = subprocess.run(
        [python, "-c", "import rocketmq.client"], capture_output=True, text=True, timeout=60, cwd=toolchain.cache_dir
    )
    if run.returncode != 0:
        raise ToolMissingError(f"the library of {CPP_REQUIREMENT} does not load on this machine: {run.stderr[-600:]}")
    return python


def _made_once(cache_dir: Path, name: str, content: list[bytes], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256()
    for part in content:
        digest.update(hashlib.sha256(part).digest())
    made = cache_dir / f"{name}-{digest.hexdigest()[:16]}"
    with _locked(cache_dir):
        if not made.exists():
            # A virtual environment knows its own path, so nothing is moved: a stamp tells a whole one from a torn one.
            scratch = Path(tempfile.mkdtemp(dir=cache_dir, prefix=f"{name}-"))
            try:
                make(scratch)
            except BaseException:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
            made.symlink_to(scratch.name)
    return made


@contextmanager
def _locked(cache_dir: Path) -> Iterator[None]:
    cache_dir.mkdir(parents=True, exist_ok=True)
    with (cache_dir / ".matrix.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _contents(paths: list[Path]) -> list[bytes]:
    return [path.name.encode() + b"\0" + path.read_bytes() for path in paths]


def _tool(name: str, wanted: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(f"this client needs {wanted}")
    return found


def _run(complaint: str, command: list[str], *, folder: Path | None = None) -> None:
    run = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    if run.returncode != 0:
        raise BuildError(f"{complaint} (exit code {run.returncode}):\n{run.stdout[-4000:]}")
