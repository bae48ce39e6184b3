"""Codes about the broker itself: answers as the reference gives them, and where ours are better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fusee.broker.config import BrokerConfig, Settings
from fusee.broker.handlers.admin_broker import BrokerHandlers
from fusee.broker.runtime_info import RuntimeInfo
from fusee.broker.settings_update import LiveSettings
from fusee.broker.statistics import Statistics
from fusee.broker.worker import InlineWorker
from fusee.clock import ManualClock
from fusee.config import parse_properties
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.filesystem import OsFileSystem
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.wire.bodies.kv import decode_kv_table
from fusee.wire.bodies.replication import HaRuntimeInfo
from fusee.wire.bodies.stats import BrokerStatsData
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.lenient_json import decode_json
from tests.golden import frames

BLACK_LISTED = "Can not update config in black list."
STORE = StoreConfig(
    mapped_file_size_commit_log=8_192,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=10,
    max_index_num=40,
    max_message_size=4_096,
    disk_free_bytes_min=0,
    transaction_segment_entries=16,
)


class Wire(Link):
    """A connection that keeps what is sent on it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock, timers=clock)
        self.sent: list[Command] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


class LaterWorker:
    """Keeps jobs until told to run them."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def run(self, job: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[Exception], object]) -> None:
        self.jobs.append(lambda: InlineWorker().run(job, done, failed))

    def run_all(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()

    def stop(self) -> None:
        self.run_all()


class Desk:
    """The handlers behind a router."""

    def __init__(self, folder: Path, **broker: Any) -> None:
        self.clock = clock = ManualClock()
        config = BrokerConfig(broker_name="a", **broker)
        self.store = MessageStore(folder / "store", STORE, clock=clock)
        self.store.open()
        self.settings = LiveSettings(Settings(config, STORE, str(folder / "store"), {}, ()), clock=clock)
        self.statistics = Statistics(clock, config.broker_cluster_name)
        self.worker = LaterWorker()
        files = OsFileSystem()
        runtime = RuntimeInfo(
            settings=self.settings, statistics=self.statistics, store=self.store, files=files, clock=clock
        )
        self.handlers = BrokerHandlers(
            settings=self.settings,
            statistics=self.statistics,
            runtime=runtime,
            store=self.store,
            worker=self.worker,
            files=files,
        )
        self.router = Router()
        self.lane = self.router.lane("admin", 4)
        self.router.add_all(self.handlers.routes(), self.lane)
        self.link = Wire(clock)

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        """The answer; jobs of the worker are run first when it waits for one."""
        answer = self.router.dispatch(Command(code, 7, ext_fields=fields, body=body), self.link)
        if answer is None:
            assert self.lane.in_flight == 1
            self.worker.run_all()
            answer = self.link.sent.pop()
        assert isinstance(answer, Command)
        assert answer.opaque == 7
        assert self.lane.in_flight == 0
        return answer

    def update(self, text: str) -> Command:
        return self.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


def test_codes_served(desk: Desk) -> None:
    assert {int(code) for code in desk.handlers.routes()} == {
        *(25, 26, 28, 315, 354, 355, 907, 1007),
        *(2001, 2002, 2003, 2004),
    }


# Settings


def test_config_is_properties_text_with_its_version(desk: Desk) -> None:
    answer = desk.ask(RequestCode.GET_BROKER_CONFIG)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields == {"version": '{"counter":0,"stateVersion":0,"timestamp":1700000000000}'}
    entries = parse_properties(answer.body.decode())
    assert entries["brokerName"] == "a"
    assert entries["mappedFileSizeCommitLog"] == "8192"
    desk.settings.found["broker_ip1"] = "10.0.0.1"
    assert parse_properties(desk.ask(RequestCode.GET_BROKER_CONFIG).body.decode())["brokerIP1"] == "10.0.0.1"


def test_captured_update_is_taken(desk: Desk) -> None:
    [request] = [frame for frame in frames() if frame.code == 25 and frame.role == "request"]
    answer = desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=request.body_bytes)
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.SUCCESS, None, b"")
    assert desk.settings.broker.flush_delay_offset_interval == 9_000
    version = desk.ask(RequestCode.GET_BROKER_CONFIG).all_fields()["version"]
    assert version.startswith('{"counter":1,')


def test_empty_update_changes_nothing(desk: Desk) -> None:
    assert desk.update("").code == ResponseCode.SUCCESS
    assert desk.settings.version.counter == 0


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("brokerConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION, BLACK_LISTED),
        ("rocketmqHome=/tmp", ResponseCode.NO_PERMISSION, BLACK_LISTED),
        ("configBlackList=", ResponseCode.NO_PERMISSION, BLACK_LISTED),
        ("listenPort=1234", ResponseCode.NO_PERMISSION, "listenPort cannot be changed while the broker runs"),
        ("noSuchSetting=1", ResponseCode.NO_PERMISSION, "noSuchSetting is no setting of this broker"),
        ("deleteWhen=99", ResponseCode.INVALID_PARAMETER, "nothing was changed: deleteWhen=99"),
    ],
)
def test_update_that_is_refused_says_why(desk: Desk, text: str, code: ResponseCode, remark: str) -> None:
    answer = desk.update(f"brokerPermission=4\n{text}\n")
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert desk.settings.broker.broker_permission == 6


def test_update_that_is_no_text_is_an_error(desk: Desk) -> None:
    answer = desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"\xff\xfe=1")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "UTF-8" in (answer.remark or "")


def test_update_is_answered_when_it_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "changes.properties"
    desk = Desk(tmp_path, broker_config_path=str(path))
    request = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    assert desk.router.dispatch(request, desk.link) is None
    assert desk.link.sent == []
    desk.worker.run_all()
    assert [answer.code for answer in desk.link.sent] == [ResponseCode.SUCCESS]
    assert parse_properties(path.read_text()) == {"brokerPermission": "4"}
    desk.store.close()


def test_update_that_cannot_be_saved_says_so(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("a file, no folder")
    desk = Desk(tmp_path, broker_config_path=str(tmp_path / "conf" / "changes.properties"))
    answer = desk.update("brokerPermission=4")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not saved" in (answer.remark or "")
    assert desk.settings.broker.broker_permission == 4
    desk.store.close()


# Figures


def test_runtime_info_is_a_table(desk: Desk) -> None:
    answer = desk.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = decode_kv_table(answer.body).table
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert table["putMessageTimesTotal"] == "0"


def test_stats_before_the_first_sample_are_byte_for_byte_the_captured_ones(desk: Desk) -> None:
    captured = [f.body_bytes for f in frames() if f.request_code == 315 and f.role == "response"]
    desk.statistics.put("Golden", 0, 1, 100)
    answer = desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Golden"})
    assert answer.code == ResponseCode.SUCCESS
    assert set(captured) == {answer.body}


def test_stats_show_minute_hour_and_day(desk: Desk) -> None:
    desk.statistics.sample()
    desk.statistics.put("t", 0, 20, 100)
    desk.statistics.put("t", 1, 40, 100)
    desk.clock.advance(3_600)
    desk.statistics.sample()
    answer = desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"})
    data = decode_json(answer.body, BrokerStatsData)
    assert (data.stats_minute.sum, data.stats_minute.tps, data.stats_minute.avgpt) == (60, 6.0, 30.0)
    assert data.stats_hour.tps == pytest.approx(0.1)
    assert data.stats_day.tps == pytest.approx(60 / 3_600)


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"statsName": "TOPIC_PUT_NUMS", "statsKey": "Y"}, "The stats <TOPIC_PUT_NUMS> <Y> not exist"),
        ({"statsName": "X", "statsKey": "Y"}, "The stats <X> <Y> not exist"),
        ({}, "The stats <null> <null> not exist"),
    ],
)
def test_stats_of_nothing_do_not_exist(desk: Desk, fields: dict[str, str], remark: str) -> None:
    answer = desk.ask(RequestCode.VIEW_BROKER_STATS_DATA, fields)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


def test_ha_status_of_a_master_is_what_the_reference_answers(desk: Desk) -> None:
    assert desk.ask(RequestCode.GET_BROKER_HA_STATUS).body == (
        b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,'
        b'"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[],"inSyncSlaveNums":0,'
        b'"master":true,"masterCommitLogMaxOffset":0}'
    )


def test_ha_status_of_a_slave_says_that_it_is_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path, broker_id=1, broker_role="SLAVE")
    info = decode_json(desk.ask(RequestCode.GET_BROKER_HA_STATUS).body, HaRuntimeInfo)
    assert not info.master
    desk.store.close()


# What this broker has none of


def test_epochs_are_for_brokers_under_a_controller(desk: Desk) -> None:
    answer = desk.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")


@pytest.mark.parametrize(
    ("types", "code", "remark"),
    [
        ("topics;subscriptionGroups;consumerOffsets;", ResponseCode.SUCCESS, "export done."),
        ("Topics", ResponseCode.SUCCESS, "export done."),
        ("topics;nope", ResponseCode.SYSTEM_ERROR, "Unknown config type: nope"),
    ],
)
def test_export_is_done_already(desk: Desk, types: str, code: ResponseCode, remark: str) -> None:
    answer = desk.ask(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, {"configType": types})
    assert (answer.code, answer.remark) == (code, remark)


def test_there_is_nothing_to_compare_in_rocksdb(desk: Desk) -> None:
    answer = desk.ask(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, {"topic": "t"})
    assert answer.code == ResponseCode.SUCCESS
    assert decode_json(answer.body, dict)["checkStatus"] == 3


def test_cold_reads_are_not_limited(desk: Desk) -> None:
    assert desk.ask(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO).body == (
        b'{"runtimeTable":{},"configTable":{},"cgColdReadThreshold":3145728,"globalColdReadThreshold":104857600,'
        b'"globalAcc":0}'
    )


@pytest.mark.parametrize("code", [2001, 2002, 2004])
def test_what_cannot_be_set_is_refused_with_a_reason(desk: Desk, code: int) -> None:
    answer = desk.ask(code, body=b"g=100")
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "this broker" in (answer.remark or "")
