"""Name server: route queries and minimal requests per second, beside the uvloop echo and Apache RocketMQ.

All servers run during the whole benchmark and take turns under the load. Ours and the echoes have one core,
the load generator another. Apache RocketMQ is shown twice, the same warm process with every core (shared with the
load) and with the one core that ours has; the target is set against its better form, every core.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.cluster import ANSWER_LIMIT_S, TOPIC, RegisteredCluster, exchange
from benchmarks.errors import BenchmarkError, DisturbedError
from benchmarks.frames import binary_header, frame, json_header, write_frame_file
from benchmarks.interleaving import interleaved
from benchmarks.loadgen import (
    BUSY_GENERATOR_CORES,
    DISTURBED_CORES,
    LoadGenerator,
    Measurement,
    load_generator,
)
from benchmarks.machine import cores
from benchmarks.peers import rocketmq
from benchmarks.plan import REPOSITORY
from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from benchmarks.server_process import ServerProcess, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.machine import Cores
    from benchmarks.plan import Plan
    from benchmarks.results import Figure

TITLE: Final = "Name server"
COMMAND: Final = "python -m benchmarks --only namesrv"

ECHO_FRAMES: Final = "frame echo"
ECHO_BYTES: Final = "byte echo"
ROCKETMQ: Final = f"RocketMQ {rocketmq.VERSION}"
ROCKETMQ_ONE_CORE: Final = "same, one core"

GET_ROUTE: Final = 105
GET_KV_CONFIG: Final = 101
UNKNOWN_CODE: Final = 9999
REQUEST_CODE_NOT_SUPPORTED: Final = 3
QUERY_NOT_FOUND: Final = 22

# A run that other processes disturb is made again, at most this often.
ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of request, the code a name server answers it with, and the shapes it is measured at."""

    name: str
    request: bytes
    request_code: int
    answer_code: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """How many connections, how many requests outstanding on each."""

    connections: int
    outstanding: int

    def __str__(self) -> str:
        return f"c={self.connections} w={self.outstanding}"


@dataclass(frozen=True, slots=True)
class Contender:
    """A server that takes part, the cluster registered there when it is a name server, cores to move it to."""

    name: str
    server: ServerProcess
    cluster: RegisteredCluster | None
    cores: frozenset[int] | None = None

    def expected_code(self, work: Work) -> int:
        if self.cluster is not None:
            return work.answer_code
        return work.request_code if self.name == ECHO_BYTES else 0


MANY: Final = Shape(50, 1)
PIPELINED: Final = Shape(1, 64)
BOTH: Final = Shape(8, 32)

# The targets are about fifty connections, route queries and the smallest question that is served; everything else is
# shown beside the same peers.
TARGETS: Final = {
    ("route", MANY): [Target(ECHO_FRAMES, 0.5), Target(ECHO_BYTES, 0.5), Target(ROCKETMQ, 2.0)],
    ("absent key", MANY): [Target(ECHO_FRAMES, 0.5), Target(ECHO_BYTES, 0.5), Target(ROCKETMQ, 2.0)],
}

_ROUTE_FIELDS: Final = {"topic": TOPIC}
_ABSENT_KEY: Final = {"namespace": "BENCHMARK", "key": "absent"}

WORKS: Final = (
    Work("route", frame(json_header(GET_ROUTE, _ROUTE_FIELDS)), GET_ROUTE, 0, (MANY, PIPELINED, BOTH)),
    Work(
        "route, binary header",
        frame(binary_header(GET_ROUTE, _ROUTE_FIELDS), binary=True),
        GET_ROUTE,
        0,
        (MANY, BOTH),
    ),
    Work(
        "absent key",
        frame(json_header(GET_KV_CONFIG, _ABSENT_KEY)),
        GET_KV_CONFIG,
        QUERY_NOT_FOUND,
        (MANY, PIPELINED, BOTH),
    ),
    Work(
        "unknown code",
        frame(json_header(UNKNOWN_CODE)),
        UNKNOWN_CODE,
        REQUEST_CODE_NOT_SUPPORTED,
        (MANY, PIPELINED, BOTH),
    ),
)


def run(plan: Plan) -> Findings:
    """Measures every work at each of its shapes with all contenders that can be started."""
    placement = cores()
    generator = load_generator(plan.build, cores=placement.load)
    notes = [generator.note] if generator.note else []
    with ExitStack() as stack:
        contenders = [
            _started(stack, OURS, _our_server(plan, placement), is_name_server=True),
            _started(stack, ECHO_FRAMES, _echo("frames", plan, placement)),
            _started(stack, ECHO_BYTES, _echo("bytes", plan, placement)),
        ]
        try:
            java = rocketmq.name_server(plan, cores=placement.every)
            everywhere = replace(_started(stack, ROCKETMQ, java, is_name_server=True), cores=placement.every)
            contenders.append(everywhere)
            if placement.server is not None:
                contenders.append(replace(everywhere, name=ROCKETMQ_ONE_CORE, cores=placement.server))
        except BenchmarkError as error:
            notes.append(f"without {ROCKETMQ}: {error}")
        bench = _Bench(plan, generator)
        bench.prepare(contenders)
        rows = [bench.row(work, shape, contenders) for work in WORKS for shape in work.shapes]
    notes += bench.warnings(rows)
    return Findings(rows, notes)


