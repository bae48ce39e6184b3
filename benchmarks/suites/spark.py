"""The pipeline on Spark beside Kafka's own source and sink, Parquet, and a Python source that has its batches ready.

Two sessions are up, ours and Kafka's (`peers.kafka` says why its Spark is a release older), and one works at a time.
Both brokers, both sessions and what they start share every core. CPU time per row is that of everybody who took part:
Spark's virtual machine, its Python workers, the broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.broker_frames import BODY_BYTES, batch_frames, queue_depths
from benchmarks.brokers import Contender, RunningBroker, need_space, say
from benchmarks.errors import BenchmarkError
from benchmarks.frames import write_frame_file
from benchmarks.interleaving import interleaved
from benchmarks.loadgen import load_generator
from benchmarks.machine import cores
from benchmarks.page_cache import full_page_cache
from benchmarks.peers.kafka import Kafka, connector_jars
from benchmarks.peers.kafka import python as kafka_python
from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from benchmarks.spark.host import Session, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.plan import Plan

TITLE: Final = "The pipeline on Spark"
COMMAND: Final = "python -m benchmarks --only spark"
PLACEMENT: Final = "nothing pinned: Spark, its workers and the broker share every core"

UNTOLD: Final = "fusee, not told how large messages are"
SENT: Final = "fusee, over the network"
PLAIN: Final = "fusee, checkpoints as Hadoop writes them"
KAFKA: Final = "kafka"
KAFKA_DEFAULTS: Final = "kafka, batches of its default size"
PARQUET: Final = "parquet"
READY: Final = "ready batches"
DROPPED: Final = "Python sink that drops"
FILED: Final = "Python sink that writes files"
TOPIC: Final = "SparkRead"
SHORT_TOPIC: Final = "SparkShort"
FILL_TOPIC: Final = "SparkWrite"
LIVE_TOPIC: Final = "SparkLive"
QUEUES: Final = 4
FILL_LIMIT_S: Final = 180.0
AGE_POINTS: Final = 20


@dataclass(frozen=True, slots=True)
class Pace:
    """Sizes and durations of one run of this benchmark."""

    rounds: int
    rows: int
    """Rows that are read into nothing. A job has fixed costs, which should not decide."""
    short_rows: int
    """Rows that go to Parquet and come from it."""
    written_rows: int
    settle_s: float
    record_s: float
    per_second: int
    space_gb: float


FULL_PACE: Final = Pace(3, 4_000_000, 1_000_000, 1_000_000, 6.0, 16.0, 10_000, 77.0)
QUICK_PACE: Final = Pace(1, 200_000, 100_000, 100_000, 5.0, 6.0, 10_000, 6.0)
# Java's compiler is at work in the first runs: of sinks longest for Kafka's, of small batches longest for ours.
WRITES_BEFORE: Final = 4
STREAMS_BEFORE: Final = 2


class Spent(NamedTuple):
    """One run: rows in a second, and CPU microseconds of everybody per row."""

    per_second: float
    cpu_us: float


class Ages(NamedTuple):
    """One run of micro-batches: how long they took, and how old rows were when their batch was done."""

    duration_ms: float
    age_ms: float
    age_p99_ms: float
    cpu_us: float


def run(plan: Plan) -> Findings:
    """Ours always; Kafka when its broker and its Spark can be had."""
    pace = QUICK_PACE if plan.quick else FULL_PACE
    need_space(plan, pace.space_gb)
    notes: list[str] = []
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="spark-", dir=plan.build))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ours = stack.enter_context(_Ours(plan, pace, folder))
        theirs: _Kafka | None = None
        try:
            theirs = stack.enter_context(_Kafka(plan, pace, folder))
        except BenchmarkError as error:
            notes.append(f"kafka took no part: {error}")
        with ours.told() as told:
            rows = _throughput(pace, ours, told, theirs)
        with ours.plain() as plain:
            rows += _live(pace, ours, plain, theirs)
        notes += [
            f"fusee on Spark {ours.session.version}"
            + (f", kafka on Spark {theirs.session.version}" if theirs is not None else ""),
            f"messages of 1 KiB in {QUEUES} queues, {pace.rows:,} of them; {pace.short_rows:,} for Parquet",
            f"{pace.written_rows:,} are written" + ("" if plan.quick else ", into a page cache that is full and clean"),
            f"one run of each contender before the {pace.rounds} that count"
            + (
                ""
                if plan.quick
                else f", {WRITES_BEFORE} of those that write at least once, {STREAMS_BEFORE} of small batches"
            ),
            "CPU time per row, in brackets, is that of Spark, its Python workers and the broker together",
        ]
    return Findings(rows, notes, PLACEMENT)


class _Side:
    """A broker, and a session that reads and writes it."""

    def __init__(self, plan: Plan, pace: Pace, folder: Path) -> None:
        self.plan = plan
        self.pace = pace
        self.folder = folder
        self.stack = ExitStack()
        self.session: Session
        self.broker_pid = 0

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def timed(self, rows: int, **task: Any) -> Spent:
        """One task with this many rows; it is an error when it moved another number."""
        usage = Usage([self.session.pid, self.broker_pid])
        answer = self.session.do(**task)
        cpu, _ = usage.spent()
        if answer.get("rows", rows) != rows:
            raise BenchmarkError(f"{task}: {answer['rows']} rows came instead of {rows}")
        return Spent(rows / answer["seconds"], cpu * 1e6 / rows)

    def parquet(self, rows: int, **task: Any) -> Spent:
        """A task whose sink is a new folder, which is gone afterwards."""
        target = tempfile.mkdtemp(prefix="parquet-", dir=self.folder)
        try:
            return self.timed(
                rows,
                sink="parquet",
                mode="overwrite",
                sink_options={"path": target, "compression": "uncompressed", "parquet.enable.dictionary": "false"},
                **task,
            )
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def ready(self, rows: int, **task: Any) -> Spent:
        options = {"rows": str(rows), "parts": "2", "size": str(BODY_BYTES), "topic": task.pop("topic", "ready")}
        return self.timed(rows, task="batch", source="ready", options=options, **task)

    def filed(self, rows: int) -> Spent:
        """Bodies into files of a new folder, which stays: memory that is freed costs whoever writes next."""
        return self.ready(rows, **_least(folder=tempfile.mkdtemp(prefix="filed-", dir=self.folder)))

    def producer(self, seconds: int) -> list[str]:
        raise NotImplementedError

    @property
    def live_source(self) -> dict[str, Any]:
        raise NotImplementedError

    def live(self, sink: str) -> Ages:
        """Micro-batches while a producer keeps its rate."""
        pace = self.pace
        seconds = int(pace.settle_s + pace.record_s + 30)
        log = self.plan.logs / f"paced-{type(self).__name__}.log"
        with log.open("wb") as printed:
            child = subprocess.Popen(self.producer(seconds), stdout=printed, stderr=subprocess.STDOUT)
        try:
            time.sleep(2.0)
            if child.poll() is not None:
                raise BenchmarkError(f"the producer ended: {log.read_text()[-500:]}")
            usage = Usage([self.session.pid, self.broker_pid])
            answer = self.session.do(
                task="live", sink=sink, settle_s=pace.settle_s, record_s=pace.record_s, **self.live_source
            )
            cpu, wall = usage.spent()
        finally:
            child.kill()
            child.wait()
        durations = answer["durations_ms"]
        if not durations:
            raise BenchmarkError("no micro-batch was reported")
        ages = sorted(
            (done - first - (last - first) * point / AGE_POINTS) * 1000
            for done, _, first, last in answer["ages"]
            for point in range(AGE_POINTS + 1)
        )
        return Ages(
            median(durations),
            median(ages) if ages else 0.0,
            ages[int(len(ages) * 0.99)] if ages else 0.0,
            cpu * 1e6 / (wall * pace.per_second),
        )


class _Ours(_Side):
    def __enter__(self) -> _Ours:
        with ExitStack() as stack:
            self.broker = stack.enter_context(RunningBroker(Contender(OURS), self.plan))
            self.broker_pid = self.broker.server.pid
            self.rows = self._fill(TOPIC, self.pace.rows)
            self.short_rows = self._fill(SHORT_TOPIC, self.pace.short_rows)
            self.session = stack.enter_context(Session(sys.executable, self.plan.logs / "spark-fusee.log"))
            self.stack = stack.pop_all()
        return self

    @contextmanager
    def told(self) -> Iterator[_Side]:
        """The same with a session that knows how large messages are, and has written as many as Kafka's."""
        side = _Side(self.plan, self.pace, self.folder)
        log = self.plan.logs / "spark-fusee-told.log"
        with Session(sys.executable, log, message_bytes=BODY_BYTES) as side.session:
            side.broker_pid = self.broker_pid
            for rows in (self.pace.rows, self.pace.short_rows):
                side.ready(rows, **self.sink("at-least-once"))
            yield side

    @contextmanager
    def plain(self) -> Iterator[_Ours]:
        """The same with a session that writes its checkpoints as Kafka's does."""
        side = _Ours(self.plan, self.pace, self.folder)
        side.broker, side.broker_pid = self.broker, self.broker_pid
        log = self.plan.logs / "spark-fusee-plain.log"
        with Session(sys.executable, log, has_plain_checkpoints=True) as side.session:
            yield side

    def source(self, topic: str) -> dict[str, Any]:
        return {"source": "fusee", "options": self._options(topic)}

    @property
    def network_source(self) -> dict[str, Any]:
        """With the bytes sent by the broker, as they are to a worker on another machine."""
        return {"source": "fusee", "options": {**self._options(TOPIC), "localReads": "false"}}

    @property
    def wide_source(self) -> dict[str, Any]:
        """With every column of ours."""
        options = {key: value for key, value in self._options(TOPIC).items() if key != "kafkaCompatible"}
        return {"source": "fusee", "options": options}

    def store_source(self, topic: str) -> dict[str, Any]:
        options = {"store": str(self.broker.store_folder), "subscribe": topic, "kafkaCompatible": "true"}
        return {"source": "fusee", "options": options}

    @property
    def live_source(self) -> dict[str, Any]:
        return {"source": "fusee", "options": {**self._options(LIVE_TOPIC), "startingOffsets": "latest"}}

    def sink(self, delivery: str, *, is_sent: bool = False) -> dict[str, Any]:
        """With the bytes sent, as they are from a worker on another machine, if `is_sent`."""
        return {
            "sink": "fusee",
            "sink_options": {
                "nameServer": self.broker.name_server_address,
                "topic": FILL_TOPIC,
                "delivery": delivery,
                "localWrites": "false" if is_sent else "true",
                "createTopics": "true",
                "createQueues": str(QUEUES),
            },
            "select": ["key as keys", "value as body"],
        }

    def producer(self, seconds: int) -> list[str]:
        return [
            *(sys.executable, "-m", "benchmarks.clients.fusee_paced", "-n", self.broker.name_server_address),
            *("-t", LIVE_TOPIC, "--per-second", str(self.pace.per_second), "--seconds", str(seconds)),
        ]

    def _options(self, topic: str) -> dict[str, str]:
        return {
            "nameServer": self.broker.name_server_address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafkaCompatible": "true",
        }

    def _fill(self, topic: str, rows: int) -> int:
        """At least this many messages; how many."""
        frames = self.plan.frames / f"backlog-{topic}"
        write_frame_file(frames, batch_frames(topic, queues=QUEUES))
        generator = load_generator(self.plan.build, cores=cores().every)
        deadline = time.monotonic() + FILL_LIMIT_S
        stored = 0
        while stored < rows:
            if time.monotonic() > deadline:
                raise BenchmarkError(f"the broker did not store {rows} messages in time")
            generator.run(
                port=self.broker.port,
                frames=frames,
                connections=4,
                outstanding=8,
                warm_up_s=0.0,
                record_s=0.5,
                server_pid=self.broker_pid,
                expected_code=0,
            )
            stored = sum(queue_depths(self.broker.port, topic, queues=QUEUES))
        say(f"{stored:,} messages stored by fusee")
        return stored


