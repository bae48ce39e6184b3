"""Consume queues and index that are made again have the bytes that the store itself writes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from fusee.clock import ManualClock
from fusee.errors import StoreCorruptError
from fusee.message.flags import TransactionType
from fusee.message.properties import encode_properties
from fusee.message.topics import SCHEDULE_TOPIC
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.offline.rebuild import (
    IndexRows,
    QueueRows,
    QueueWriter,
    entries_per_file,
    index_shape,
    scan_segment,
    segments,
    write_index_file,
)

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65_536,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=100,
    max_index_num=5000,
    max_message_size=16_384,
    disk_free_bytes_min=0,
    transaction_segment_entries=64,
)


def fill(root: Path, seed: int, count: int = 600, config: StoreConfig = CONFIG) -> None:
    """Messages of every kind that dispatch treats differently."""
    chance = random.Random(seed)
    clock = ManualClock()
    store = MessageStore(root, config, clock=clock)
    store.open()
    for number in range(count):
        topic = chance.choice(["orders", "payments", "übung", SCHEDULE_TOPIC])
        properties = {"UNIQ_KEY": f"U{number}"} if chance.random() < 0.9 else {}
        if chance.random() < 0.5:
            properties["KEYS"] = " ".join(f"k{chance.randrange(30)}" for _ in range(chance.randrange(1, 4)))
        if chance.random() < 0.5:
            properties["TAGS"] = chance.choice(["paid", "offen", "größe"])
        if topic == SCHEDULE_TOPIC:
            properties |= {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        kind = chance.choice([0, 0, 0, 0, *TransactionType])
        store.put(
            NewRecord(
                topic,
                chance.randrange(3),
                chance.randbytes(chance.randrange(400)),
                encode_properties(properties),
                sys_flag=int(kind),
                born_timestamp_ms=7,
            )
        )
        if chance.random() < 0.1:
            store.write()
            store.dispatch()
            clock.advance(chance.random() * 3)
    store.write()
    store.dispatch()
    store.close()


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def without_marks(files: dict[str, bytes]) -> dict[str, bytes]:
    """Index files without the bytes that say how much of them was synced when, which is a matter of chance."""
    start = index_shape(CONFIG).entries_position
    return {name: data[:start] + bytes(20) + data[start + 20 :] for name, data in files.items()}


def rebuild(store: Path, to: Path) -> None:
    """What the job does, in a loop."""
    writer = QueueWriter(to, CONFIG)
    index: list[IndexRows] = []
    firsts, lasts = [], []
    found = segments(store)
    for number, (path, base_offset) in enumerate(found):
        for one in scan_segment(path, base_offset, CONFIG, is_last=number == len(found) - 1):
            rows = one.queues
            for row, topic in enumerate(rows.topics):
                writer.write(
                    topic,
                    int(rows.queue_ids[row]),
                    QueueRows([topic], *(column[row : row + 1] for column in rows[1:])),
                )
            index.append(one.keys)
            firsts.append(one.first)
            lasts.append(one.last)
    writer.close()
    names = sorted(path.name for path in (store / "index").iterdir())
    write_index_file(to / "index" / names[0], CONFIG, iter(index), begin=firsts[0], end=lasts[-1])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rebuilt_files_are_the_stores_own(tmp_path: Path, seed: int) -> None:
    store, to = tmp_path / "store", tmp_path / "again"
    fill(store, seed)
    rebuild(store, to)
    assert files_below(to / "consumequeue") == files_below(store / "consumequeue")
    assert without_marks(files_below(to / "index")) == without_marks(files_below(store / "index"))


def test_scan_of_a_torn_tail_ends_before_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, 4)
    path, base_offset = segments(store)[-1]
    runs = list(scan_segment(path, base_offset, CONFIG, is_last=True))
    last_log_offset, _ = runs[-1].last
    data = bytearray(path.read_bytes())
    at = last_log_offset - base_offset
    data[at + 20 : at + 60] = bytes(40)
    data[at + 4 : at + 8] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    again = list(scan_segment(path, base_offset, CONFIG, is_last=True))
    assert again[-1].last[0] < last_log_offset
    with pytest.raises(StoreCorruptError, match="fusee store verify"):
        list(scan_segment(path, base_offset, CONFIG))


def test_index_file_without_entries_says_what_was_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "index" / "20260101000000000"
    assert write_index_file(path, CONFIG, iter(()), begin=(10, 1000), end=(90, 2000)) == 0
    assert np.frombuffer(path.read_bytes()[:32], ">i8").tolist() == [1000, 2000, 10, 90]


def test_entries_per_file_is_what_a_file_takes() -> None:
    assert entries_per_file(index_shape(CONFIG)) == 4999
