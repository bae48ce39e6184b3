"""Clients beside each other on one broker: ours, Java's benchmark programs, the C++ client by its Python binding.

The broker is Fusee's, the same for all, and shares every core with one client at a time. Figures are of the last nine
seconds of a client that is warm. The consumers drain the same backlog, each in a new group. Producers of batches fill a
disk faster than it writes, and it is not the disk that is to be compared: each of their runs has a broker of its own,
whose store is in memory where there is enough of it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.broker_frames import BATCH_MESSAGES, BODY_BYTES, batch_frames, queue_depths, rewind
from benchmarks.brokers import PLACEMENT, TOPIC, Contender, RunningBroker, memory_folder, need_space, say
from benchmarks.errors import BenchmarkError
from benchmarks.frames import write_frame_file
from benchmarks.interleaving import interleaved
from benchmarks.loadgen import load_generator
from benchmarks.machine import cores
from benchmarks.peers import rocketmq
from benchmarks.programs import REPORT_SPAN_S, Reported, run_program
from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from benchmarks.suites.namesrv import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.plan import Plan

TITLE: Final = "Clients on one broker"
COMMAND: Final = "python -m benchmarks --only clients"

JAVA: Final = "java"
CPP: Final = "c++"
CPP_REQUIREMENT: Final = "rocketmq==0.4.4"
CPP_NOTE: Final = (
    "with several threads a few sends of c++ fail inside the client, with any broker (no route info of this topic); "
    "they are made again"
)
_ON_DISK: Final = "batches: the store was on disk, for lack of memory"
BACKLOG_TOPIC: Final = "BenchmarkBacklog"
BACKLOG_QUEUES: Final = 8
FILL_LIMIT_S: Final = 180.0
MEMORY_RATIO_MIN: Final = 5.0
# As large as automatic batches become here.
LARGE_BATCH_MESSAGES: Final = 128
_REPOSITORY: Final = Path(__file__).parents[2]
_SIZE: Final = ("-s", str(BODY_BYTES))
# Enough under way that client and broker need not wait for each other.
_CALLED_BACK: Final = ("-w", "4096", "--callback")
_AWAITED: Final = ("-w", "1024")
# What a producer of batches may store in the seconds of its run.
_MEMORY_GB: Final = 10.0


@dataclass(frozen=True, slots=True)
class Work:
    """One thing that clients do; by client, its program and options."""

    name: str
    programs: dict[str, tuple[str, ...]]
    ratio_min: float | None
    is_consumer: bool = False
    is_in_memory: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations and sizes of one run of this benchmark."""

    rounds: int
    read_after_s: float
    java_read_after_s: float
    """Java's compiler takes long on a machine whose cores are busy, and its slow seconds should not count."""
    backlog: int
    space_gb: float


FULL_PACE: Final = Pace(rounds=2, read_after_s=12.0, java_read_after_s=25.0, backlog=4_000_000, space_gb=40.0)
QUICK_PACE: Final = Pace(rounds=1, read_after_s=0.0, java_read_after_s=0.0, backlog=1_000_000, space_gb=8.0)


def _sends(in_flight: int) -> Work:
    workers = ("-w", str(in_flight), *_SIZE)
    programs: dict[str, tuple[str, ...]] = {
        OURS: ("fusee_producer", *workers),
        JAVA: ("Producer", *workers),
        CPP: ("send", *workers),
    }
    return Work(f"sends, {in_flight} in flight", programs, 1.0 if in_flight != 16 else None)


def _batches(how: str, options: tuple[str, ...], messages: int, ratio_min: float | None) -> Work:
    programs = {
        OURS: ("fusee_producer", "--auto-batch", *options, *_SIZE),
        JAVA: ("BatchProducer", "-w", "4", "-b", str(messages), *_SIZE),
    }
    name = f"batches: automatic here, {how}; of {messages} by hand in Java's BatchProducer"
    return Work(name, programs, ratio_min, is_in_memory=True)