class _Kafka(_Side):
    def __enter__(self) -> _Kafka:
        with ExitStack() as stack:
            self.kafka = Kafka(self.folder, self.plan.logs / "kafka.log")
            self.kafka.format()
            python, jars = kafka_python(), connector_jars()
            stack.enter_context(self.kafka.server)
            self.broker_pid = self.kafka.server.pid
            filled = {TOPIC: self.pace.rows, SHORT_TOPIC: self.pace.short_rows}
            for topic in (*filled, FILL_TOPIC, LIVE_TOPIC):
                self.kafka.create_topic(topic)
            log = self.plan.logs / "spark-kafka.log"
            self.session = stack.enter_context(Session(str(python), log, jars=jars))
            for topic, rows in filled.items():
                self.ready(rows, topic=topic, **self.sink(topic))
                say(f"{rows:,} messages stored by kafka")
            self.stack = stack.pop_all()
        return self

    def source(self, topic: str) -> dict[str, Any]:
        return {"source": "kafka", "options": self._options(topic)}

    @property
    def live_source(self) -> dict[str, Any]:
        return {"source": "kafka", "options": {**self._options(LIVE_TOPIC), "startingOffsets": "latest"}}

    def sink(self, topic: str, *, batch_size: int = 262_144) -> dict[str, Any]:
        """With batches of the size that suits it best here; its default is 16 KiB."""
        return {
            "sink": "kafka",
            "sink_options": {
                "kafka.bootstrap.servers": self.kafka.address,
                "topic": topic,
                "kafka.acks": "1",
                "kafka.linger.ms": "5",
                "kafka.batch.size": str(batch_size),
            },
            "select": ["key", "value"],
        }

    def producer(self, seconds: int) -> list[str]:
        return self.kafka.paced_producer(LIVE_TOPIC, self.pace.per_second, seconds, BODY_BYTES)

    def _options(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.kafka.address,
            "subscribe": topic,
            "startingOffsets": "earliest",
        }


