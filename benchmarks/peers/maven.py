"""Jars of peers: fetched once by Maven into the user's cache, and known to be whole by a stamp beside them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Sequence

FETCH_LIMIT_S: Final = 900.0

_DEPENDENCY: Final = """\
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
{exclusions}    </dependency>
"""
# Only what is named: some versions that a peer's own list asks for are not to be had.
_NOTHING_ELSE: Final = """\
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
"""
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fusee</groupId>
  <artifactId>benchmark-peer</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


def cache() -> Path:
    """Where peers are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fusee-bench"


def java() -> str:
    """The Java that runs peers. Raises BenchmarkError without one."""
    found = shutil.which("java")
    if found is None:
        raise BenchmarkError("no java on the PATH; install a JDK of 17 or newer to measure beside programs in Java")
    return found


def jars(name: str, artifacts: Sequence[str], *, with_dependencies: bool = True) -> Path:
    """The folder with the jars of these `group:artifact:version`. Raises BenchmarkError when they cannot be had."""
    folder = cache() / name
    lib = folder / "lib"
    pom = _POM.format(dependencies="".join(_dependency(one, with_dependencies) for one in artifacts))
    complete = folder / f"complete-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"
    if complete.exists():
        return lib
    maven = shutil.which("mvn")
    if maven is None:
        raise BenchmarkError(f"no mvn on the PATH; install Maven to fetch {name} as a peer")
    shutil.rmtree(lib, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(pom)
    try:
        subprocess.run(
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={lib}"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=FETCH_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stdout", None) or str(error)
        raise BenchmarkError(f"Maven could not fetch {name}: {str(detail).strip()[-500:]}") from error
    complete.touch()
    return lib


def _dependency(coordinates: str, with_dependencies: bool) -> str:
    group, artifact, version = coordinates.split(":")
    exclusions = "" if with_dependencies else _NOTHING_ELSE
    return _DEPENDENCY.format(group=group, artifact=artifact, version=version, exclusions=exclusions)
