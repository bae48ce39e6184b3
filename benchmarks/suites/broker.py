"""Broker: sends, batches, durable sends and pulls per second, memory, start and idle CPU, beside Apache RocketMQ.

The Java broker takes part with two heaps, and each target is set against whichever did better in that row. Brokers are
started one after another, each while the others are paused; then they take turns under the load, row by row. Pulls
are measured first, close behind the end of the log, where both brokers give whole answers; durable sends last, on
brokers of their own, because a Java broker decides at its start how it flushes.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.broker_frames import (
    BATCH_MESSAGES,
    BODY_BYTES,
    PULL_MESSAGES,
    batch_frames,
    pull_frames,
    pulled_depth,
    queue_depths,
    send_frames,
)
from benchmarks.brokers import (
    ASYNC_FLUSH,
    PLACEMENT,
    SYNC_FLUSH,
    TOPIC,
    Contender,
    RunningBroker,
    contenders,
    need_space,
    only,
    say,
)
from benchmarks.errors import BenchmarkError, DisturbedError
from benchmarks.frames import write_frame_file
from benchmarks.interleaving import interleaved
from benchmarks.loadgen import BUSY_GENERATOR_CORES, LoadGenerator, Measurement, load_generator
from benchmarks.machine import cores
from benchmarks.process_usage import cpu_s, resident_mb
from benchmarks.results import Findings, Row, beside_better, figure, judged
from benchmarks.suites.namesrv import Shape
from benchmarks.tables import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.plan import Plan
    from benchmarks.results import Figure

TITLE: Final = "Broker"
COMMAND: Final = "python -m benchmarks --only broker"

# A run that other processes disturb, or that a busy machine makes fail, is made again, at most this often.
ATTEMPTS: Final = 3
# More than elsewhere: the kernel's threads that write to the disk are counted as others.
DISTURBED_CORES: Final = 0.35
FILL_LIMIT_S: Final = 120.0

MEMORY_RATIO: Final = 10.0
START_RATIO: Final = 10.0
IDLE_RATIO: Final = 10.0


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of request, the shapes it is measured at, and how many times as fast as the peer it must be."""

    name: str
    messages: int
    shapes: tuple[Shape, ...]
    ratio_min: float


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations of one run of this benchmark."""

    rounds: int
    warm_up_s: float
    record_s: float
    settle_s: float
    idle_settle_s: float
    idle_s: float
    resume_s: float
    space_gb: float


FULL_PACE: Final = Pace(
    rounds=3, warm_up_s=1.0, record_s=3.0, settle_s=3.0, idle_settle_s=8.0, idle_s=10.0, resume_s=0.5, space_gb=40.0
)
QUICK_PACE: Final = Pace(
    rounds=1, warm_up_s=0.1, record_s=0.4, settle_s=0.5, idle_settle_s=0.5, idle_s=1.0, resume_s=0.05, space_gb=4.0
)

SENDS: Final = Work("send", 1, (Shape(50, 1), Shape(1, 64), Shape(8, 32)), 1.8)
BATCHES: Final = Work("send batches of 32", BATCH_MESSAGES, (Shape(4, 8),), 1.5)
PULLS: Final = Work("pull 32", PULL_MESSAGES, (Shape(1, 1), Shape(8, 1), Shape(8, 4)), 1.0)
DURABLE_SENDS: Final = Work("send, SYNC_FLUSH", 1, (Shape(50, 1), Shape(8, 32)), 1.5)


def run(plan: Plan) -> Findings:
    """Every row, with all brokers that can be started."""
    pace = QUICK_PACE if plan.quick else FULL_PACE
    need_space(plan, pace.space_gb)
    taking_part, notes = contenders(plan)
    generator = load_generator(plan.build, cores=cores().every)
    if generator.note:
        notes.append(generator.note)
    bench = _Bench(plan, pace, generator)
    sends, others = bench.with_async_flush(taking_part)
    rows = [*sends, *bench.with_sync_flush(taking_part), *others]
    return Findings(rows, notes + bench.warnings(rows), PLACEMENT)


class _Bench:
    """Runs the load against one broker at a time while the others are paused."""

    def __init__(self, plan: Plan, pace: Pace, generator: LoadGenerator) -> None:
        self._plan = plan
        self._pace = pace
        self._generator = generator
        self._failures: list[str] = []
        self._frames: dict[str, Path] = {}
        frames = {SENDS: send_frames(TOPIC), BATCHES: batch_frames(TOPIC), PULLS: pull_frames(TOPIC)}
        for work, content in frames.items():
            self._frames[work.name] = plan.frames / f"broker-{work.name.replace(' ', '-')}"
            write_frame_file(self._frames[work.name], content)
        self._frames[DURABLE_SENDS.name] = self._frames[SENDS.name]

    def with_async_flush(self, taking_part: list[Contender]) -> tuple[list[Row], list[Row]]:
        """Sends and batches; then pulls, memory, start and idle CPU."""
        starts: dict[str, list[tuple[float, float]]] = {one.name: [] for one in taking_part}
        turns = {one.name: partial(self._started_once, one) for one in taking_part}
        for name, measured in interleaved(turns, self._pace.rounds - 1).items():
            starts[name] += measured
        with ExitStack() as stack:
            running: list[RunningBroker] = []
            for one in taking_part:
                broker = stack.enter_context(RunningBroker(one, self._plan, flush=ASYNC_FLUSH))
                starts[one.name].append((broker.start_s, self._idle_percent(broker)))
                broker.server.pause()
                running.append(broker)
            for broker in running:
                only(broker, running)
                self._warm_up(broker, (SENDS, BATCHES))
                self._fill(broker)
                self._warm_up(broker, (PULLS,))
            pulls = self._rows(PULLS, running)
            sends = [*self._rows(SENDS, running), *self._rows(BATCHES, running)]
            memory = {broker.name: resident_mb(broker.server.pid) for broker in running}
        return sends, [
            *pulls,
            self._row("memory after load", "MB", {name: [one[0]] for name, one in memory.items()}, MEMORY_RATIO),
            self._row("of it not mapped files", "MB", {name: [one[1]] for name, one in memory.items()}, None),
            self._row("start to first acknowledged message", "s", _column(starts, 0), START_RATIO),
            self._row("idle", "% of a core", _column(starts, 1), IDLE_RATIO),
        ]

    def with_sync_flush(self, taking_part: list[Contender]) -> list[Row]:
        """Sends that are acknowledged when they are on the disk."""
        with ExitStack() as stack:
            running: list[RunningBroker] = []
            for one in taking_part:
                broker = stack.enter_context(RunningBroker(one, self._plan, flush=SYNC_FLUSH))
                self._warm_up(broker, (DURABLE_SENDS,))
                broker.server.pause()
                running.append(broker)
            return self._rows(DURABLE_SENDS, running)

    def warnings(self, rows: list[Row]) -> list[str]:
        """Runs that failed, figures the load generator may have limited, and how busy others kept the machine."""
        lines = list(dict.fromkeys(self._failures))
        figures = [(row, name, one) for row in rows for name, one in row.figures.items() if one.other_cores is not None]
        limited = [
            f"{row.name} ({name})" for row, name, one in figures if (one.generator_cores or 0.0) > BUSY_GENERATOR_CORES
        ]
        if limited:
            lines.append(f"the load generator was the limit of: {', '.join(limited)}")
        others = [one.other_cores or 0.0 for _, _, one in figures]
        if others and max(others) > DISTURBED_CORES:
            lines.append(
                f"other processes used up to {max(others):.2f} cores (median {median(others):.2f}) during the runs: "
                "measure again on an idle machine"
            )
        return lines

    def _started_once(self, contender: Contender) -> tuple[float, float]:
        with RunningBroker(contender, self._plan) as broker:
            return broker.start_s, self._idle_percent(broker)

    def _idle_percent(self, broker: RunningBroker) -> float:
        """CPU of a broker that nobody asks anything, when the work of starting is over."""
        time.sleep(self._pace.idle_settle_s)
        begin, before_s = time.perf_counter(), cpu_s(broker.server.pid)
        time.sleep(self._pace.idle_s)
        used_s = cpu_s(broker.server.pid) - before_s
        percent = 100.0 * used_s / (time.perf_counter() - begin)
        say(f"{broker.name}: first message acknowledged after {broker.start_s:.2f} s, idle {percent:.2f} % of a core")
        return percent

    def _warm_up(self, broker: RunningBroker, works: Iterable[Work]) -> None:
        for work in works:
            for shape in work.shapes:
                with suppress(DisturbedError):
                    self._load(broker, work, shape, record_s=self._pace.settle_s)

    def _fill(self, broker: RunningBroker) -> None:
        """Single sends until every queue holds what the pulls ask for, next to the end of the log."""
        deadline = time.monotonic() + FILL_LIMIT_S
        while min(queue_depths(broker.port, TOPIC)) < pulled_depth():
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{broker.name} did not take {pulled_depth()} messages per queue in time")
            self._load(broker, SENDS, SENDS.shapes[-1], record_s=self._pace.settle_s)

    def _rows(self, work: Work, running: list[RunningBroker]) -> list[Row]:
        return [self._load_row(work, shape, running) for shape in work.shapes]

    def _load_row(self, work: Work, shape: Shape, running: list[RunningBroker]) -> Row:
        turns = {one.name: partial(self._undisturbed, one, work, shape, running) for one in running}
        measured = interleaved(turns, self._pace.rounds)
        figures = {name: _figure(runs, work.messages) for name, runs in measured.items()}
        row = Row(f"{work.name}, {shape}", "messages/s", True, figures, [], COMMAND)
        return _told(beside_better(row, work.ratio_min))

    def _row(self, name: str, unit: str, values: dict[str, list[float]], ratio_min: float | None) -> Row:
        figures = {who: figure(all_values) for who, all_values in values.items()}
        row = Row(name, unit, False, figures, [], COMMAND)
        return _told(judged(row) if ratio_min is None else beside_better(row, ratio_min))

    def _undisturbed(
        self, broker: RunningBroker, work: Work, shape: Shape, running: list[RunningBroker]
    ) -> Measurement:
        """A run in which others were idle, or the least disturbed of a few. Raises when every one fails."""
        runs: list[Measurement] = []
        only(broker, running)
        for attempt in range(ATTEMPTS):
            if not self._plan.quick:
                # What an earlier run left to be written must not slow this one.
                os.sync()
            time.sleep(self._pace.resume_s)
            try:
                runs.append(self._load(broker, work, shape))
            except BenchmarkError as error:
                self._failures.append(f"a run was made again: {error}")
                if attempt == ATTEMPTS - 1 and not runs:
                    raise
                continue
            if self._plan.quick or runs[-1].other_cores <= DISTURBED_CORES:
                break
        return min(runs, key=lambda one: one.other_cores)

    def _load(self, broker: RunningBroker, work: Work, shape: Shape, record_s: float | None = None) -> Measurement:
        try:
            measured = self._generator.run(
                port=broker.port,
                frames=self._frames[work.name],
                connections=shape.connections,
                outstanding=shape.outstanding,
                warm_up_s=self._pace.warm_up_s,
                record_s=record_s or self._pace.record_s,
                server_pid=broker.server.pid,
                expected_code=0,
            )
            if work is PULLS:
                _check_answers(measured)
        except BenchmarkError as error:
            raise type(error)(f"{broker.name}, {work.name}, {shape}: {error}") from error
        return measured


def _check_answers(measured: Measurement) -> None:
    """Every answer must have had all its messages: a broker that gives fewer would look faster."""
    size = measured.megabytes_in * 1e6 / measured.requests
    if size < 0.95 * PULL_MESSAGES * BODY_BYTES:
        raise BenchmarkError(f"answers had {size:.0f} bytes, which are not {PULL_MESSAGES} messages")


def _column(starts: dict[str, list[tuple[float, float]]], number: int) -> dict[str, list[float]]:
    return {name: [one[number] for one in measured] for name, measured in starts.items()}


def _figure(measured: list[Measurement], messages: int) -> Figure:
    return figure(
        [one.per_second * messages for one in measured],
        server_cpu_us=median(one.server_cpu_us / messages for one in measured),
        server_cores=median(one.server_cores for one in measured),
        p99_us=median(one.p99_us for one in measured),
        generator_cores=median(one.generator_cores for one in measured),
        other_cores=median(one.other_cores for one in measured),
    )


def _told(row: Row) -> Row:
    """The row, after a line about it."""
    verdicts = ", ".join(
        f"{one.ratio:.2f}x of {one.target.ratio_min:g}x {'met' if one.met else 'MISSED'}" for one in row.verdicts
    )
    figures = ", ".join(f"{name} {shortened(one.median)}" for name, one in row.figures.items())
    say(f"{row.name} ({row.unit}): {figures}{f': {verdicts}' if verdicts else ''}")
    return row