@dataclass(frozen=True, slots=True)
class _Work:
    name: str
    turns: dict[str, Callable[[], Spent]]
    ratio_min: float | None
    cpu_ratio_min: float | None = None
    writes_much: bool = False
    runs_before: int = 1


def _throughput(pace: Pace, ours: _Ours, told: _Side, theirs: _Kafka | None) -> list[Row]:
    written = pace.written_rows
    noop = {"task": "batch", "sink": "noop", "mode": "overwrite"}
    stream = {"task": "stream", "sink": "noop"}
    parquet = str(ours.folder / "peer.parquet")
    ours.session.do(
        task="batch",
        **ours.source(SHORT_TOPIC),
        sink="parquet",
        mode="overwrite",
        sink_options={"path": parquet, "compression": "uncompressed", "parquet.enable.dictionary": "false"},
    )
    parquet_source = {"source": "parquet", "options": {}, "path": parquet}
    ready = {"sink": "noop", "mode": "overwrite"}

    def kafka(turn: Callable[[_Kafka], Spent], name: str = KAFKA) -> dict[str, Callable[[], Spent]]:
        return {name: partial(turn, theirs)} if theirs is not None else {}

    works = [
        _Work(
            "read, Kafka's columns, to noop",
            {
                OURS: partial(ours.timed, ours.rows, **noop, **ours.source(TOPIC)),
                **kafka(lambda it: it.timed(pace.rows, **noop, **it.source(TOPIC))),
                PARQUET: partial(ours.timed, ours.short_rows, **noop, **parquet_source),
                READY: partial(ours.ready, pace.rows, **ready),
            },
            1.0,
            1.0,
        ),
        _Work(
            "read over the network, to noop",
            {
                OURS: partial(ours.timed, ours.rows, **noop, **ours.network_source),
                **kafka(lambda it: it.timed(pace.rows, **noop, **it.source(TOPIC))),
            },
            1.0,
            1.0,
        ),
        _Work(
            "read, every column, to noop",
            {
                OURS: partial(ours.timed, ours.rows, **noop, **ours.wide_source),
                **kafka(lambda it: it.timed(pace.rows, **noop, **it.source(TOPIC))),
            },
            None,
        ),
        _Work(
            "read the store directory, to noop",
            {
                OURS: partial(ours.timed, ours.rows, **noop, **ours.store_source(TOPIC)),
                **kafka(lambda it: it.timed(pace.rows, **noop, **it.source(TOPIC))),
            },
            1.5,
            1.0,
        ),
        _Work(
            "stream, AvailableNow, to noop",
            {
                OURS: partial(ours.timed, ours.rows, **stream, **ours.source(TOPIC)),
                **kafka(lambda it: it.timed(pace.rows, **stream, **it.source(TOPIC))),
            },
            1.0,
            1.0,
        ),
        _Work(
            "read to Parquet",
            {
                OURS: partial(ours.parquet, ours.short_rows, task="batch", **ours.source(SHORT_TOPIC)),
                **kafka(lambda it: it.parquet(pace.short_rows, task="batch", **it.source(SHORT_TOPIC))),
                READY: partial(ours.parquet, pace.short_rows, **_ready_task(pace.short_rows)),
            },
            1.2,
            1.0,
        ),
        _Work(
            "read the store directory to Parquet",
            {
                OURS: partial(ours.parquet, ours.short_rows, task="batch", **ours.store_source(SHORT_TOPIC)),
                **kafka(lambda it: it.parquet(pace.short_rows, task="batch", **it.source(SHORT_TOPIC))),
            },
            None,
        ),
        _Work(
            "write, at least once",
            {
                OURS: partial(told.ready, written, **ours.sink("at-least-once")),
                UNTOLD: partial(ours.ready, written, **ours.sink("at-least-once")),
                SENT: partial(told.ready, written, **ours.sink("at-least-once", is_sent=True)),
                **kafka(lambda it: it.ready(written, **it.sink(FILL_TOPIC))),
                **kafka(lambda it: it.ready(written, **it.sink(FILL_TOPIC, batch_size=16_384)), KAFKA_DEFAULTS),
                DROPPED: partial(told.ready, written, **_least()),
                FILED: partial(told.filed, written),
            },
            1.5,
            1.0,
            writes_much=True,
            runs_before=1 if ours.plan.quick else WRITES_BEFORE,
        ),
        _Work(
            "write, exactly once",
            {
                OURS: partial(told.ready, written, **ours.sink("exactly-once")),
                **kafka(lambda it: it.ready(written, **it.sink(FILL_TOPIC))),
            },
            None,
            writes_much=True,
        ),
    ]
    rows = []
    for work in works:
        with full_page_cache(ours.folder) if work.writes_much and not ours.plan.quick else nullcontext() as refill:
            turns = work.turns
            if work.writes_much:
                turns = {name: partial(_written, turn, refill) for name, turn in turns.items()}
            for _ in range(work.runs_before):
                for turn in turns.values():
                    turn()  # warm
            measured = interleaved(turns, pace.rounds)
        for name, runs in measured.items():
            say(f"{work.name}: {name} {', '.join(f'{one.per_second:,.0f}/s {one.cpu_us:.2f} us' for one in runs)}")
        speeds = {
            name: figure(
                [one.per_second for one in runs],
                server_cpu_us=median(one.cpu_us for one in runs),
            )
            for name, runs in measured.items()
        }
        targets = [] if work.ratio_min is None else [Target(KAFKA, work.ratio_min)]
        rows.append(judged(Row(work.name, "rows/s", True, speeds, targets, COMMAND)))
        if work.cpu_ratio_min is not None:
            costs = {name: figure([one.cpu_us for one in runs]) for name, runs in measured.items()}
            cpu_target = [Target(KAFKA, work.cpu_ratio_min)]
            rows.append(judged(Row(f"{work.name}: CPU", "us/row", False, costs, cpu_target, COMMAND)))
    return rows


