"""Java, Maven, the class paths they give, and our Java programs compiled against them.

Nothing is written into the source tree. A class path is a `pom.xml` under java/; Maven resolves it once into
its own repository, and the result is remembered in the cache folder under the hash of the pom. Programs are
compiled once per content. A lock on the cache folder lets several runs share it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

JAVA_DIR: Final = Path(__file__).resolve().parent.parent / "java"
JAVA_VERSION_MIN: Final = 11
MAVEN_TIMEOUT_S: Final = 540
DEPENDENCY_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"

CURRENT: Final = "rocketmq-5.5.0"
OLD: Final = "rocketmq-4.9.8"

# Which of our packages a class path can compile: the old client knows no servers and no tools.
PACKAGES: Final = {CURRENT: ("client", "tools"), OLD: ("client",)}

# What RocketMQ's own start scripts open for the modules of Java 9 and later.
_MODULE_FLAGS: Final = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
# Short runs on few cores: the second compiler and a parallel collector cost more than they give.
_SPEED_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")


class ToolMissingError(Exception):
    """This machine lacks something that must be installed before the suite can run."""


class BuildError(Exception):
    """Maven or javac is there but failed."""


@dataclass(frozen=True)
class Toolchain:
    """The programs found on this machine and the folder for what they make."""

    java: Path
    javac: Path
    maven: Path
    cache_dir: Path

    @classmethod
    def find(cls) -> Toolchain:
        """Raises ToolMissingError that names all that is missing and how to get it."""
        missing = []
        java, javac, maven = (_find(name) for name in ("java", "javac", "mvn"))
        if java is None or javac is None:
            missing.append(
                f"a JDK (java and javac) of version {JAVA_VERSION_MIN} or newer "
                "(Debian and Ubuntu: apt install openjdk-17-jdk-headless; or set JAVA_HOME)"
            )
        elif (version := _java_version(java)) < JAVA_VERSION_MIN:
            missing.append(f"a JDK of version {JAVA_VERSION_MIN} or newer: {java} is version {version}")
        if maven is None:
            missing.append("Maven (Debian and Ubuntu: apt install maven)")
        if java is None or javac is None or maven is None or missing:
            raise ToolMissingError(f"interoperation with Apache RocketMQ needs {' and '.join(missing)}")
        cache_root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(java, javac, maven, cache_root / "fusee-interop")

    def runtime(self, name: str) -> Runtime:
        """The class path of java/<name>/pom.xml with our programs, made now unless it was made before."""
        pom = JAVA_DIR / name / "pom.xml"
        with self._locked():
            libraries = self._libraries(name, pom)
            classes = self._classes(name, libraries)
        entries = (str(classes), str(JAVA_DIR / "resources"), libraries)
        return Runtime(name, self.java, os.pathsep.join(entries))

    def _libraries(self, name: str, pom: Path) -> str:
        stamp = self.cache_dir / f"{name}-{_digest(pom.read_bytes(), DEPENDENCY_PLUGIN.encode())}.classpath"
        if stamp.exists():
            libraries = stamp.read_text(encoding="utf-8")
            if all(Path(entry).exists() for entry in libraries.split(os.pathsep)):
                return libraries
        with tempfile.TemporaryDirectory(dir=self.cache_dir) as scratch:
            answer = Path(scratch) / "classpath"
            _run(
                f"Maven could not resolve {pom}; it needs a repository it can reach, or one filled before",
                [
                    *(str(self.maven), "--quiet", "--batch-mode", "--file", str(pom)),
                    *(f"{DEPENDENCY_PLUGIN}:build-classpath", "-DincludeScope=runtime"),
                    f"-Dmdep.outputFile={answer}",
                ],
            )
            libraries = answer.read_text(encoding="utf-8").strip()
            answer.write_text(libraries, encoding="utf-8")
            answer.replace(stamp)
        return libraries

    def _classes(self, name: str, libraries: str) -> Path:
        sources = [
            source
            for package in PACKAGES[name]
            for source in sorted((JAVA_DIR / "src/fusee/interop" / package).glob("*.java"))
        ]
        content = [libraries.encode(), str(_java_version(self.java)).encode()]
        content += [source.read_bytes() for source in sources]
        classes = self.cache_dir / f"{name}-{_digest(*content)}.classes"
        if not classes.exists():
            scratch = Path(tempfile.mkdtemp(dir=self.cache_dir))
            try:
                _run(
                    f"javac could not compile the programs for {name}",
                    [
                        *(str(self.javac), "-proc:none", "-encoding", "UTF-8", "-cp", libraries),
                        *("-d", str(scratch), *map(str, sources)),
                    ],
                )
                scratch.rename(classes)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return classes

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        with (self.cache_dir / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True)
class Runtime:
    """One class path that programs can be started on."""

    name: str
    java: Path
    classpath: str

    def command(
        self,
        main_class: str,
        *arguments: str,
        home_dir: Path,
        heap_mb: int = 128,
        log_level: str = "INFO",
        properties: dict[str, str] | None = None,
    ) -> list[str]:
        """The command line of a virtual machine that keeps everything it writes under `home_dir`."""
        settings = {"user.home": str(home_dir), "fusee.log.level": log_level, **(properties or {})}
        return [
            *(str(self.java), *_MODULE_FLAGS, *_SPEED_FLAGS, f"-Xmx{heap_mb}m"),
            f"-XX:MaxDirectMemorySize={heap_mb}m",
            f"-XX:ErrorFile={home_dir}/hs_err_%p.log",
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-cp", self.classpath, main_class, *arguments),
        ]


def _find(name: str) -> Path | None:
    java_home = os.environ.get("JAVA_HOME")
    if java_home and (Path(java_home) / "bin" / name).exists():
        return Path(java_home) / "bin" / name
    found = shutil.which(name)
    return Path(found) if found else None


def _java_version(java: Path) -> int:
    run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(match.group(1)) if match else 0


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def _run(complaint: str, command: list[str]) -> None:
    run = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=MAVEN_TIMEOUT_S,
    )
    if run.returncode != 0:
        raise BuildError(f"{complaint} (exit code {run.returncode}):\n{run.stdout[-4000:]}")
