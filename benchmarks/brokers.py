"""The brokers under measurement: ours and Apache RocketMQ's with two heaps, one settings file, one at work at a time.

Each has a name server of ours, a store folder and ports of its own. Those that are not measured are paused, because an
idle Java broker still takes a tenth of a core. Brokers, load generator and Java programs may all use every core: a
Java broker cannot do without, and ours has a second thread for the disk.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks.broker_frames import has_route, send_once
from benchmarks.errors import BenchmarkError
from benchmarks.machine import cores
from benchmarks.peers import rocketmq
from benchmarks.plan import REPOSITORY
from benchmarks.process_usage import available_mb
from benchmarks.results import OURS
from benchmarks.server_process import ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from benchmarks.plan import Plan

TOPIC: Final = "BenchmarkMessages"
# What a producer asks the name server for when nobody knows its topic yet.
TEMPLATE_TOPIC: Final = "TBW102"
PLACEMENT: Final = "nothing pinned: broker and load share every core, the same for all brokers"

ASYNC_FLUSH: Final = "ASYNC_FLUSH"
SYNC_FLUSH: Final = "SYNC_FLUSH"

FIRST_ANSWER_LIMIT_S: Final = 60.0
ROUTE_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 15.0
POLL_S: Final = 0.01
PORT_TRIES: Final = 100
# What a heap needs beside itself: direct memory, threads, classes.
BESIDE_HEAP_MB: Final = 2500.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A kind of broker that takes part; without `heap` it is ours."""

    name: str
    heap: str | None = None


def contenders(plan: Plan) -> tuple[list[Contender], list[str]]:
    """Who takes part on this machine, and notes about who does not. The quick form has one Java broker, with 1 GB."""
    notes = []
    java: list[Contender] = []
    for heap, megabytes in (("1g", 1074.0), ("4g", 4295.0)):
        if plan.quick and java:
            notes.append(f"without the heap of {heap}: short form")
        elif available_mb() < megabytes + BESIDE_HEAP_MB:
            notes.append(f"without the heap of {heap}: only {available_mb():.0f} MB of memory are available")
        else:
            java.append(Contender(f"RocketMQ {rocketmq.VERSION}, {heap[0]} GB heap", heap))
    try:
        rocketmq.program("Producer", home=plan.results)
    except BenchmarkError as error:
        return [Contender(OURS)], [f"without RocketMQ {rocketmq.VERSION}: {error}"]
    return [Contender(OURS), *java], notes


