"""Numbers of a master about its slaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusee.replication.progress import ReplicaProgress


def test_confirmed_is_what_enough_brokers_have() -> None:
    progress = ReplicaProgress(gap_max=100)
    assert progress.confirmed(1) > 1 << 60, "the master alone is enough"
    assert progress.confirmed(2) == 0
    progress.report("a:1", 500)
    assert (progress.confirmed(2), progress.confirmed(3)) == (500, 0)
    progress.report("b:1", 300)
    assert (progress.confirmed(2), progress.confirmed(3), progress.confirmed(4)) == (500, 300, 0)
    progress.leave("a:1")
    assert (progress.confirmed(2), progress.confirmed(3)) == (300, 0)


@given(st.lists(st.integers(0, 1000), max_size=6), st.integers(2, 8))
def test_confirmed_offset_is_on_as_many_slaves_as_required(reports: list[int], required: int) -> None:
    progress = ReplicaProgress(gap_max=100)
    for number, log_offset in enumerate(reports):
        progress.report(f"10.0.0.{number}:1", log_offset)
    confirmed = progress.confirmed(required)
    if confirmed:
        assert sum(report >= confirmed for report in reports) >= required - 1
        assert sum(report > confirmed for report in reports) < required - 1


def test_slave_is_in_sync_while_the_gap_is_small() -> None:
    progress = ReplicaProgress(gap_max=100)
    progress.report("a:1", 1000)
    assert [slave.address for slave in progress.in_sync(1099)] == ["a:1"]
    assert progress.in_sync(1100) == []
    progress.gap_max = 101
    assert len(progress.in_sync(1100)) == 1


def test_broker_that_comes_again_counts_once() -> None:
    progress = ReplicaProgress(gap_max=100)
    assert progress.identify("a:1", 7) is None
    progress.report("a:1", 500)
    assert progress.slaves["a:1"].broker_id == 7
    assert progress.identify("a:1", 7) is None
    assert progress.identify("a:2", 7) == "a:1"
    progress.report("a:2", 400)
    assert list(progress.slaves) == ["a:2"]
    progress.report("b:1", 300)
    assert progress.identify("b:1", 8) is None
    assert progress.slaves["b:1"].broker_id == 8
    assert progress.confirmed(3) == 300


def test_bytes_of_a_second_are_counted_and_limited() -> None:
    progress = ReplicaProgress(gap_max=100, bytes_per_second_max=1000)
    slave = progress.report("a:1", 0)
    assert progress.allowance(slave) == 1000
    progress.sent(slave, 700)
    assert (progress.allowance(slave), slave.next_offset) == (300, 700)
    progress.sent(slave, 1200)
    assert progress.allowance(slave) == 0
    progress.sample()
    assert (slave.bytes_per_second, progress.allowance(slave)) == (1200, 1000)
    progress.sample()
    assert slave.bytes_per_second == 0
    progress.bytes_per_second_max = None
    assert progress.allowance(slave) is None
