"""The state of a cluster put together from what its nodes said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.admin.cluster import broker_state
from fusee.admin.views import BrokerAddress
from fusee.cluster.observation import Observation, Seen
from fusee.cluster.plan import Node, NodeFiles, Shape, Wanted, nodes_of
from fusee.cluster.processes import ProcessState
from fusee.cluster.readiness import behind, readiness
from fusee.cluster.state_file import ClusterState
from fusee.cluster.status import ClusterStatus, NodeStatus, cluster_status, unflushed_bytes
from fusee.wire.bodies.replication import HaConnectionInfo, HaRuntimeInfo
from tests.store.offline_stores import TIME_MS, HandmadeStore

SHAPE = Shape(groups=1, replicas=2, name_servers=2, first_port=9876)
STATE = ClusterState(cluster="c", shape=SHAPE, nodes=nodes_of(SHAPE))
RUNNING, PAUSED, GONE = ProcessState.RUNNING, ProcessState.PAUSED, ProcessState.GONE


def node(name: str) -> Node:
    return next(each for each in STATE.nodes if each.name == name)


def name_server(name: str = "namesrv-1", *, knows: tuple[str, ...] = ("broker-a", "broker-a-s1")) -> Seen:
    brokers = {f"{node(each).group}/{node(each).broker_id}": node(each).address for each in knows}
    return Seen(node=node(name), process=RUNNING, brokers=brokers)


def broker(name: str = "broker-a", *, log_end: int = 1_000, unflushed: str = "0 B", connections: int = 1) -> Seen:
    table = {"commitLogMaxOffset": str(log_end), "remainHowManyDataToFlush": unflushed}
    slaves = [HaConnectionInfo() for _ in range(connections)] if name == "broker-a" else []
    return Seen(
        node=node(name),
        process=RUNNING,
        state=broker_state(BrokerAddress(address=node(name).address), table),
        replication=HaRuntimeInfo(master=name == "broker-a", ha_connection_info=slaves),
    )


def not_running(name: str, process: ProcessState = GONE, wanted: Wanted = Wanted.KILLED) -> Seen:
    return Seen(node=msgspec.structs.replace(node(name), wanted=wanted), process=process)


def observed(*changed: Seen) -> Observation:
    seen = {each.node.name: each for each in (
        name_server("namesrv-1"), name_server("namesrv-2"), broker("broker-a"), broker("broker-a-s1"), *changed
    )}  # fmt: skip
    return Observation(seen=tuple(seen.values()), time_ms=TIME_MS + 60_000)


def status(data: Path, *changed: Seen) -> ClusterStatus:
    return cluster_status(STATE, data, observed(*changed))


def of(found: ClusterStatus, name: str) -> NodeStatus:
    return next(each for each in found.nodes if each.name == name)


def test_cluster_where_all_is_well_is_ready(tmp_path: Path) -> None:
    found = status(tmp_path)
    assert found.is_ready
    assert found.missing == ()
    assert found.name_servers == "127.0.0.1:9876;127.0.0.1:9877"
    slave = of(found, "broker-a-s1")
    assert (slave.lag_bytes, slave.lag_seconds, slave.state) == (0, 0.0, "running")
    assert slave.registered_with == ("namesrv-1", "namesrv-2")
    assert of(found, "broker-a").lag_bytes is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (name_server("namesrv-2", knows=("broker-a",)), "broker-a-s1 is not registered with namesrv-2"),
        (broker(connections=0), "0 of 1 slaves (broker-a-s1) replicate from broker-a"),
        (not_running("broker-a"), "broker-a is killed"),
        (not_running("broker-a", wanted=Wanted.STOPPED), "broker-a is stopped"),
        (not_running("broker-a", wanted=Wanted.UP), "broker-a has died by itself: see DATA/broker-a/log"),
        (not_running("namesrv-1", PAUSED), "namesrv-1 is paused"),
        (Seen(node=node("broker-a"), process=RUNNING, failure="no answer"), "broker-a does not answer: no answer"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, changed: Seen, says: str) -> None:
    found = status(tmp_path, changed)
    assert not found.is_ready
    assert found.missing == (says.replace("DATA", str(tmp_path)),)


def test_readiness_waits_only_for_nodes_that_run() -> None:
    for away in (
        not_running("namesrv-2"),
        not_running("broker-a-s1"),
        not_running("broker-a"),
        not_running("broker-a", PAUSED),
    ):
        assert readiness(observed(away)).is_ready
    done = readiness(observed())
    assert (done.answering, done.registered, done.attached) == ((4, 4), (4, 4), (1, 1))


def test_readiness_counts_what_is_done_of_what_is_to_be_done() -> None:
    found = readiness(observed(name_server("namesrv-1", knows=()), broker(connections=0)))
    assert (found.registered, found.attached) == ((2, 4), (0, 1))
    assert len(found.missing) == 3


def test_slaves_that_lack_something_are_behind() -> None:
    assert behind(observed()) == ()
    assert behind(observed(broker("broker-a-s1", log_end=990))) == ("broker-a-s1 is 10 bytes behind broker-a",)
    assert behind(observed(not_running("broker-a"))) == ()
    assert behind(observed(not_running("broker-a-s1", PAUSED))) == ()
    silent = Seen(node=node("broker-a"), process=RUNNING, failure="no answer")
    assert behind(observed(silent)) == ("broker-a does not answer: no answer",)


def test_broker_at_another_address_is_not_the_one_that_is_meant() -> None:
    seen = name_server()
    elsewhere = msgspec.structs.replace(node("broker-a"), port=1)
    assert seen.knows(node("broker-a"))
    assert not seen.knows(elsewhere)


def store_of(data: Path, name: str) -> HandmadeStore:
    made = HandmadeStore(NodeFiles(data, node(name)).store)
    for number in range(20):
        made.put(queue_offset=number)
    made.write()
    return made


def test_lag_is_what_the_slave_lacks_and_since_when(tmp_path: Path) -> None:
    made = store_of(tmp_path, "broker-a")
    start, end = made.places[15][0], made.places[-1][0] + made.places[-1][1]
    found = status(tmp_path, broker(log_end=end), broker("broker-a-s1", log_end=start))
    slave = of(found, "broker-a-s1")
    assert slave.lag_bytes == end - start
    assert slave.lag_seconds == (60_000 - 16) / 1000
    master = of(found, "broker-a").loss
    assert (master.disk_bytes, master.disk_messages, master.machine_bytes) == (end - start, 5, 0)
    assert "5 messages" in master.words


def test_log_of_a_dead_master_is_read_from_its_files(tmp_path: Path) -> None:
    made = store_of(tmp_path, "broker-a")
    start, end = made.places[18][0], made.places[-1][0] + made.places[-1][1]
    found = status(tmp_path, not_running("broker-a"), broker("broker-a-s1", log_end=start))
    assert of(found, "broker-a").log_end_offset == end
    assert of(found, "broker-a-s1").lag_bytes == end - start
    assert "its disk alone has 2 messages" in of(found, "broker-a").loss.words


def test_lag_behind_a_master_that_says_nothing_is_not_known(tmp_path: Path) -> None:
    silent = Seen(node=node("broker-a"), process=RUNNING, failure="no answer")
    slave = of(status(tmp_path, silent), "broker-a-s1")
    assert (slave.lag_bytes, slave.lag_seconds) == (None, None)


def test_unflushed_part_is_lost_with_the_machine(tmp_path: Path) -> None:
    found = status(tmp_path, broker(unflushed="100 B"), broker("broker-a-s1", log_end=0))
    assert of(found, "broker-a").loss.machine_bytes == 100


@pytest.mark.parametrize(
    ("text", "size"),
    [("0 B", 0), ("1023 B", 1023), ("1.0 KiB", 1126), ("1.7 KiB", 1843), ("", None), ("many", None), ("1 XiB", None)],
)
def test_rounded_amount_is_taken_for_the_most_that_it_can_mean(text: str, size: int | None) -> None:
    assert unflushed_bytes(text) == size


@given(st.integers(0, 1 << 50))
def test_rounded_amount_is_never_less_than_what_was_rounded(size: int) -> None:
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(max(size.bit_length() - 1, 0) // 10, 4)
    text = f"{size} B" if not power else f"{size / 1024**power:.1f} {units[power]}"
    found = unflushed_bytes(text)
    assert found is not None
    assert found >= size
