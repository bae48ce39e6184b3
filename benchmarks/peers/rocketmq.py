"""Apache RocketMQ's own servers and benchmark programs: fetched once by Maven, run with settings that favour them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.peers import maven
from benchmarks.server_process import ServerProcess, free_port

if TYPE_CHECKING:
    from benchmarks.plan import Plan

VERSION: Final = "5.5.0"
HEAP: Final = "1g"

BROKER_START_LIMIT_S: Final = 90.0
BROKER_STOP_LIMIT_S: Final = 15.0
PROGRAM_HEAP: Final = "1g"
FAILOVER: Final = Path(__file__).with_name("Failover.java")

_ARTIFACTS: Final = ("namesrv", "broker", "example")

# What its start script opens to its own code on Java 17.
_OPENED: Final = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "sun.nio.ch", "java.util", "java.lang")
    ),
)
# A broker refuses a send that has waited 200 ms for a thread; the load is a closed loop, and waits.
_BROKER_SETTINGS: Final = "useEpollNativeSelector=true\nwaitTimeMillsInSendQueue=5000\n"


def name_server(plan: Plan, *, cores: frozenset[int] | None, heap: str = HEAP) -> ServerProcess:
    """The Java name server, not started yet. Raises BenchmarkError without Java, Maven or the jars.

    G1, as its own start script has it, and native epoll. The parallel collector and NIO were tried beside
    these, warm and interleaved, and stayed within the spread of the runs.
    """
    java, jars = maven.java(), _jars()
    home = plan.results / "rocketmq"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = home / "namesrv.conf"
    settings.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nuseEpollNativeSelector=true\n")
    command = [
        *(java, "-server", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC"),
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
        start_limit_s=BROKER_START_LIMIT_S,
    )


def broker(
    settings: Path,
    *,
    port: int,
    heap: str,
    cores: frozenset[int] | None,
    log_path: Path,
    is_touched: bool = False,
) -> ServerProcess:
    """The Java broker with the settings in this file, not started yet. Raises BenchmarkError as `name_server`.

    G1 as its own start script sets it. With `is_touched` also that script's AlwaysPreTouch, which makes it slower to
    start and the whole heap resident at once.
    """
    java, jars = maven.java(), _jars()
    home = settings.parent / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    with settings.open("a") as file:
        file.write(_BROKER_SETTINGS)
    command = [
        *(java, "-server", f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=1g"),
        *(
            "-XX:+UseG1GC",
            "-XX:G1HeapRegionSize=16m",
            "-XX:G1ReservePercent=25",
            "-XX:InitiatingHeapOccupancyPercent=30",
        ),
        *(("-XX:+AlwaysPreTouch",) if is_touched else ()),
        *("-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-UseLargePages", *_OPENED),
        *(f"-Duser.home={home}", "-cp", f"{jars}/*"),
        *("org.apache.rocketmq.broker.BrokerStartup", "-c", str(settings)),
    ]
    return ServerProcess(
        f"Apache RocketMQ's broker with {heap} of heap",
        command,
        port=port,
        cores=cores,
        log_path=log_path,
        cwd=home,
        environment={"ROCKETMQ_HOME": str(home)},
        start_limit_s=BROKER_START_LIMIT_S,
        stop_limit_s=BROKER_STOP_LIMIT_S,
    )


def program(name: str, *arguments: str, home: Path) -> list[str]:
    """The command of one of its benchmark programs: Producer, BatchProducer, Consumer."""
    return [
        *(maven.java(), f"-Xmx{PROGRAM_HEAP}", *_OPENED, f"-Duser.home={home}", "-cp", f"{_jars()}/*"),
        *(f"org.apache.rocketmq.example.benchmark.{name}", *arguments),
    ]


def source(path: Path, *arguments: str, home: Path) -> list[str]:
    """The command of a program of ours in Java that uses its clients; Java compiles it as it starts."""
    return [
        *(maven.java(), f"-Xmx{PROGRAM_HEAP}", *_OPENED, f"-Duser.home={home}", "-cp", f"{_jars()}/*"),
        *(str(path), *arguments),
    ]


def _jars() -> Path:
    return maven.jars(
        f"rocketmq-{VERSION}", [f"org.apache.rocketmq:rocketmq-{artifact}:{VERSION}" for artifact in _ARTIFACTS]
    )
