"""Files of a broker on this machine: read where it says, proved, and left alone when anything does not fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusee.sync
from fusee.errors import ProtocolError
from fusee.message.record import decode_record
from fusee.pipeline import bulk_reads
from fusee.pipeline.fetch import fetch
from fusee.pipeline.local_logs import SPAN_MAX, LocalLogs, NotLocalError
from fusee.pipeline.spare_memory import SpareMemory
from fusee.wire.headers.bulk_read import BulkReadResponse
from tests.pipeline.test_fetch import COLUMNS, fill, ranges_of, rows, settings

BODIES = [b"first", b"x", b"third" * 100]


@pytest.fixture
def server() -> Iterator[fusee.sync.EmbeddedServer]:
    with fusee.sync.embedded(topics={"orders": 4}) as running:
        yield running


@pytest.fixture
def log(tmp_path: Path) -> tuple[BulkReadResponse, Any, Any]:
    """An answer of a broker whose log has three records, and their sizes and places."""
    with fusee.sync.embedded(topics={"few": 1}) as running, running.connect() as mq:
        for body in BODIES:
            mq.send("few", body)
        data = Path(running.store_path, "commitlog", "0" * 20).read_bytes()
    sizes, places, position = [], [], 0
    while int.from_bytes(data[position : position + 4], "big"):
        places.append(position)
        sizes.append(int.from_bytes(data[position : position + 4], "big"))
        position += sizes[-1]
    (tmp_path / "log").write_bytes(data[:position])
    (tmp_path / "mark").write_text("proof")
    header = BulkReadResponse(
        range_count=1,
        record_count=len(sizes),
        log_file=str(tmp_path / "log"),
        log_file_offset=0,
        mark_file=str(tmp_path / "mark"),
        mark="proof",
    )
    return header, np.array(sizes, np.int64), np.array(places, np.int64)


def bodies(found: tuple[memoryview, Any, Any]) -> list[bytes]:
    data, positions, _ = found
    return [decode_record(data, position).body for position in positions.tolist()]


def test_records_are_read_where_they_lie(log: Any) -> None:
    header, sizes, places = log
    logs, spare = LocalLogs(), SpareMemory()
    assert bodies(logs.records(header, sizes, places, spare)) == BODIES
    assert bodies(logs.records(header, sizes[1:2], places[1:2], spare)) == [b"x"]
    assert bodies(logs.records(header, sizes[[0, 2]], places[[0, 2]], spare)) == [b"first", b"third" * 100]
    logs.close()


@pytest.mark.parametrize(
    "damage",
    ["no mark", "other mark", "no file", "short file", "other byte", "other place", "other size", "other offset"],
)
def test_what_does_not_fit_is_not_read(log: Any, tmp_path: Path, damage: str) -> None:
    header, sizes, places = log
    file = tmp_path / "log"
    if damage == "no mark":
        (tmp_path / "mark").unlink()
    elif damage == "other mark":
        (tmp_path / "mark").write_text("proof of another")
    elif damage == "no file":
        file.unlink()
    elif damage == "short file":
        os.truncate(file, int(places[-1]) + 20)
    elif damage == "other byte":
        data = bytearray(file.read_bytes())
        data[int(places[-1]) + 100] ^= 1
        file.write_bytes(data)
    elif damage == "other place":
        places = places + 1
        sizes = sizes - 1
    elif damage == "other size":
        sizes = sizes - np.array([1, 0, 0])
    elif damage == "other offset":
        header.log_file_offset = 4096
    with pytest.raises(NotLocalError):
        LocalLogs().records(header, sizes, places, SpareMemory())


def test_a_file_that_was_replaced_is_opened_again(log: Any, tmp_path: Path) -> None:
    header, sizes, places = log
    logs, spare = LocalLogs(), SpareMemory()
    logs.records(header, sizes, places, spare)
    data = (tmp_path / "log").read_bytes()
    (tmp_path / "new").write_bytes(bytes(len(data)))
    (tmp_path / "new").replace(tmp_path / "log")
    with pytest.raises(NotLocalError):
        logs.records(header, sizes, places, spare)
    (tmp_path / "new").write_bytes(data)
    (tmp_path / "new").replace(tmp_path / "log")
    assert len(bodies(logs.records(header, sizes, places, spare))) == 3


def test_a_broker_that_was_started_anew_proves_itself_anew(log: Any, tmp_path: Path) -> None:
    header, sizes, places = log
    logs, spare = LocalLogs(), SpareMemory()
    logs.records(header, sizes, places, spare)
    header.mark = "another proof"
    with pytest.raises(NotLocalError):
        logs.records(header, sizes, places, spare)
    (tmp_path / "mark").write_text("another proof")
    logs.records(header, sizes, places, spare)


@pytest.mark.parametrize("wrong", ["no file", "no mark", "places", "span", "backwards"])
def test_an_answer_that_cannot_be_is_refused(log: Any, wrong: str) -> None:
    header, sizes, places = log
    if wrong == "no file":
        header.log_file = None
    elif wrong == "no mark":
        header.mark = None
    elif wrong == "places":
        places = places[1:]
    elif wrong == "span":
        places = places + np.array([0, 0, SPAN_MAX])
    elif wrong == "backwards":
        places = places - 1
    with pytest.raises(ProtocolError):
        LocalLogs().records(header, sizes, places, SpareMemory())


def test_few_files_are_kept_open(log: Any, tmp_path: Path) -> None:
    header, sizes, places = log
    data = (tmp_path / "log").read_bytes()
    logs, spare = LocalLogs(), SpareMemory()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(30):
        (tmp_path / f"log{number}").write_bytes(data)
        header.log_file = str(tmp_path / f"log{number}")
        logs.records(header, sizes, places, spare)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 8
    logs.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def received(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each answer to a bulk read had places, as they come."""
    kinds: list[bool] = []
    take = bulk_reads._BulkReading.take

    def taking(self: Any, answer: Any) -> Any:
        kinds.append(answer.command.read(BulkReadResponse).log_file is not None)
        return take(self, answer)

    monkeypatch.setattr(bulk_reads._BulkReading, "take", taking)
    return kinds