WORKS: Final = (
    _sends(1),
    _sends(16),
    _sends(64),
    _batches("by callback", _CALLED_BACK, BATCH_MESSAGES, 1.5),
    _batches("by callback", _CALLED_BACK, LARGE_BATCH_MESSAGES, None),
    _batches("awaited", _AWAITED, BATCH_MESSAGES, None),
    Work(
        "consume, iterator here",
        {OURS: ("fusee_consumer",), JAVA: ("Consumer", "-w", "20"), CPP: ("consume",)},
        1.0,
        is_consumer=True,
    ),
    Work(
        "consume, listener here",
        {OURS: ("fusee_consumer", "--listener"), JAVA: ("Consumer", "-w", "20")},
        1.0,
        is_consumer=True,
    ),
)


def run(plan: Plan) -> Findings:
    """Every client that can be started, with every work."""
    pace = QUICK_PACE if plan.quick else FULL_PACE
    need_space(plan, pace.space_gb)
    notes: list[str] = []
    peers = [OURS, *(name for name, ready in ((JAVA, _java_ready), (CPP, _cpp_python)) if _can(name, ready, notes))]
    rows: list[Row] = []
    memory: dict[str, list[float]] = {}
    with RunningBroker(Contender(OURS), plan) as broker:
        bench = _Bench(plan, pace, broker, notes)
        for work in WORKS:
            if work.is_consumer:
                bench.store_backlog()
            report = bench.reported_in_memory if work.is_in_memory else bench.reported
            turns = {name: partial(report, work, name) for name in peers if name in work.programs}
            turned = interleaved(turns, pace.rounds)
            measured = {name: kept for name, reports in turned.items() if (kept := [one for one in reports if one])}
            figures = {
                name: figure(
                    [one.per_second for one in reports],
                    server_cpu_us=median(one.program_cpu_us for one in reports),
                    note=f"{median(one.program_mb for one in reports):.0f} MB",
                )
                for name, reports in measured.items()
            }
            for name, reports in measured.items():
                memory.setdefault(name, []).extend(one.program_mb for one in reports)
            targets = [] if work.ratio_min is None else [Target(JAVA, work.ratio_min)]
            rows.append(judged(Row(work.name, "messages/s", True, figures, targets, COMMAND)))
    most = {name: figure([max(values)]) for name, values in memory.items()}
    rows.append(
        judged(Row("memory at its most", "MB", False, most, [Target(JAVA, MEMORY_RATIO_MIN)], COMMAND)),
    )
    notes.append("CPU time per message, in brackets, is the client's own")
    if CPP in peers:
        notes.append(CPP_NOTE)
    return Findings(rows, notes, PLACEMENT)


