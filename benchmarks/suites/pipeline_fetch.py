"""Pipeline without Spark: what a task pays to read a topic from a broker and from a store directory.

A store with 1 KiB messages in four queues, which take turns in the log, is read to its end: from a broker in a process
of its own (in bulk, and by pulls as from any RocketMQ broker), and from its directory. Floors: the same bytes over a
bare socket, from a process that does nothing but send a file; and plain reads of the log. CPU is that of reader and
server together. Budgets are what is left beside Spark's own work to match its Kafka source.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.interleaving import interleaved
from benchmarks.machine import cores
from benchmarks.plan import REPOSITORY
from benchmarks.process_usage import cpu_s
from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from benchmarks.server_process import ServerProcess, free_port
from fusee.errors import FuseeError
from fusee.pipeline.broker_addresses import BrokerAddresses
from fusee.pipeline.fetch import FetchSettings, fetch
from fusee.pipeline.ranges import QueueRange
from fusee.pipeline.schema import COLUMNS, KAFKA_COLUMNS
from fusee.pipeline.store_dir import plan_store, read_store, store_queues
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from benchmarks.plan import Plan

TITLE: Final = "Pipeline: reading without Spark"
COMMAND: Final = "python -m benchmarks --only pipeline-fetch"
TOPIC: Final = "orders"
QUEUES: Final = 4
BROKER: Final = "bench"
PULLS: Final = "pulls"
BARE_SOCKET: Final = "bare socket"
PLAIN_READ: Final = "plain read"
BUDGET: Final = "budget"
ALL: Final = tuple(column.name for column in COLUMNS)
KAFKA: Final = tuple(column.name for column in KAFKA_COLUMNS)
BROKER_BUDGET_US: Final = 1.9
STORE_BUDGET_US: Final = 1.1
ROUTE_LIMIT_S: Final = 60.0
_CHUNK: Final = 4 << 20

_SENDER: Final = """
import contextlib, os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
while True:
    peer, _ = listener.accept()
    with contextlib.suppress(ConnectionError), peer, open(sys.argv[1], "rb", buffering=0) as file:
        size, done = int(sys.argv[3]), 0
        while done < size:
            done += peer.send(os.pread(file.fileno(), min(4 << 20, size - done), done))
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of everything."""

    rows_per_s: float
    cpu_us: float


def run(plan: Plan) -> Findings:
    """Every row of this benchmark."""
    count = 20_000 if plan.quick else 1_000_000
    plan.build.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fetch-", dir=plan.build))
    try:
        root = folder / BROKER
        size = _fill(root, count)
        rows = [*_from_store(plan, root, count, size), *_from_broker(plan, folder, root, count, size)]
    finally:
        shutil.rmtree(folder)
    notes = [f"{count:,} messages of 1 KiB, {QUEUES} queues, one reading process; CPU of reader and server together"]
    return Findings([judged(row) for row in rows], notes, "nothing pinned: reader and server share every core")


def _fill(root: Path, count: int) -> int:
    """A store that a broker can open; the bytes of its log."""
    body = os.urandom(1024)
    store = MessageStore(root)
    store.open()
    for number in range(count):
        properties = (
            b"UNIQ_KEY\x017F0000010B1E18B4AAC2%012X\x02KEYS\x01order-%d\x02TAGS\x01paid\x02WAIT\x01true\x02"
            b"CLUSTER\x01DefaultCluster\x02"
        ) % (number, number)
        store.put(NewRecord(TOPIC, number % QUEUES, body, properties, born_timestamp_ms=1_700_000_000_000))
        if number % 512 == 511:
            store.write()
    store.flush()
    store.dispatch()
    store.flush_derived()
    size = store.written_offset
    store.close()
    return size


def _read(work: Callable[[], int], pids: Iterable[int] = ()) -> Reading:
    """Time and CPU of reading everything once; `work` says how many rows there were."""
    others = list(pids)
    own = resource.getrusage(resource.RUSAGE_SELF)
    before = sum(map(cpu_s, others))
    start = time.perf_counter()
    count = work()
    seconds = time.perf_counter() - start
    now = resource.getrusage(resource.RUSAGE_SELF)
    cpu = now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime + sum(map(cpu_s, others)) - before
    return Reading(count / seconds, cpu * 1e6 / count)


def _counted(batches: Iterable[pa.RecordBatch], expected: int) -> int:
    count = sum(int(batch.num_rows) for batch in batches)
    if count != expected:
        raise BenchmarkError(f"{count} rows were read where {expected} are stored")
    return count


def _rows(name: str, readings: dict[str, list[Reading]], budget_us: float | None) -> list[Row]:
    speeds = {who: figure([one.rows_per_s for one in some]) for who, some in readings.items()}
    costs = {who: figure([one.cpu_us for one in some]) for who, some in readings.items()}
    targets = []
    if budget_us is not None:
        costs[BUDGET] = figure([budget_us])
        targets = [Target(BUDGET, 1.0)]
    return [
        Row(name, "rows/s", True, speeds, [], COMMAND),
        Row(f"{name}, CPU", "us/row", False, costs, targets, COMMAND),
    ]


def _from_store(plan: Plan, root: Path, count: int, size: int) -> list[Row]:
    log = sorted((root / "commitlog").iterdir())

    def ours(columns: tuple[str, ...], *, verify: bool) -> Reading:
        def work() -> int:
            ranges = [queue.range for queue in store_queues([str(root)])]
            pieces = plan_store([str(root)], ranges, verify=verify)
            return _counted((batch for piece in pieces for batch in read_store(piece, columns)), count)

        return _read(work)

    def plain() -> Reading:
        def work() -> int:
            left, memory = size, memoryview(bytearray(_CHUNK))
            for path in log:
                with path.open("rb", buffering=0) as file:
                    while left > 0 and (got := file.readinto(memory[: min(_CHUNK, left)])):
                        left -= got
            return count

        return _read(work)

    found: list[Row] = []
    for name, columns, verify in (
        ("all columns", ALL, True),
        ("Kafka's columns", KAFKA, True),
        ("Kafka's columns, checksums off", KAFKA, False),
    ):
        contenders: dict[str, Callable[[], Reading]] = {
            OURS: partial(ours, columns, verify=verify),
            PLAIN_READ: plain,
        }
        budget_us = STORE_BUDGET_US if columns == KAFKA and verify else None
        found += _rows(f"store directory, {name}", interleaved(contenders, plan.repetitions), budget_us)
    return found


def _from_broker(plan: Plan, folder: Path, root: Path, count: int, size: int) -> list[Row]:
    log = min((root / "commitlog").iterdir())
    sent_size = min(size, log.stat().st_size)
    ranges = [QueueRange(TOPIC, BROKER, queue_id, 0, count // QUEUES) for queue_id in range(QUEUES)]
    with ExitStack() as stack:
        name_server, broker_pid = stack.enter_context(_servers(plan, folder, root))
        sender, port = stack.enter_context(_bare_sender(log, sent_size))

        def ours(columns: tuple[str, ...], instance: str) -> Reading:
            settings = FetchSettings(
                name_servers=name_server, group="bench", instance=instance, bulk_reads=instance != PULLS
            )
            return _read(lambda: _counted(fetch(settings, ranges, columns), count), [broker_pid])

        def bare() -> Reading:
            return _read(lambda: _received(port, sent_size) * count // size, [sender])

        found: list[Row] = []
        for name, columns in (("all columns", ALL), ("Kafka's columns", KAFKA), ("body alone", ("body",))):
            contenders: dict[str, Callable[[], Reading]] = {
                OURS: partial(ours, columns, OURS),
                PULLS: partial(ours, columns, PULLS),
                BARE_SOCKET: bare,
            }
            readings = interleaved(contenders, plan.repetitions)
            found += _rows(f"broker, {name}", readings, BROKER_BUDGET_US if columns == KAFKA else None)
    return found


def _received(port: int, size: int) -> int:
    memory = memoryview(bytearray(_CHUNK))
    done = 0
    with socket.create_connection(("127.0.0.1", port)) as peer:
        while done < size:
            got = peer.recv_into(memory)
            if not got:
                raise BenchmarkError(f"the bare sender stopped after {done} of {size} bytes")
            done += got
    return done


@contextmanager
def _bare_sender(log: Path, size: int) -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [sys.executable, "-c", _SENDER, str(log), str(port), str(size)]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + ROUTE_LIMIT_S
        while True:
            try:
                _received(port, 1)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise BenchmarkError(f"the bare sender does not listen: {error}") from error
                time.sleep(0.05)
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


@contextmanager
def _servers(plan: Plan, folder: Path, root: Path) -> Iterator[tuple[str, int]]:
    """A name server and a broker on this store; the address of the one, the process of the other."""
    names, port = free_port(), free_port()
    settings = folder / "broker.conf"
    settings.write_text(
        f"brokerName={BROKER}\nnamesrvAddr=127.0.0.1:{names}\nlistenPort={port}\nbrokerIP1=127.0.0.1\n"
        f"storePathRootDir={root}\n"
    )
    every = cores().every
    fusee = (sys.executable, "-m", "fusee")
    with (
        ServerProcess(
            "name server",
            [*fusee, "namesrv", "--listen", f"127.0.0.1:{names}", "--kv-path", str(folder / "kv.json")],
            port=names,
            cores=every,
            log_path=plan.logs / "fetch-namesrv.log",
            cwd=REPOSITORY,
        ),
        ServerProcess(
            "broker",
            [*fusee, "broker", "-c", str(settings), "--log-level", "warning"],
            port=port,
            cores=every,
            log_path=plan.logs / "fetch-broker.log",
            cwd=REPOSITORY,
        ) as broker,
    ):
        deadline = time.monotonic() + ROUTE_LIMIT_S
        while True:
            try:
                BrokerAddresses(f"127.0.0.1:{names}", timeout_ms=5000, tls=None).of(TOPIC, BROKER)
                break
            except FuseeError as error:
                if time.monotonic() > deadline:
                    raise BenchmarkError(
                        f"the broker did not register within {ROUTE_LIMIT_S:.0f} s: {error}"
                    ) from error
                time.sleep(0.05)
        yield f"127.0.0.1:{names}", broker.pid