def test_a_reader_beside_the_broker_reads_its_files(
    server: fusee.sync.EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.connect() as mq:
        queues = fill(mq, "orders", 3000, size=200)
    kinds = received(monkeypatch)
    asked = ranges_of("orders", queues)
    found = rows(fetch(settings(server), asked, COLUMNS))
    assert set(kinds) == {True}
    assert {queue_id: [body for _, body, _ in each] for queue_id, each in found.items()} == queues
    kinds.clear()
    assert rows(fetch(settings(server, local_reads=False), asked, COLUMNS)) == found
    assert set(kinds) == {False}


def test_filtered_messages_are_read_from_files_too(
    server: fusee.sync.EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.connect() as mq:
        queues = fill(mq, "orders", 1000)
    kinds = received(monkeypatch)
    asked = ranges_of("orders", queues)
    found = rows(fetch(settings(server, tags="a"), asked, COLUMNS))
    assert found == rows(fetch(settings(server, tags="a", bulk_reads=False), asked, COLUMNS))
    assert sum(map(len, found.values())) == 500
    assert any(kinds)


def test_a_reader_that_cannot_see_the_files_reads_over_the_network(
    server: fusee.sync.EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.connect() as mq:
        queues = fill(mq, "orders", 1000)
    asked = ranges_of("orders", queues)
    rows(fetch(settings(server), asked, COLUMNS))
    Path(server.store_path, "local_reads").write_text("of another broker")
    kinds = received(monkeypatch)
    other = settings(server, instance="another process")
    for expected in ([True, False], [False]):
        found = rows(fetch(other, asked, COLUMNS))
        assert {queue_id: [body for _, body, _ in each] for queue_id, each in found.items()} == queues
        assert kinds == expected
        kinds.clear()
