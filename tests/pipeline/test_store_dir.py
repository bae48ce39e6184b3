"""Store directories as batches: against the store itself, and against what Java says of its own stores."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.errors import ConfigError, DataLossError, StoreCorruptError, StoreError
from fusee.pipeline.ranges import QueueRange, StoreRange
from fusee.pipeline.store_dir import (
    named_directories,
    offset_by_time,
    plan_store,
    read_store,
    store_queues,
)
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from tests.golden import store as golden
from tests.store.offline_stores import flip, patch

COLUMNS = ("topic", "queueId", "queueOffset", "logOffset", "body", "tags")
SMALL = StoreConfig(mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=20 * 32)

Rows = list[dict[str, Any]]


def fill(root: Path, sends: Sequence[tuple[str, int, int]], config: StoreConfig = SMALL) -> MessageStore:
    """A store with these messages: topic, queue, size of the body. Still open."""
    store = MessageStore(root, config)
    store.open()
    append(store, sends)
    return store


def append(store: MessageStore, sends: Sequence[tuple[str, int, int]]) -> None:
    for number, (topic, queue_id, size) in enumerate(sends):
        tag = b"TAGS\x01%s\x02" % (b"a", b"b")[number % 2]
        store.put(NewRecord(topic, queue_id, b"%d." % number + b"x" * size, tag))
    store.flush()
    store.dispatch()
    store.flush_derived()


def everything(directories: Sequence[str], topics: set[str] | None = None, **options: Any) -> tuple[int, Rows]:
    """How many tasks, and the rows of all of them."""
    queues = store_queues(directories, topics=topics)
    pieces = plan_store(directories, [queue.range for queue in queues], **options)
    rows = [row for piece in pieces for batch in read_store(piece, COLUMNS) for row in batch.to_pylist()]
    return len(pieces), rows


def by_gets(store: MessageStore, topics: set[str]) -> list[tuple[str, int, int, int]]:
    """Topic, queue, queue offset and log offset of every message that consumers can see."""
    found = []
    for queue in store.queues:
        if queue.topic in topics:
            for queue_offset in range(queue.min_offset, queue.next_offset):
                log_offset = queue.log_offset_of(queue_offset)
                assert log_offset is not None
                found.append((queue.topic, queue.queue_id, queue_offset, log_offset))
    return sorted(found)


def places(rows: Rows) -> list[tuple[str, int, int, int]]:
    return sorted((row["topic"], row["queueId"], row["queueOffset"], row["logOffset"]) for row in rows)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("AAB"), st.integers(0, 2), st.sampled_from([0, 5, 5, 700])), max_size=120),
    st.sampled_from([{"A"}, {"A", "B"}]),
    st.integers(1, 7),
)
def test_a_store_is_read_once_whatever_the_tasks(
    tmp_path_factory: pytest.TempPathFactory, sends: list[tuple[str, int, int]], topics: set[str], tasks: int
) -> None:
    root = tmp_path_factory.mktemp("stores") / "broker-a"
    store = fill(root, sends)
    try:
        count, rows = everything([str(root)], topics, min_partitions=tasks)
        assert places(rows) == by_gets(store, topics)
        assert count <= max(tasks, 1)
        for row in rows:
            assert row["body"].startswith(b"%d." % int(row["body"].split(b".")[0]))
    finally:
        store.close()


@pytest.mark.parametrize("name", ["clean", "killed"])
@pytest.mark.parametrize("tasks", [1, 5])
def test_a_store_of_java(tmp_path: Path, name: str, tasks: int) -> None:
    root = golden.unpack(name, tmp_path)
    _, rows = everything([str(root)], min_partitions=tasks)
    expected = sorted(
        (line["topic"], line["queueId"], queue_offset)
        for line in golden.lines(name, "queue")
        for queue_offset in (
            # Java tells where batches begin; here each message of one is a row
            range(line["minOffset"], line["maxOffset"])
            if line["topic"] == "StoreBcq"
            else [place[0] for place in line["messages"]]
        )
    )
    # a broker that was killed has records that its queues lack until it is started again
    found = sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)
    if name == "clean":
        assert found == expected
    else:
        assert set(found) <= set(expected)
        assert len(found) >= 0.9 * len(expected)


def test_the_cut_of_a_live_store(tmp_path: Path) -> None:
    root = tmp_path / "broker-a"
    store = fill(root, [("A", number % 3, 50) for number in range(60)])
    try:
        pieces = plan_store([str(root)], [queue.range for queue in store_queues([str(root)])], min_partitions=3)
        planned = by_gets(store, {"A"})
        append(store, [("A", number % 4, 50) for number in range(60)])
        rows = [row for piece in pieces for batch in read_store(piece, COLUMNS) for row in batch.to_pylist()]
        assert places(rows) == planned
        assert len(everything([str(root)])[1]) == 120
    finally:
        store.close()


def test_each_queue_comes_in_order(tmp_path: Path) -> None:
    root = tmp_path / "broker-a"
    fill(root, [("A", number % 3, 300) for number in range(200)]).close()
    (piece,) = plan_store([str(root)], [queue.range for queue in store_queues([str(root)])])
    rows = [row for batch in read_store(piece, COLUMNS, batch_size=2000) for row in batch.to_pylist()]
    for queue_id in range(3):
        offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue_id]
        assert offsets == sorted(offsets)
    assert [row["logOffset"] for row in rows] == sorted(row["logOffset"] for row in rows)


def test_ranges_are_exact_and_losses_are_told(tmp_path: Path) -> None:
    root = tmp_path / "broker-a"
    fill(root, [("A", 0, 10)] * 50).close()
    (piece,) = plan_store([str(root)], [QueueRange("A", "broker-a", 0, 7, 20)])
    rows = [row for batch in read_store(piece, COLUMNS) for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == list(range(7, 20))
    for wrong in (QueueRange("A", "broker-a", 0, 40, 60), QueueRange("none", "broker-a", 0, 0, 1)):
        with pytest.raises(DataLossError, match="failOnDataLoss"):
            plan_store([str(root)], [wrong])
    (piece,) = plan_store([str(root)], [QueueRange("A", "broker-a", 0, 40, 60)], fail_on_data_loss=False)
    assert piece.ranges[0].end_offset == 50


def test_tags_are_filtered(tmp_path: Path) -> None:
    root = tmp_path / "broker-a"
    fill(root, [("A", 0, 10)] * 50).close()
    (piece,) = plan_store([str(root)], [QueueRange("A", "broker-a", 0, 0, 50)])
    batches = list(read_store(piece, COLUMNS, tags={"b"}))
    assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == list(range(1, 50, 2))


def test_several_stores_have_names(tmp_path: Path) -> None:
    first, second = tmp_path / "one" / "store", tmp_path / "two" / "store"
    for root in (first, second):
        fill(root, [("A", 0, 10)] * 5).close()
    assert {queue.broker_name for queue in store_queues([str(first), str(second)])} == {"one", "two"}
    pieces = plan_store([f"x={first}", f"y={second}"], [QueueRange("A", name, 0, 0, 5) for name in "xy"])
    rows = [row for piece in pieces for batch in read_store(piece, ("brokerName",)) for row in batch.to_pylist()]
    assert sorted(row["brokerName"] for row in rows) == ["x"] * 5 + ["y"] * 5
    with pytest.raises(ConfigError, match="name them"):
        named_directories(["a/b", "c/b"])
    with pytest.raises(StoreError, match="no store"):
        store_queues([str(tmp_path)])


def test_damage_is_found_unless_nobody_wants_to_know(tmp_path: Path) -> None:
    root = tmp_path / "broker-a"
    store = fill(root, [("A", 0, 500)] * 10)
    place = store.queues.get("A", 0)
    assert place is not None
    log_offset = place.log_offset_of(4)
    assert log_offset is not None
    store.close()
    flip(root / "commitlog" / f"{0:020d}", log_offset + 200)
    ranges = [QueueRange("A", "broker-a", 0, 0, 10)]
    (piece,) = plan_store([str(root)], ranges)
    with pytest.raises(StoreCorruptError, match=f"log offset {log_offset} is damaged"):
        list(read_store(piece, COLUMNS))
    (piece,) = plan_store([str(root)], ranges, verify=False)
    assert sum(batch.num_rows for batch in read_store(piece, COLUMNS)) == 10
    flip(root / "commitlog" / f"{0:020d}", log_offset + 28)  # the log offset that the record says it has
    with pytest.raises(StoreCorruptError, match="not the one its queue points to"):
        list(read_store(piece, COLUMNS))


def test_a_torn_tail_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "broker-a"
    store = fill(root, [("A", 0, 500)] * 10)
    queue = store.queues.get("A", 0)
    assert queue is not None
    log_offset = queue.log_offset_of(8)
    assert log_offset is not None
    store.close()
    patch(root / "commitlog" / f"{0:020d}", log_offset + 100, bytes(1500))
    (found,) = store_queues([str(root)])
    assert (found.min_offset, found.max_offset) == (0, 8)
    assert len(everything([str(root)])[1]) == 8


def test_files_that_were_removed_meanwhile_are_told(tmp_path: Path) -> None:
    root = tmp_path / "broker-a"
    fill(root, [("A", 0, 1000)] * 30).close()
    pieces = plan_store([str(root)], [QueueRange("A", "broker-a", 0, 0, 30)], min_partitions=2)
    (root / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(StoreCorruptError, match="removed the file"):
        list(read_store(pieces[0], COLUMNS))
    (queue,) = store_queues([str(root)])
    assert queue.min_offset > 0
    shutil.rmtree(root / "consumequeue")
    with pytest.raises(StoreCorruptError, match="has no entry"):
        list(read_store(pieces[1], COLUMNS))


def test_ranges_of_queues_of_batches_are_exact(tmp_path: Path) -> None:
    root = golden.unpack("clean", tmp_path)
    (queue,) = (queue for queue in store_queues([str(root)]) if queue.is_of_batches)
    assert queue.max_offset - queue.min_offset > 5
    asked = QueueRange(queue.topic, queue.broker_name, queue.queue_id, queue.min_offset + 1, queue.max_offset - 2)
    rows = [
        row
        for piece in plan_store([str(root)], [asked], min_partitions=3)
        for batch in read_store(piece, COLUMNS)
        for row in batch.to_pylist()
    ]
    assert [row["queueOffset"] for row in rows] == list(range(asked.start_offset, asked.end_offset))


def test_offsets_by_time(tmp_path: Path) -> None:
    root = golden.unpack("clean", tmp_path)
    for queue in store_queues([str(root)]):
        if queue.is_of_batches:
            with pytest.raises(ConfigError, match="batches"):
                offset_by_time(queue, 0)
            continue
        assert offset_by_time(queue, 0) == queue.min_offset
        assert offset_by_time(queue, 1 << 60) == queue.max_offset


def test_pieces_travel() -> None:
    piece = StoreRange("/store", "b", (QueueRange("A", "b", 0, 0, 5),))
    assert pickle.loads(pickle.dumps(piece)) == piece
