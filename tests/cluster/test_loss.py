"""What would be lost if a node died now."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fusee.cluster.backlog import Backlog
from fusee.cluster.loss import Copy, Loss, broker_loss, name_server_loss, size_text


def copy(name: str = "broker-a", **changes: Any) -> Copy:
    facts: dict[str, Any] = {
        "name": name,
        "is_up": True,
        "is_master": name == "broker-a",
        "is_sync": False,
        "end_offset": 1_000,
        "flushed_offset": 1_000,
    }
    return Copy(**facts | changes)


def slave(**changes: Any) -> Copy:
    return copy("broker-a-s1", **changes)


def tens(start: int, end: int) -> Backlog | None:
    """A log whose messages have ten bytes each."""
    return Backlog(messages=(end - start) // 10)


def loss(of: Copy, *others: Copy) -> Loss:
    return broker_loss(of, others, count=tens)


def figures(of: Loss) -> tuple[int | None, int | None, int | None, int | None]:
    return of.machine_bytes, of.machine_messages, of.disk_bytes, of.disk_messages


def test_master_whose_slave_has_all_loses_nothing() -> None:
    found = loss(copy(), slave())
    assert figures(found) == (0, 0, 0, 0)
    assert found.words == "nothing: broker-a-s1 has all of it"
    assert not found.is_promised


def test_master_ahead_of_its_slave_loses_the_difference_with_its_disk() -> None:
    found = loss(copy(), slave(end_offset=900))
    assert figures(found) == (0, 0, 100, 10)
    assert found.words == "with its disk: 10 messages (100 B) that no other node has"
    assert found.is_promised


def test_master_ahead_of_disk_and_slave_loses_less_with_its_machine_than_with_its_disk() -> None:
    found = loss(copy(flushed_offset=950), slave(end_offset=900))
    assert figures(found) == (50, 5, 100, 10)
    assert found.words == (
        "with its machine: 5 messages (50 B), not flushed; with its disk: 10 messages (100 B) that no other node has"
    )


def test_what_a_slave_has_need_not_be_flushed() -> None:
    assert figures(loss(copy(flushed_offset=0), slave())) == (0, 0, 0, 0)


def test_master_that_flushed_less_than_its_slave_has_loses_the_same_either_way() -> None:
    found = loss(copy(flushed_offset=500), slave(end_offset=990))
    assert figures(found) == (10, 1, 10, 1)
    assert found.words == "with its machine: 1 message (10 B), not flushed, and no other node has"


def test_master_without_slaves_loses_all_with_its_disk() -> None:
    found = loss(copy())
    assert figures(found) == (0, 0, 1_000, 100)
    assert found.words.endswith("100 messages (1000 B) that no other node has: it has no slave")


def test_the_best_of_several_slaves_counts() -> None:
    assert figures(loss(copy(), slave(end_offset=0), slave(end_offset=980)))[2] == 20


def test_sync_master_has_promised_nothing_that_it_alone_has() -> None:
    found = loss(copy(is_sync=True), slave(is_sync=True, end_offset=900))
    assert found.disk_bytes == 100
    assert not found.is_promised
    assert found.words.endswith("; no sender who waited was told SEND_OK")


def test_only_slave_loses_nothing_but_takes_something_away() -> None:
    assert loss(slave(), copy()).words == "nothing: broker-a has what it has, and would be the only copy"
    sync = loss(slave(is_sync=True), copy(is_sync=True)).words
    assert sync == "nothing: broker-a has what it has, but its sends would get SLAVE_NOT_AVAILABLE"
    assert loss(slave(), copy(), copy("broker-a-s2")).words == "nothing: broker-a has what it has"


def test_slave_ahead_of_its_master_by_the_time_of_asking_loses_nothing() -> None:
    assert figures(loss(slave(end_offset=1_100), copy())) == (0, 0, 0, 0)


def test_last_node_up_takes_reading_away_when_a_disk_has_the_same() -> None:
    found = loss(slave(), copy(is_up=False))
    assert figures(found) == (0, 0, 0, 0)
    assert found.words == "no message, but none could be read: broker-a, with the same, is down"


def test_slave_of_a_master_that_lost_its_tail_is_the_only_copy() -> None:
    found = loss(slave(), copy(is_up=False, end_offset=700))
    assert found.disk_bytes == 300


def test_dead_master_that_alone_has_something_is_not_to_be_deleted() -> None:
    found = loss(copy(is_up=False, flushed_offset=None), slave(end_offset=900))
    assert figures(found) == (0, 0, 100, 10)
    assert found.words == "its disk alone has 10 messages (100 B): restart it, and do not delete it"


def test_empty_log_loses_nothing() -> None:
    assert loss(copy(end_offset=0, flushed_offset=0)).words == "nothing: its log is empty"


def test_what_is_not_known_is_said() -> None:
    assert loss(copy(end_offset=None), slave()).words == "not known: it does not answer"
    dead = loss(copy(end_offset=None, is_up=False), slave())
    assert dead.words == "not known: it is down, and its store cannot be read"
    assert figures(dead) == (None, None, None, None)


def test_messages_that_cannot_be_counted_are_left_out() -> None:
    found = broker_loss(copy(), [slave(end_offset=0)], count=lambda start, end: None)
    assert found.disk_messages is None
    assert found.words == "with its disk: 1000 B that no other node has"


def test_estimate_says_about() -> None:
    found = broker_loss(copy(), [], count=lambda start, end: Backlog(messages=12_345, is_estimated=True))
    assert "about 12,345 messages" in found.words


copies = st.builds(
    Copy,
    name=st.just("x"),
    is_up=st.booleans(),
    is_master=st.just(False),
    is_sync=st.booleans(),
    end_offset=st.none() | st.integers(0, 50),
    flushed_offset=st.none() | st.integers(0, 60),
)


@given(st.builds(copy, end_offset=st.integers(0, 50), flushed_offset=st.integers(0, 60)), st.lists(copies, max_size=4))
def test_what_is_lost_is_never_more_than_the_log_nor_less_than_nobody_has(master: Copy, others: list[Copy]) -> None:
    found = loss(master, *others)
    assert found.machine_bytes is not None
    assert found.disk_bytes is not None
    assert 0 <= found.machine_bytes <= found.disk_bytes <= (master.end_offset or 0)
    assert found.disk_bytes == max(master.end - max((each.end for each in others), default=0), 0)
    assert found.words


def test_name_server_takes_nothing_with_it_unless_it_is_the_last() -> None:
    assert name_server_loss(is_up=True, others_up=["namesrv-2"]).words == "nothing: namesrv-2 knows the same"
    several = name_server_loss(is_up=True, others_up=["namesrv-2", "namesrv-3"]).words
    assert several == "nothing: namesrv-2, namesrv-3 know the same"
    assert "it is the last name server" in name_server_loss(is_up=True, others_up=[]).words
    assert "until a name server is up" in name_server_loss(is_up=False, others_up=[]).words


def test_sizes_as_people_read_them() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 20, 3 << 30, 2 << 40, 5000 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3.0 GiB",
        "2.0 TiB",
        "5000.0 TiB",
    ]