def _written(turn: Callable[[], Spent], refill: Callable[[], None] | None) -> Spent:
    """A turn that writes, with nothing left to be brought to the disk from whoever wrote before."""
    os.sync()
    if refill is not None:
        refill()
    return turn()


def _ready_task(rows: int) -> dict[str, Any]:
    options = {"rows": str(rows), "parts": "2", "size": str(BODY_BYTES), "topic": "ready"}
    return {"task": "batch", "source": "ready", "options": options}


def _least(**options: str) -> dict[str, Any]:
    """The sink that does the least that any sink in Python does."""
    return {"sink": "ready", "sink_options": options, "select": ["key as keys", "value as body"]}


def _live(pace: Pace, ours: _Ours, plain: _Ours, theirs: _Kafka | None) -> list[Row]:
    sides: dict[str, _Side] = {OURS: ours, PLAIN: plain, **({KAFKA: theirs} if theirs is not None else {})}
    rate = f"{pace.per_second:,} messages/s"
    target = [Target(KAFKA, 1.0)]
    rows: list[Row] = []
    for sink in ("noop", "foreachBatch"):
        turns = {name: partial(side.live, sink) for name, side in sides.items()}
        for _ in range(1 if ours.plan.quick else STREAMS_BEFORE):
            for turn in turns.values():
                turn()  # warm
        measured = interleaved(turns, pace.rounds)
        for name, runs in measured.items():
            say(f"{sink} at {rate}: {name} {runs}")
        kinds: list[tuple[str, Callable[[Ages], float], str]] = [
            (f"micro-batch to {sink} at {rate}, p50", lambda one: one.duration_ms, "ms")
        ]
        if sink == "foreachBatch":
            kinds += [
                (f"age of a row when its batch is done, at {rate}, p50", lambda one: one.age_ms, "ms"),
                (f"age of a row when its batch is done, at {rate}, p99", lambda one: one.age_p99_ms, "ms"),
            ]
        kinds.append((f"micro-batch to {sink} at {rate}: CPU", lambda one: one.cpu_us, "us/row"))
        for name_of_row, value, unit in kinds:
            figures = {name: figure([value(one) for one in runs]) for name, runs in measured.items()}
            rows.append(judged(Row(name_of_row, unit, False, figures, target, COMMAND)))
    return rows