class RunningBroker:
    """A broker and its name server, from an empty store; a context manager that leaves nothing behind."""

    def __init__(
        self,
        contender: Contender,
        plan: Plan,
        *,
        flush: str = ASYNC_FLUSH,
        python_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        within: Path | None = None,
    ) -> None:
        """`python_options` stand before `-m fusee`, for a profiler around our broker, which also gets `environment`.

        `within` is where the store is made, in place of the build folder.
        """
        self.name = contender.name
        self.port = free_broker_port()
        self.store_folder = Path()
        self.start_s = 0.0
        """From the start of the process until a client that asks the name server has a message acknowledged."""
        self._contender = contender
        self._plan = plan
        self._flush = flush
        self._python_options = python_options
        self._environment = environment
        self._within = within or plan.build
        self._stack = ExitStack()
        self._server: ServerProcess | None = None
        self._name_server: ServerProcess | None = None

    @property
    def server(self) -> ServerProcess:
        if self._server is None:
            raise BenchmarkError(f"{self.name} is not running")
        return self._server

    @property
    def name_server_address(self) -> str:
        if self._name_server is None:
            raise BenchmarkError(f"the name server of {self.name} is not running")
        return f"127.0.0.1:{self._name_server.port}"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._within.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="broker-", dir=self._within))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            name_server = self._name_server = stack.enter_context(fusee_name_server(folder, self._log_path("namesrv")))
            settings = folder / "broker.properties"
            self.store_folder = folder / "store"
            settings.write_text(_settings(self.port, name_server.port, self.store_folder, self._flush))
            server = self._process(settings)
            begin = time.perf_counter()
            self._server = stack.enter_context(server)
            self.wait_for_route(TEMPLATE_TOPIC)
            self._wait_for_first_answer()
            self.start_s = time.perf_counter() - begin
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._server = self._name_server = None

    def wait_for_route(self, topic: str) -> None:
        """Returns when clients can find the topic. Raises BenchmarkError when they cannot for a minute."""
        if self._name_server is None:
            raise BenchmarkError(f"the name server of {self.name} is not running")
        deadline = time.monotonic() + ROUTE_LIMIT_S
        while not has_route(self._name_server.port, topic):
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self.name} does not register {topic} within {ROUTE_LIMIT_S:.0f} s")
            time.sleep(POLL_S)

    def _process(self, settings: Path) -> ServerProcess:
        every, log_path = cores().every, self._log_path("broker")
        if self._contender.heap is not None:
            heap = self._contender.heap
            return rocketmq.broker(settings, port=self.port, heap=heap, cores=every, log_path=log_path)
        return ServerProcess(
            "Fusee's broker",
            [
                *(sys.executable, *self._python_options, "-m", "fusee", "broker"),
                *("-c", str(settings), "--log-level", "warning"),
            ],
            port=self.port,
            cores=every,
            log_path=log_path,
            cwd=REPOSITORY,
            environment=self._environment,
            stop_limit_s=STOP_LIMIT_S,
        )

    def _wait_for_first_answer(self) -> None:
        deadline = time.monotonic() + FIRST_ANSWER_LIMIT_S
        answer = "none"
        while time.monotonic() < deadline:
            try:
                code = send_once(self.port, TOPIC)
            except BenchmarkError as error:
                answer = str(error)
            else:
                if code == 0:
                    return
                answer = f"code {code}"
            time.sleep(POLL_S)
        raise BenchmarkError(f"{self.name} acknowledged no message within {FIRST_ANSWER_LIMIT_S:.0f} s: {answer}")

    def _log_path(self, program: str) -> Path:
        who = self._contender.heap or OURS
        return self._plan.logs / f"{program}-{who}-{self._flush}.log"


def only(running: RunningBroker, all_running: Iterable[RunningBroker]) -> None:
    """Pauses every broker but this one."""
    for one in all_running:
        if one is not running:
            one.server.pause()
    running.server.resume()


def need_space(plan: Plan, gigabytes: float) -> None:
    """Raises BenchmarkError when the disk of the build folder has less than this."""
    plan.build.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(plan.build).free / 1e9
    if free < gigabytes:
        raise BenchmarkError(f"{plan.build} has {free:.0f} GB free; the stores of the brokers need {gigabytes:.0f}")


def memory_folder(gigabytes: float) -> Path | None:
    """A folder in memory with room for so much, beside what programs need; None where there is none."""
    folder = Path("/dev/shm")
    try:
        free = shutil.disk_usage(folder).free / 1e9
    except OSError:
        return None
    return folder if min(free, available_mb() / 1e3 - BESIDE_HEAP_MB / 1e3) >= gigabytes else None


def say(text: str) -> None:
    """A line about progress: these benchmarks take minutes."""
    print(f"  {text}", file=sys.stderr, flush=True)


def _settings(port: int, name_server_port: int, store: Path, flush: str) -> str:
    """The file of both brokers: RocketMQ's names and defaults, loopback only."""
    values = {
        "brokerClusterName": "BenchmarkCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "namesrvAddr": f"127.0.0.1:{name_server_port}",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(free_port()),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "autoCreateTopicEnable": "true",
        "flushDiskType": flush,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def fusee_name_server(folder: Path, log_path: Path) -> ServerProcess:
    """A name server of ours, not started yet."""
    port = free_port()
    return ServerProcess(
        "Fusee's name server",
        [
            *(sys.executable, "-m", "fusee", "namesrv", "--listen", f"127.0.0.1:{port}"),
            *("--kv-path", str(folder / "kvConfig.json"), "--log-level", "warning"),
        ],
        port=port,
        cores=cores().every,
        log_path=log_path,
        cwd=REPOSITORY,
    )


def free_broker_port() -> int:
    """A port that is free together with the fast one two below it."""
    for _ in range(PORT_TRIES):
        port = free_port()
        with suppress(OSError), socket.socket() as fast:
            fast.bind(("127.0.0.1", port - 2))
            return port
    raise BenchmarkError("no two free ports with a distance of two were found on 127.0.0.1")