class _Bench:
    """Runs one client at a time."""

    def __init__(self, plan: Plan, pace: Pace, broker: RunningBroker, notes: list[str]) -> None:
        self._plan = plan
        self._pace = pace
        self._broker = broker
        self._notes = notes
        self._groups = 0
        self._is_stored = False

    def store_backlog(self) -> None:
        """Sends batches until there is more than a consumer drains before it reports."""
        if self._is_stored:
            return
        self._is_stored = True
        frames = self._plan.frames / "client-backlog"
        write_frame_file(frames, batch_frames(BACKLOG_TOPIC, queues=BACKLOG_QUEUES))
        generator = load_generator(self._plan.build, cores=cores().every)
        shape = Shape(4, 8)
        deadline = time.monotonic() + FILL_LIMIT_S
        stored = 0
        while stored < self._pace.backlog:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"the broker did not store {self._pace.backlog} messages in time")
            generator.run(
                port=self._broker.port,
                frames=frames,
                connections=shape.connections,
                outstanding=shape.outstanding,
                warm_up_s=0.0,
                record_s=1.0,
                server_pid=self._broker.server.pid,
                expected_code=0,
            )
            stored = sum(queue_depths(self._broker.port, BACKLOG_TOPIC, queues=BACKLOG_QUEUES))
        say(f"{stored} messages stored for the consumers")

    def reported_in_memory(self, work: Work, client: str) -> Reported | None:
        """The same on a broker of its own whose store is in memory; on disk, with a note, where there is too little."""
        folder = memory_folder(_MEMORY_GB)
        if folder is None and _ON_DISK not in self._notes:
            self._notes.append(_ON_DISK)
        with RunningBroker(Contender(OURS), self._plan, within=folder) as broker:
            return _Bench(self._plan, self._pace, broker, self._notes).reported(work, client)

    def reported(self, work: Work, client: str) -> Reported | None:
        """What the client did; None when it is the C++ one and could not, which it cannot always."""
        topic = BACKLOG_TOPIC if work.is_consumer else TOPIC
        self._broker.wait_for_route(topic)
        program, *options = work.programs[client]
        options += ["-n", self._broker.name_server_address, "-t", topic]
        if work.is_consumer:
            self._groups += 1
            group = f"benchmark_client_{self._groups}"
            rewind(self._broker.port, BACKLOG_TOPIC, group, queues=BACKLOG_QUEUES)
            options += ["-g", group]
        command = self._command(client, program, options)
        warm_s = self._pace.java_read_after_s if client == JAVA else self._pace.read_after_s
        read_after_s = 0.0 if work.is_consumer else warm_s
        try:
            reported = run_program(command, self._plan.logs / f"{client}.log", self._broker.server.pid, read_after_s)
        except BenchmarkError as error:
            if client != CPP:
                raise BenchmarkError(f"{client}, {work.name}: {error}") from error
            self._notes.append(f"{client}, {work.name}: no figure: {str(error)[:120]}")
            return None
        say(
            f"{client}, {work.name}: {reported.per_second:.0f} messages/s, {reported.program_cpu_us:.1f} us, "
            f"{reported.program_mb:.0f} MB"
        )
        if work.is_consumer and reported.per_second * (REPORT_SPAN_S + 1.0) > 0.95 * self._pace.backlog:
            self._notes.append(f"{client}: the consumer may have drained the backlog, and be faster than it says")
        return reported

    def _command(self, client: str, program: str, options: list[str]) -> list[str]:
        if client == OURS:
            return [sys.executable, "-m", f"benchmarks.clients.{program}", *options]
        if client == CPP:
            return [str(_cpp_python()), str(_REPOSITORY / "benchmarks/clients/cpp_client.py"), *options]
        home = self._plan.results / "programs"
        home.mkdir(parents=True, exist_ok=True)
        return rocketmq.program(program, *options, "-ri", "500", home=home)


def _can(name: str, ready: Callable[[], object], notes: list[str]) -> bool:
    try:
        ready()
    except BenchmarkError as error:
        notes.append(f"{name} took no part: {error}")
        return False
    return True


def _java_ready() -> None:
    rocketmq.program("Producer", home=Path())


def _cpp_python() -> Path:
    """The Python of an environment with the C++ client, made once. Raises BenchmarkError when it cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fusee-bench"
    stamp = hashlib.sha256(f"{CPP_REQUIREMENT} {sys.version} {sys.executable}".encode()).hexdigest()[:12]
    folder = cache / f"cpp-{stamp}"
    python = folder / "bin/python"
    complete = folder / "complete"
    if complete.exists():
        return python
    cache.mkdir(parents=True, exist_ok=True)
    try:
        for command in (
            [sys.executable, "-m", "venv", "--copies", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", CPP_REQUIREMENT],
            [str(python), "-c", "import rocketmq.client"],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, cwd=cache)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise BenchmarkError(f"{CPP_REQUIREMENT} cannot be used here: {str(detail).strip()[-300:]}") from error
    complete.touch()
    return python