class _Bench:
    """Runs the load against one contender at a time."""

    def __init__(self, plan: Plan, generator: LoadGenerator) -> None:
        self._plan = plan
        self._generator = generator
        self._frames: dict[str, Path] = {}
        for number, work in enumerate(WORKS):
            path = plan.frames / f"namesrv-{number}"
            write_frame_file(path, [work.request])
            self._frames[work.name] = path

    def prepare(self, contenders: list[Contender]) -> None:
        """Checks one answer of each name server to each work, and warms up the Java one."""
        for contender in contenders:
            for work in WORKS:
                if contender.cluster is not None:
                    _check_answer(contender, work)
                shapes = work.shapes if contender.name == ROCKETMQ else ()
                for shape in shapes:
                    with suppress(DisturbedError):
                        self._load(contender, work, shape, record_s=self._plan.settle_s)

    def row(self, work: Work, shape: Shape, contenders: list[Contender]) -> Row:
        """The medians of all contenders for one work at one shape."""
        turns = {one.name: partial(self._undisturbed, one, work, shape) for one in contenders}
        figures = {name: _figure(measured) for name, measured in interleaved(turns, self._plan.repetitions).items()}
        row = Row(
            name=f"{work.name}, {shape}",
            unit="requests/s",
            higher_is_better=True,
            figures=figures,
            targets=TARGETS.get((work.name, shape), []),
            command=COMMAND,
        )
        return judged(row)

    def warnings(self, rows: list[Row]) -> list[str]:
        """Which figures the load generator may have limited, and how busy others kept the machine."""
        limited = [
            f"{row.name} ({name})"
            for row in rows
            for name, one in row.figures.items()
            if (one.generator_cores or 0.0) > BUSY_GENERATOR_CORES and (one.server_cores or 0.0) < BUSY_GENERATOR_CORES
        ]
        lines = [f"the load generator was the limit of: {', '.join(limited)}"] if limited else []
        others = [one.other_cores or 0.0 for row in rows for one in row.figures.values()]
        if max(others) > DISTURBED_CORES:
            lines.append(
                f"other processes used up to {max(others):.2f} cores (median {median(others):.2f}) during the runs: "
                "measure again on an idle machine"
            )
        return lines

    def _undisturbed(self, contender: Contender, work: Work, shape: Shape) -> Measurement:
        """A run in which others were idle, or the least disturbed of a few."""
        runs: list[Measurement] = []
        for attempt in range(ATTEMPTS):
            try:
                runs.append(self._load(contender, work, shape))
            except DisturbedError:
                if attempt == ATTEMPTS - 1 and not runs:
                    raise
                continue
            if self._plan.quick or runs[-1].other_cores <= DISTURBED_CORES:
                break
        return min(runs, key=lambda one: one.other_cores)

    def _load(self, contender: Contender, work: Work, shape: Shape, record_s: float | None = None) -> Measurement:
        contender.server.move_to(contender.cores)
        if contender.cluster is not None:
            contender.cluster.renew()
        try:
            return self._generator.run(
                port=contender.server.port,
                frames=self._frames[work.name],
                connections=shape.connections,
                outstanding=shape.outstanding,
                warm_up_s=self._plan.warm_up_s,
                record_s=record_s or self._plan.record_s,
                server_pid=contender.server.pid,
                expected_code=contender.expected_code(work),
            )
        except BenchmarkError as error:
            raise type(error)(f"{contender.name}, {work.name}, {shape}: {error}") from error


def _started(stack: ExitStack, name: str, server: ServerProcess, *, is_name_server: bool = False) -> Contender:
    stack.enter_context(server)
    cluster = stack.enter_context(RegisteredCluster(server.port)) if is_name_server else None
    return Contender(name, server, cluster)


def name_server_arguments(port: int, plan: Plan) -> list[str]:
    """What follows `python` to run our name server, away from the KV configuration of a real one."""
    kv_path = str(plan.results / "kvConfig.json")
    return ["-m", "fusee", "namesrv", "--listen", f"127.0.0.1:{port}", "--kv-path", kv_path]


def _our_server(plan: Plan, placement: Cores) -> ServerProcess:
    port = free_port()
    return ServerProcess(
        "Fusee's name server",
        [sys.executable, *name_server_arguments(port, plan)],
        port=port,
        cores=placement.server,
        log_path=plan.logs / "fusee-namesrv.log",
        cwd=REPOSITORY,
    )


def _echo(form: str, plan: Plan, placement: Cores) -> ServerProcess:
    port = free_port()
    return ServerProcess(
        f"the uvloop echo of {form}",
        [sys.executable, "-m", "benchmarks.peers.echo", form, str(port)],
        port=port,
        cores=placement.server,
        log_path=plan.logs / f"echo-{form}.log",
        cwd=REPOSITORY,
    )


def _check_answer(contender: Contender, work: Work) -> None:
    with socket.create_connection(("127.0.0.1", contender.server.port), timeout=ANSWER_LIMIT_S) as connection:
        code, body = exchange(connection, work.request)
    if code != work.answer_code:
        raise BenchmarkError(f"{contender.name} answered {work.name} with code {code}, not {work.answer_code}")
    missing = [name for name in ("broker-a", "broker-b") if name.encode() not in body]
    if work.request_code == GET_ROUTE and missing:
        raise BenchmarkError(f"the route from {contender.name} lacks {' and '.join(missing)}: {body[:200]!r}")


def _figure(measured: list[Measurement]) -> Figure:
    return figure(
        [one.per_second for one in measured],
        server_cpu_us=median(one.server_cpu_us for one in measured),
        server_cores=median(one.server_cores for one in measured),
        p99_us=median(one.p99_us for one in measured),
        generator_cores=median(one.generator_cores for one in measured),
        other_cores=median(one.other_cores for one in measured),
    )
