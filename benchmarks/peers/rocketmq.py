"""Apache RocketMQ's own name server: fetched once by Maven, started with settings that favour it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.server_process import ServerProcess, free_port

if TYPE_CHECKING:
    from benchmarks.plan import Plan

VERSION: Final = "5.5.0"
HEAP: Final = "1g"
FETCH_LIMIT_S: Final = 900.0

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fusee</groupId>
  <artifactId>benchmark-peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.rocketmq</groupId>
      <artifactId>rocketmq-namesrv</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def name_server(plan: Plan, *, cores: frozenset[int] | None) -> ServerProcess:
    """The Java name server, not started yet. Raises BenchmarkError without Java, Maven or the jars.

    G1, as its own start script has it, and native epoll. The parallel collector and NIO were tried beside
    these, warm and interleaved, and stayed within the spread of the runs.
    """
    java = shutil.which("java")
    if java is None:
        raise BenchmarkError("no java on the PATH; install a JDK of 11 or newer to measure beside Apache RocketMQ")
    jars = _jars()
    home = plan.results / "rocketmq"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = home / "namesrv.conf"
    settings.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nuseEpollNativeSelector=true\n")
    command = [
        *(java, "-server", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseG1GC"),
        *(f"-Duser.home={home}", "-cp", f"{jars}/*"),
        *("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(settings)),
    ]
    return ServerProcess(
        "Apache RocketMQ's name server",
        command,
        port=port,
        cores=cores,
        log_path=plan.logs / "rocketmq-namesrv.log",
        cwd=home,
        environment={"ROCKETMQ_HOME": str(home)},
    )


def _jars() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fusee-bench" / f"rocketmq-{VERSION}"
    jars = cache / "lib"
    complete = cache / "complete"
    if complete.exists():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise BenchmarkError("no mvn on the PATH; install Maven to fetch Apache RocketMQ as a peer")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "pom.xml").write_text(_POM.format(version=VERSION))
    try:
        subprocess.run(
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
            cwd=cache,
            check=True,
            capture_output=True,
            text=True,
            timeout=FETCH_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stdout", None) or str(error)
        raise BenchmarkError(
            f"Maven could not fetch Apache RocketMQ {VERSION}: {str(detail).strip()[-500:]}"
        ) from error
    complete.touch()
    return jars
