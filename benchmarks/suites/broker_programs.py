"""Broker under the Java benchmark programs: RocketMQ's own Producer, BatchProducer and Consumer, beside its own broker.

A program says how many messages it moved per second over its last nine seconds, and only once it has run for ten. The
producers are read some seconds later than that, when their own code is compiled; the consumer at its first report, so
that the backlog it drains, stored before, need not be larger. Program and broker share every core, the same for all.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.broker_frames import BATCH_MESSAGES, BODY_BYTES, batch_frames, queue_depths, rewind
from benchmarks.brokers import PLACEMENT, TOPIC, RunningBroker, contenders, need_space, only, say
from benchmarks.errors import BenchmarkError
from benchmarks.frames import write_frame_file
from benchmarks.interleaving import interleaved
from benchmarks.loadgen import LoadGenerator, load_generator
from benchmarks.machine import cores
from benchmarks.peers import rocketmq
from benchmarks.programs import REPORT_SPAN_S, Reported, run_program
from benchmarks.results import OURS, Findings, Row, beside_better, figure
from benchmarks.suites.namesrv import Shape

if TYPE_CHECKING:
    from benchmarks.plan import Plan

TITLE: Final = "Broker under RocketMQ's benchmark programs"
COMMAND: Final = "python -m benchmarks --only broker-programs"

BACKLOG_TOPIC: Final = "BenchmarkBacklog"
BACKLOG_QUEUES: Final = 8
BACKLOG_SHAPE: Final = Shape(4, 8)
FILL_LIMIT_S: Final = 180.0
# With its own clients, which take most of the cores, a broker must be no worse off with us.
RATIO_MIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Program:
    """One benchmark program and its options."""

    name: str
    what: str
    options: tuple[str, ...]
    is_consumer: bool


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations and sizes of one run of this benchmark."""

    rounds: int
    read_after_s: float
    backlog: int
    space_gb: float


FULL_PACE: Final = Pace(rounds=3, read_after_s=15.0, backlog=3_000_000, space_gb=40.0)
QUICK_PACE: Final = Pace(rounds=1, read_after_s=0.0, backlog=1_000_000, space_gb=8.0)

_SIZE: Final = ("-s", str(BODY_BYTES))
PROGRAMS: Final = (
    Program("Producer", "64 threads", ("-w", "64", *_SIZE), False),
    Program("BatchProducer", "4 threads, batches of 32", ("-w", "4", "-b", str(BATCH_MESSAGES), *_SIZE), False),
    Program("Consumer", "20 threads", ("-w", "20"), True),
)


def run(plan: Plan) -> Findings:
    """Every program against every broker that can be started."""
    pace = QUICK_PACE if plan.quick else FULL_PACE
    need_space(plan, pace.space_gb)
    taking_part, notes = contenders(plan)
    if len(taking_part) == 1 and taking_part[0].name == OURS:
        raise BenchmarkError("; ".join(notes))
    generator = load_generator(plan.build, cores=cores().every)
    bench = _Bench(plan, pace, generator)
    with ExitStack() as stack:
        running: list[RunningBroker] = []
        for one in taking_part:
            running.append(stack.enter_context(RunningBroker(one, plan)))
            running[-1].server.pause()
        producers = [bench.row(program, running) for program in PROGRAMS if not program.is_consumer]
        for broker in running:
            only(broker, running)
            bench.store_backlog(broker)
        consumers = [bench.row(program, running) for program in PROGRAMS if program.is_consumer]
    return Findings([*producers, *consumers], notes + bench.notes, PLACEMENT)


class _Bench:
    """Runs one program at a time against one broker while the others are paused."""

    def __init__(self, plan: Plan, pace: Pace, generator: LoadGenerator) -> None:
        self.notes: list[str] = []
        self._plan = plan
        self._pace = pace
        self._generator = generator
        self._groups = 0
        self._backlog_frames = plan.frames / "broker-backlog"
        write_frame_file(self._backlog_frames, batch_frames(BACKLOG_TOPIC, queues=BACKLOG_QUEUES))

    def row(self, program: Program, running: list[RunningBroker]) -> Row:
        turns = {one.name: partial(self._reported, program, one, running) for one in running}
        measured = interleaved(turns, self._pace.rounds)
        figures = {
            name: figure(
                [one.per_second for one in reports], server_cpu_us=median(one.broker_cpu_us for one in reports)
            )
            for name, reports in measured.items()
        }
        row = Row(f"{program.name}, {program.what}", "messages/s", True, figures, [], COMMAND)
        return beside_better(row, RATIO_MIN)

    def store_backlog(self, broker: RunningBroker) -> None:
        """Sends batches until there is more than a consumer drains before it reports."""
        deadline = time.monotonic() + FILL_LIMIT_S
        stored = 0
        while stored < self._pace.backlog:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{broker.name} did not store {self._pace.backlog} messages in time")
            self._generator.run(
                port=broker.port,
                frames=self._backlog_frames,
                connections=BACKLOG_SHAPE.connections,
                outstanding=BACKLOG_SHAPE.outstanding,
                warm_up_s=0.0,
                record_s=1.0,
                server_pid=broker.server.pid,
                expected_code=0,
            )
            stored = sum(queue_depths(broker.port, BACKLOG_TOPIC, queues=BACKLOG_QUEUES))
        say(f"{broker.name}: {stored} messages stored for the consumer")

    def _reported(self, program: Program, broker: RunningBroker, running: list[RunningBroker]) -> Reported:
        only(broker, running)
        options = [*program.options, "-n", broker.name_server_address, "-ri", "500"]
        topic = BACKLOG_TOPIC if program.is_consumer else TOPIC
        if program.is_consumer:
            self._groups += 1
            group = f"benchmark_consumer_{self._groups}"
            rewind(broker.port, BACKLOG_TOPIC, group, queues=BACKLOG_QUEUES)
            options += ["-g", group]
        broker.wait_for_route(topic)
        home = self._plan.results / "programs"
        home.mkdir(parents=True, exist_ok=True)
        printed = self._plan.logs / f"{program.name}.log"
        command = rocketmq.program(program.name, *options, "-t", topic, home=home)
        read_after_s = 0.0 if program.is_consumer else self._pace.read_after_s
        try:
            reported = run_program(command, printed, broker.server.pid, read_after_s)
        except BenchmarkError as error:
            raise BenchmarkError(f"{broker.name}, {program.name}: {error}") from error
        say(f"{broker.name}, {program.name}: {reported.per_second:.0f} messages/s")
        if program.is_consumer and reported.per_second * (REPORT_SPAN_S + 1.0) > 0.95 * self._pace.backlog:
            self.notes.append(f"{broker.name}: the consumer may have drained the backlog, and be faster than it says")
        return reported
