"""The file in which a cluster is written down."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fusee.cluster import state_file
from fusee.cluster.errors import ClusterError
from fusee.cluster.plan import Shape, Wanted, nodes_of
from fusee.cluster.processes import Process
from fusee.cluster.state_file import STATE_NAME, ClusterState, locked, read_state, write_state


def state() -> ClusterState:
    shape = Shape(groups=1, replicas=2, name_servers=2, first_port=9876, settings={"a": "b"})
    return ClusterState(cluster="c", shape=shape, nodes=nodes_of(shape))


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    process = Process(pid=1, start_ticks=2, boot_id="x")
    node = msgspec.structs.replace(state().nodes[0], process=process, wanted=Wanted.KILLED)
    written = state().with_node(node)
    write_state(tmp_path, written)
    assert read_state(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == [STATE_NAME]
    assert written.name_server_addresses == "127.0.0.1:9876;127.0.0.1:9877"
    assert [node.name for node in written.brokers] == ["broker-a", "broker-a-s1"]


def test_no_file_is_no_cluster(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    assert read_state(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "is no description of a cluster"),
        (b'{"format": 1, "cluster": 3}', "is no description of a cluster"),
        (b'{"format": 2}', "has format 2, this version of Fusee knows 1"),
    ],
)
def test_file_that_is_something_else_says_so(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / STATE_NAME).write_bytes(text)
    with pytest.raises(ClusterError) as raised:
        read_state(tmp_path)
    assert says in str(raised.value)
    assert str(tmp_path / STATE_NAME) in str(raised.value)


def test_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="cannot be written: No such file or directory"):
        write_state(tmp_path / "nowhere", state())


def test_second_one_who_changes_it_waits_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "_LOCK_PATIENCE", 0.0)
    with (
        locked(tmp_path),
        pytest.raises(ClusterError, match="another command has been changing the cluster"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass
