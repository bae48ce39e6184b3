"""A cluster of real processes: its life, its faults, and that nothing of it is left behind."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import msgspec
import pytest

import fusee.sync
from fusee.client.results import SendStatus
from fusee.cluster import ClusterError, LocalCluster
from fusee.cluster.plan import NodeFiles, Shape, Wanted, broker_settings, nodes_of
from fusee.cluster.processes import Process, ProcessState, launch, started_as
from fusee.cluster.state_file import STATE_NAME, read_state, write_state
from fusee.errors import ConfigError
from tests.cluster.idle import NAMES, SHAPE, idle, written_down

# Small files: a start after a kill looks through all of the last one.
SMALL = {"mappedFileSizeCommitLog": str(16 * 1024 * 1024), "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


NODES = nodes_of(Shape(groups=1, replicas=2, name_servers=2, first_port=20_000))


def running(data: Path) -> list[str]:
    """Nodes of which any process is there, written down or not."""
    commands = {NodeFiles(data, node).command: node.name for node in NODES}
    return sorted(commands[command] for command, process in started_as(commands) if not process.is_gone)


def test_cluster_lives_through_kill_pause_restart_stop_and_start(tmp_path: Path) -> None:
    told: dict[str, tuple[int, int]] = {}
    with LocalCluster(tmp_path, groups=1, replicas=2, name_servers=2, role="sync", settings=SMALL) as cluster:
        assert running(tmp_path) == sorted(node.name for node in NODES)
        assert cluster.status().is_ready
        with fusee.sync.connect(cluster.name_servers) as mq:
            assert mq.send("orders", b"safe").status is SendStatus.SEND_OK
            cluster.kill("broker-a-s1")
            assert mq.send("orders", b"alone").status is SendStatus.SLAVE_NOT_AVAILABLE
        found = cluster.status()
        assert found.missing == ("broker-a-s1 is killed",)
        master, slave = found.nodes[2:]
        assert (master.loss.disk_messages, master.loss.is_promised) == (1, False)
        assert slave.lag_bytes == master.loss.disk_bytes
        assert slave.lag_seconds is not None

        addresses = cluster.addresses
        cluster.restart("broker-a-s1", progress=lambda what, done, total: told.update({what: (done, total)}))
        assert told == {"registered": (4, 4), "replicating": (1, 1)}
        cluster.wait_level(20)
        assert [node.loss.disk_bytes for node in cluster.status().nodes] == [0, 0, 0, 0]
        cluster.pause("namesrv-1")
        assert cluster.status().missing == ("namesrv-1 is paused",)
        assert sorted(cluster.stop()) == ["broker-a", "broker-a-s1", "namesrv-1", "namesrv-2"]
        assert cluster.stop() == []
        assert running(tmp_path) == []
        assert {node.state for node in cluster.status().nodes} == {"stopped"}

        cluster.erase("broker-a-s1")
        again = LocalCluster.open(tmp_path).start()
        assert again.addresses == addresses
        again.wait_level(20)
        assert again.status().nodes[3].log_end_offset == again.status().nodes[2].log_end_offset != 0
    assert running(tmp_path) == []


def test_temporary_cluster_leaves_no_file(tmp_path: Path) -> None:
    with LocalCluster(groups=1, replicas=1, name_servers=1, settings=SMALL) as cluster:
        assert cluster.log_path("broker-a").read_text()
        folder = cluster.data
    assert not folder.exists()


def test_node_whose_port_is_snatched_at_the_first_start_gets_another(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, groups=1, replicas=1, name_servers=1, settings=SMALL)
    snatched: list[socket.socket] = []

    def snatch(what: str, done: int, total: int) -> None:
        if what == "name servers" and done == total and not snatched:
            snatched.append(socket.create_server(("127.0.0.1", cluster.nodes["broker-a"].ha_port)))

    try:
        cluster.start(progress=snatch)
        assert cluster.nodes["broker-a"].ha_port != snatched[0].getsockname()[1]
        assert cluster.status().is_ready
    finally:
        cluster.stop(grace=0)
        for server in snatched:
            server.close()


def test_start_that_fails_tells_the_last_words_and_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "broker-a").mkdir()
    (tmp_path / "broker-a" / "broker.conf").write_text("brokerRole=NEITHER\n")
    cluster = LocalCluster(tmp_path, groups=1, replicas=1, name_servers=1)
    with pytest.raises(ClusterError) as raised:
        cluster.start()
    assert "broker-a has ended by itself" in str(raised.value)
    assert "brokerRole=NEITHER" in str(raised.value)
    assert str(tmp_path / "broker-a" / "log") in str(raised.value)
    assert running(tmp_path) == []


def test_start_on_a_port_that_is_taken_says_which_and_leaves_nothing_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        cluster = LocalCluster(tmp_path, groups=1, replicas=1, name_servers=1, first_port=taken - 20)
        with pytest.raises(ClusterError) as raised:
            cluster.start()
    assert f"port {taken} of 127.0.0.1, which is taken" in str(raised.value)
    assert running(tmp_path) == []
    LocalCluster(tmp_path, groups=2)  # the next try may be another cluster


def test_start_of_what_runs_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    with written_down(tmp_path) as state:
        with pytest.raises(ClusterError, match="runs already .3 of 3 nodes"):
            LocalCluster.open(tmp_path).start()
        assert all(node.process is not None and not node.process.is_gone for node in state.nodes)


def test_kill_pause_and_resume_reach_the_process_of_a_node(tmp_path: Path) -> None:
    with written_down(tmp_path):
        cluster = LocalCluster.open(tmp_path)
        for _ in range(2):
            cluster.pause("broker-a")
            assert cluster.process_state("broker-a") is ProcessState.PAUSED
        for _ in range(2):
            cluster.resume("broker-a")
            assert cluster.is_running("broker-a")
        cluster.pause("broker-a")
        cluster.kill("broker-a")
        assert cluster.process_state("broker-a") is ProcessState.GONE
        assert cluster.nodes["broker-a"].wanted is Wanted.KILLED
        assert cluster.is_running("broker-a-s1")
        for change in (cluster.kill, cluster.pause, cluster.resume):
            with pytest.raises(ClusterError, match="broker-a does not run; `fusee cluster restart broker-a"):
                change("broker-a")


def test_node_that_does_not_exist_is_answered_with_those_that_do(tmp_path: Path) -> None:
    with written_down(tmp_path):
        cluster = LocalCluster.open(tmp_path)
        with pytest.raises(ClusterError, match="no node is called 'broker-b', did you mean broker-a. there are "):
            cluster.kill("broker-b")
        with pytest.raises(ClusterError, match=f"no node is called 'x'; there are {', '.join(NAMES)}"):
            cluster.node("x")


def test_stop_signals_nobody_who_got_the_number_of_a_node_that_is_gone(tmp_path: Path) -> None:
    with written_down(tmp_path) as state, idle(tmp_path / "stranger") as stranger:
        node = state.nodes[1]
        LocalCluster.open(tmp_path).kill(node.name)
        stale = msgspec.structs.replace(stranger, start_ticks=stranger.start_ticks - 1)
        found = read_state(tmp_path)
        assert found is not None
        write_state(tmp_path, found.with_node(msgspec.structs.replace(node, process=stale)))
        assert LocalCluster.open(tmp_path).stop() == ["broker-a-s1", "namesrv-1"]
        assert stranger.state is ProcessState.RUNNING


def test_stop_ends_what_an_interrupted_start_did_not_write_down_and_nobody_else(tmp_path: Path) -> None:
    with written_down(tmp_path) as state:
        cluster = LocalCluster.open(tmp_path)
        node = state.nodes[1]
        files = NodeFiles(tmp_path, node)
        config = broker_settings(node, files, SHAPE, cluster="c", name_servers=state.name_server_addresses)
        files.folder.mkdir()
        files.config.write_text(config.replace(f"listenPort={node.port}", "listenPort=0"))
        stray = launch(files.command, log=files.log, environment=dict(os.environ))
        with idle(tmp_path / "editor", str(files.config)) as editor:
            wait_for_command(stray, files.command)
            cluster.stop()
            assert stray.is_gone
            assert not editor.is_gone


def wait_for_command(process: Process, command: tuple[str, ...]) -> None:
    deadline = time.monotonic() + 20
    while (command, process) not in list(started_as([command])):
        assert time.monotonic() < deadline


def test_erase_takes_the_store_of_a_dead_broker_only(tmp_path: Path) -> None:
    with written_down(tmp_path):
        cluster = LocalCluster.open(tmp_path)
        store = cluster.store_path("broker-a")
        store.mkdir(parents=True)
        with pytest.raises(ClusterError, match="broker-a still runs; kill it"):
            cluster.erase("broker-a")
        cluster.kill("broker-a")
        cluster.erase("broker-a")
        assert not store.exists()


def test_remove_takes_only_what_belongs_to_the_cluster(tmp_path: Path) -> None:
    with written_down(tmp_path):
        cluster = LocalCluster.open(tmp_path)
        cluster.store_path("broker-a").mkdir(parents=True)
        with pytest.raises(ClusterError, match="still run; stop the cluster before you remove it"):
            cluster.remove()
        cluster.stop(grace=0)
        cluster.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3"]


def test_open_of_a_folder_without_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=f"no cluster in {tmp_path}: start one by `fusee cluster start --data"):
        LocalCluster.open(tmp_path)


def test_cluster_of_another_shape_is_not_taken_for_ours(tmp_path: Path) -> None:
    with written_down(tmp_path), pytest.raises(ConfigError, match="holds another cluster: 1 group, 1 slave each"):
        LocalCluster(tmp_path, groups=2)


def test_state_that_went_away_is_said(tmp_path: Path) -> None:
    with written_down(tmp_path):
        cluster = LocalCluster.open(tmp_path)
        (tmp_path / STATE_NAME).unlink()
        with pytest.raises(ClusterError, match="it was not started yet, or was removed"):
            cluster.addresses  # noqa: B018


def test_call_that_would_hold_up_a_loop_is_refused_but_a_fault_is_not(tmp_path: Path) -> None:
    async def break_it() -> None:
        cluster = LocalCluster.open(tmp_path)
        cluster.pause("broker-a")
        cluster.resume("broker-a")
        with pytest.raises(ClusterError, match="asyncio.to_thread"):
            cluster.status()
        assert (await asyncio.to_thread(cluster.status)).missing

    with written_down(tmp_path):
        asyncio.run(break_it())
