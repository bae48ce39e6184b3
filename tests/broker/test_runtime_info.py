"""Every figure that brokerStatus shows: those of the reference, in its form, and true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusee.broker.config import BrokerConfig, Settings
from fusee.broker.runtime_info import RuntimeInfo
from fusee.broker.settings_update import LiveSettings
from fusee.broker.statistics import Statistics
from fusee.clock import ManualClock
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.filesystem import OsFileSystem, Space
from fusee.store.new_record import NewRecord
from tests.golden import frames

SMALL = {
    "mapped_file_size_commit_log": 8_192,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
    "max_message_size": 4_096,
    "disk_free_bytes_min": 0,
    "transaction_segment_entries": 16,
}


class HalfFullDisk(OsFileSystem):
    """A disk of 4 GiB, of which a little more than half is taken."""

    def space(self, path: Path) -> Space:
        return Space(4 * 1024**3, 2 * 1024**3 - 1)


class Bench:
    """A store, its statistics and what is shown of them."""

    def __init__(self, folder: Path, **store: object) -> None:
        self.clock = ManualClock()
        config = StoreConfig(**SMALL | store)  # type: ignore[arg-type]
        broker = BrokerConfig(broker_name="a", start_accept_send_request_time_stamp=5)
        self.files = HalfFullDisk()
        self.store = MessageStore(folder, config, files=self.files, clock=self.clock)
        self.store.open()
        self.statistics = Statistics(self.clock, "C")
        self.settings = LiveSettings(Settings(broker, config, str(folder), {}, ()), clock=self.clock)
        self.info = RuntimeInfo(
            settings=self.settings,
            statistics=self.statistics,
            store=self.store,
            files=self.files,
            clock=self.clock,
            delay_stats=lambda: {"scheduleMessageOffset_1": "3,5"},
            waiting_sends=lambda: (4, 70),
        )

    def put(self, body: bytes = b"x" * 100) -> int:
        result = self.store.put(NewRecord(topic="t", queue_id=0, body=body, properties=b""))
        return result.end_offset - result.log_offset

    def second(self) -> None:
        self.clock.advance(1)
        self.statistics.sample()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def golden_tables() -> list[dict[str, str]]:
    return [frame.body["table"] for frame in frames() if frame.request_code == 28 and frame.role == "response"]


def shape(text: str) -> str:
    """A value with its numbers made alike."""
    text = re.sub(r"\d+\.\d+(E-?\d+)?", "F", text)
    return re.sub(r"\d+", "0", text)


def test_keys_and_forms_are_those_of_the_reference(bench: Bench) -> None:
    bench.put()
    bench.store.write()
    for _ in range(120):
        bench.statistics.put_latency(1, 3)
        bench.second()
    ours = bench.info.table()
    assert len(golden_tables()) == 2
    for table in golden_tables():
        theirs = {re.sub("^commitLogDiskRatio_.*", "commitLogDiskRatio_", key): value for key, value in table.items()}
        mine = {re.sub("^commitLogDiskRatio_.*", "commitLogDiskRatio_", key): value for key, value in ours.items()}
        assert set(mine) - {"getTransferedTps"} == set(theirs)
        varying = {"remainHowManyDataToFlush", "commitLogDirCapacity"}
        assert {key: shape(mine[key]) for key in theirs if key not in varying} == {
            key: shape(value) for key, value in theirs.items() if key not in varying
        }
        assert mine["brokerVersionDesc"] == theirs["brokerVersionDesc"]


def test_traffic_is_what_was_counted(bench: Bench) -> None:
    size = bench.put() + bench.put()
    bench.store.write()
    bench.statistics.sample()
    bench.statistics.put_latency(2, 42)
    bench.statistics.put_failed(3)
    bench.statistics.got("g", "t", 0, 2, size, False, 9)
    bench.statistics.missed()
    for _ in range(10):
        bench.second()
    table = bench.info.table()
    assert table["putMessageTimesTotal"] == "2"
    assert table["putMessageSizeTotal"] == str(size)
    assert table["putMessageAverageSize"] == str(size / 2)
    assert table["putMessageFailedTimes"] == "3"
    assert table["putMessageEntireTimeMax"] == "42"
    assert table["getMessageEntireTimeMax"] == "9"
    assert table["putTps"] == "0.2  "
    assert table["getFoundTps"] == table["getMissTps"] == "0.1  "
    assert table["getTransferredTps"] == table["getTransferedTps"] == "0.2  "
    assert table["getTotalTps"] == "0.2 0.0 0.0"
    assert "[10~50ms]:2 " in table["putMessageDistributeTime"]


def test_rates_have_three_numbers_after_ten_minutes(bench: Bench) -> None:
    for _ in range(601):
        bench.statistics.put_latency(3, 0)
        bench.second()
    assert [float(text) for text in bench.info.table()["putTps"].split(" ")] == pytest.approx([3.0, 3.0, 3.0])


def test_disk_and_log(bench: Bench, tmp_path: Path) -> None:
    table = bench.info.table()
    assert table["commitLogMinOffset"] == "-1"
    assert table["earliestMessageTimeStamp"] == "-1"
    size = bench.put()
    bench.store.write()
    bench.clock.advance(3)
    table = bench.info.table()
    assert table["commitLogDiskRatio"] == table[f"commitLogDiskRatio_{tmp_path}/commitlog"] == "0.51"
    assert table["consumeQueueDiskRatio"] == "0.51"
    assert table["commitLogDirCapacity"] == "Total : 4.0 GiB, Free : 2.0 GiB."
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("0", str(size))
    assert table["dispatchBehindBytes"] == str(size)
    assert table["remainHowManyDataToFlush"] == f"{size} B"
    assert table["earliestMessageTimeStamp"] == "1700000000000"
    assert table["remainTransientStoreBufferNumbs"] == "2147483647"
    assert "remainHowManyDataToCommit" not in table
    for _ in range(10):
        bench.put()
    bench.store.write()
    assert bench.info.table()["remainHowManyDataToFlush"] == f"{11 * size / 1024:.1f} KiB"
    bench.store.flush()
    bench.store.dispatch()
    table = bench.info.table()
    assert (table["dispatchBehindBytes"], table["remainHowManyDataToFlush"]) == ("0", "0 B")


def test_transient_pool_shows_what_is_left_of_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, transient_store_pool_enable=True, transient_store_pool_size=3)
    size = bench.put()
    table = bench.info.table()
    assert table["remainTransientStoreBufferNumbs"] == "2"
    assert table["remainHowManyDataToCommit"] == f"{size} B"
    bench.store.close()


def test_runtime_days_and_queues(bench: Bench) -> None:
    bench.statistics.put("t", 0, 8, 1)
    bench.clock.advance(2 * 86_400 + 3 * 3_600 + 4 * 60 + 5)
    bench.statistics.sample()
    bench.statistics.put("t", 0, 1, 1)
    table = bench.info.table()
    assert table["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"
    assert table["bootTimestamp"] == "1700000000000"
    assert (table["msgPutTotalTodayMorning"], table["msgPutTotalTodayNow"]) == ("8", "9")
    assert table["startAcceptSendRequestTimeStamp"] == "5"
    assert table["scheduleMessageOffset_1"] == "3,5"
    assert table["sendThreadPoolQueueSize"] == "4"
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "70"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
