"""Store: append, dispatch, get, group commit, decode, recovery and opening, each beside its floor in the same run.

Floors: copying the same bytes into a mapped file (nothing appends faster), a bare pwrite and fdatasync loop (nothing is
durable faster), plain reads of the same file (nothing is read faster), a struct loop (what decoding costs without
arrays). `target` is a number that the store must reach on one core, whatever the floor. Messages have bodies of 1 KiB
and the properties of a real client: UNIQ_KEY, KEYS, TAGS, WAIT, CLUSTER.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from fusee.message.batch import BatchElement
from fusee.message.record import decode_record
from fusee.store.columns import decode_columns
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.plan import Plan

TITLE: Final = "Store"
COMMAND: Final = "python -m benchmarks --only store"

BODY: Final = b"x" * 1024
QUEUES: Final = 8
TARGET: Final = "target"
FLOOR_COPY: Final = "copy into mmap"
FLOOR_SYNC: Final = "bare fdatasync"
FLOOR_READ: Final = "plain read"
STRUCT_LOOP: Final = "struct loop"
APPEND: Final = "append by 16"


def message(number: int) -> NewRecord:
    """The n-th message of a topic with eight queues."""
    properties = (
        b"UNIQ_KEY\x017F0000010B1E18B4AAC2%012X\x02KEYS\x01order-%d\x02TAGS\x01paid\x02WAIT\x01true\x02"
        b"CLUSTER\x01DefaultCluster\x02"
    ) % (number, number)
    return NewRecord("orders", number % QUEUES, BODY, properties, born_timestamp_ms=1_700_000_000_000)


class _Folder:
    """A store in a folder of its own on this disk, gone at the end."""

    def __init__(self, plan: Plan, config: StoreConfig | None = None) -> None:
        plan.build.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="store-", dir=plan.build))
        self.store = MessageStore(self.path / "store", config)
        self.store.open()

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        shutil.rmtree(self.path)


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    gc.unfreeze()
    return seconds


def run(plan: Plan) -> Findings:
    """Every row of the store."""
    count = 4_096 if plan.quick else 131_072
    rows = [
        *_append_and_dispatch(plan, count),
        _get(plan, count),
        *(_group_commit(plan, waiting) for waiting in (1, 16, 256)),
        _decode(plan),
        _recovery(plan),
        *_many_queues(plan),
    ]
    notes = ["one core, one thread; the fdatasync rows depend on the disk more than on anything else"]
    return Findings([judged(row) for row in rows], notes)


def _row(name: str, unit: str, figures: dict[str, list[float]], targets: list[Target], *, higher: bool = True) -> Row:
    return Row(name, unit, higher, {who: figure(values) for who, values in figures.items()}, targets, COMMAND)


def _append_and_dispatch(plan: Plan, count: int) -> list[Row]:
    """Interleaved repetitions on fresh stores: single, grouped, batches, dispatch, and the floor."""
    messages = [message(number) for number in range(count)]
    elements = [BatchElement(0, record.body, record.properties) for record in messages[:32]]
    single: list[float] = []
    grouped: list[float] = []
    batched: list[float] = []
    dispatched: list[float] = []
    copied: list[float] = []

    for _ in range(plan.repetitions):
        with _Folder(plan) as folder:
            store = folder.store

            def one_by_one(store: MessageStore = store) -> None:
                for record in messages[: count // 4]:
                    store.put(record)
                    store.write()

            def by_sixteen(store: MessageStore = store) -> None:
                put, write = store.put, store.write
                for start in range(0, count, 16):
                    for record in messages[start : start + 16]:
                        put(record)
                    write()

            def in_batches(store: MessageStore = store) -> None:
                for _ in range(count // 32):
                    store.put_batch(messages[0], elements)
                    store.write()

            single.append(count // 4 / _timed(one_by_one))
            store.dispatch()
            grouped.append(count / _timed(by_sixteen))
            dispatched.append(count / _timed(store.dispatch))
            batched.append(count / _timed(in_batches))
            record_size = 1250
            target = folder.path / "copy"
            with target.open("w+b") as file:
                file.truncate(record_size * count)
                with mmap.mmap(file.fileno(), 0) as mapped:
                    data = b"x" * record_size

                    def copy(mapped: mmap.mmap = mapped, data: bytes = data, size: int = record_size) -> None:
                        position = 0
                        for _ in range(count):
                            mapped[position : position + size] = data
                            position += size

                    copied.append(count / _timed(copy))
    return [
        _row("append 1 KiB, one write each", "messages/s", {OURS: single, FLOOR_COPY: copied}, []),
        _row(
            "append 1 KiB, 16 per write",
            "messages/s",
            {OURS: grouped, FLOOR_COPY: copied, TARGET: [150_000]},
            [Target(TARGET, 1.0)],
        ),
        _row(
            "append 1 KiB, batches of 32",
            "messages/s",
            {OURS: batched, FLOOR_COPY: copied, TARGET: [300_000]},
            [Target(TARGET, 1.0)],
        ),
        _row("dispatch", "messages/s", {OURS: dispatched, APPEND: grouped}, [Target(APPEND, 2.0)]),
    ]


def _get(plan: Plan, count: int) -> Row:
    ours: list[float] = []
    floor: list[float] = []
    with _Folder(plan) as folder:
        store = folder.store
        elements = [BatchElement(0, BODY, message(number).properties) for number in range(32)]
        for _ in range(count // 32):
            store.put_batch(message(0), elements)
            store.write()
        store.flush()
        store.dispatch()
        total = store.written_offset

        def get_all() -> None:
            queue_offset = 0
            while (result := store.get("orders", 0, queue_offset, 32)).status is GetStatus.FOUND:
                queue_offset = result.next_offset

        path = store.log.segments()[0][1].path
        size = total // (count // 32)

        def read_all() -> None:
            descriptor = os.open(path, os.O_RDONLY)
            for position in range(0, total, size):
                os.pread(descriptor, size, position)
            os.close(descriptor)

        for _ in range(plan.repetitions):
            ours.append(total / _timed(get_all) / 1e9)
            floor.append(total / _timed(read_all) / 1e9)
    return _row(
        "get 32 messages of 1 KiB", "GB/s", {OURS: ours, FLOOR_READ: floor, TARGET: [1.5]}, [Target(TARGET, 1.0)]
    )


def _group_commit(plan: Plan, waiting: int) -> Row:
    """Durable sends per second when this many senders wait for each sync."""
    ours: list[float] = []
    floor: list[float] = []
    rounds = 20 if plan.quick else 400
    for _ in range(plan.repetitions):
        with _Folder(plan) as folder:
            store = folder.store
            messages = [message(number) for number in range(waiting)]

            def commit(store: MessageStore = store, messages: list[NewRecord] = messages) -> None:
                for _ in range(rounds):
                    for record in messages:
                        store.put(record)
                    store.flush()

            ours.append(rounds * waiting / _timed(commit))
            descriptor = os.open(folder.path / "sync", os.O_RDWR | os.O_CREAT)
            data = b"x" * (1250 * waiting)

            def bare(descriptor: int = descriptor, data: bytes = data) -> None:
                for number in range(rounds):
                    os.pwrite(descriptor, data, number * len(data))
                    os.fdatasync(descriptor)

            floor.append(rounds * waiting / _timed(bare))
            os.close(descriptor)
    return _row(f"durable sends, {waiting} waiting per sync", "messages/s", {OURS: ours, FLOOR_SYNC: floor}, [])


def _decode(plan: Plan) -> Row:
    """A buffer of 1,000 records to columns."""
    ours: list[float] = []
    loop: list[float] = []
    with _Folder(plan) as folder:
        store = folder.store
        places = [store.put(message(number)).log_offset for number in range(1_000)]
        store.write()
        buffer = bytes(store.log.chunk(0, store.written_offset))
        rounds = 3 if plan.quick else 100

        def columns() -> None:
            for _ in range(rounds):
                decode_columns(buffer)

        def one_by_one() -> None:
            for _ in range(max(rounds // 10, 1)):
                for position in places:
                    record = decode_record(buffer, position)
                    _ = record.properties, record.born_host, record.store_host

        for _ in range(plan.repetitions):
            ours.append(1_000 * rounds / _timed(columns))
            loop.append(1_000 * max(rounds // 10, 1) / _timed(one_by_one))
    return _row(
        "decode 1,000 records to Arrow, all columns",
        "rows/s",
        {OURS: ours, STRUCT_LOOP: loop, TARGET: [1_000_000]},
        [Target(TARGET, 1.0)],
    )


def _recovery(plan: Plan) -> Row:
    """Opening a store after a crash: one segment is verified and dispatched again, the others are not read."""
    size = 48 * 1024 * 1024 if plan.quick else 4 * 1024 * 1024 * 1024
    config = StoreConfig(mapped_file_size_commit_log=16 * 1024 * 1024) if plan.quick else StoreConfig()
    with _Folder(plan, config) as folder:
        store = folder.store
        elements = [BatchElement(0, BODY, message(number).properties) for number in range(32)]
        batch = message(0)
        while store.written_offset < size:
            for _ in range(1_000):
                store.put_batch(batch, elements)
                if store.log.gathered_bytes > 4 * 1024 * 1024:
                    store.write()
            store.flush()
            store.dispatch()
            store.flush_derived()
        root = folder.path / "store"
        store.close()
        (root / "abort").touch()
        folder.store = MessageStore(root, config)
        seconds = _timed(folder.store.open)
        last = sorted((root / "commitlog").iterdir())[-2:]

        def read() -> None:
            for path in last:
                with path.open("rb", buffering=0) as file:
                    while file.read(1024 * 1024):
                        pass

        floor = _timed(read)
    name = "recover 48 MiB after a crash" if plan.quick else "recover 4 GiB after a crash"
    return _row(name, "s", {OURS: [seconds], FLOOR_READ: [floor]}, [], higher=False)


_OPEN_PROGRAM: Final = """
import re, sys, time
from pathlib import Path
from fusee.store.engine import MessageStore
start = time.perf_counter()
store = MessageStore(Path(sys.argv[1]))
store.open()
seconds = time.perf_counter() - start
kilobytes = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(seconds, kilobytes / 1024, len(store.queues))
store.close()
"""


def _many_queues(plan: Plan) -> list[Row]:
    """1,000 topics of 8 queues: how long opening takes, and how much memory a process that has it open uses."""
    topics = 20 if plan.quick else 1_000
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with _Folder(plan) as folder:
        store = folder.store
        for number in range(topics):
            for queue_id in range(QUEUES):
                store.put(NewRecord(f"topic-{number}", queue_id, b"hello", b"TAGS\x01a\x02"))
        store.flush()
        store.dispatch()
        root = folder.path / "store"
        store.close()
        done = subprocess.run(
            [sys.executable, "-c", _OPEN_PROGRAM, str(root)], capture_output=True, text=True, check=True
        )
        seconds, megabytes, queues = (float(text) for text in done.stdout.split())
        if int(queues) != topics * QUEUES:
            raise RuntimeError(f"{queues} queues were opened of {topics * QUEUES} (limit of open files {soft})")
        folder.store = MessageStore(root)
        folder.store.open()
    name = f"open {topics * QUEUES} queues"
    return [
        _row(name, "s", {OURS: [seconds], TARGET: [5.0]}, [Target(TARGET, 1.0)], higher=False),
        _row(f"{name}, memory", "MB", {OURS: [megabytes], TARGET: [300.0]}, [Target(TARGET, 1.0)], higher=False),
    ]
