"""What a cluster consists of: names, ports, settings."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.config import load_settings
from fusee.cluster.plan import (
    BROKERS_MAX,
    Node,
    NodeFiles,
    Shape,
    broker_settings,
    check_settings,
    name_server_settings,
    nodes_of,
    ports_needed,
)
from fusee.config import load
from fusee.errors import ConfigError
from fusee.namesrv import NameServerConfig


def test_nodes_have_the_names_people_give_them() -> None:
    nodes = nodes_of(Shape(groups=2, replicas=3, name_servers=2, first_port=9876))
    assert [(node.name, node.role) for node in nodes] == [
        ("namesrv-1", ""),
        ("namesrv-2", ""),
        ("broker-a", "ASYNC_MASTER"),
        ("broker-a-s1", "SLAVE"),
        ("broker-a-s2", "SLAVE"),
        ("broker-b", "ASYNC_MASTER"),
        ("broker-b-s1", "SLAVE"),
        ("broker-b-s2", "SLAVE"),
    ]
    assert [node.port for node in nodes] == [9876, 9877, 9896, 9906, 9916, 9926, 9936, 9946]
    assert nodes[2].ports == (9896, 9894, 9897)
    assert nodes[2].address == "127.0.0.1:9896"


def test_only_the_first_groups_have_slaves_and_other_masters_wait_for_none() -> None:
    shape = Shape(groups=2, replicas=2, replicated_groups=1, name_servers=1, role="sync", first_port=9876)
    assert [(node.name, node.role) for node in nodes_of(shape)] == [
        ("namesrv-1", ""),
        ("broker-a", "SYNC_MASTER"),
        ("broker-a-s1", "SLAVE"),
        ("broker-b", "ASYNC_MASTER"),
    ]
    assert shape.text == "2 groups, 1 slave for 1 of them, 1 name server, role sync, flush async"


shapes = st.builds(
    Shape,
    groups=st.integers(1, 8),
    replicas=st.integers(1, 8),
    replicated_groups=st.one_of(st.none(), st.just(0), st.just(1)),
    name_servers=st.integers(1, 9),
    role=st.sampled_from(["sync", "async"]),
    first_port=st.sampled_from([0, 1024, 30_000]),
)


@given(shapes)
def test_ports_and_names_never_collide(shape: Shape) -> None:
    nodes = nodes_of(shape, range(20_000, 20_000 + ports_needed(shape)))
    ports = [port for node in nodes for port in node.ports]
    assert len(ports) == len(set(ports)) == ports_needed(shape)
    assert len({node.name for node in nodes}) == len(nodes)
    assert sum(node.is_master for node in nodes) == shape.groups


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"groups": 0}, "groups = 0: between 1 and 26"),
        ({"replicas": 10}, "replicas = 10: between 1 and 9"),
        ({"name_servers": 10}, "name_servers = 10"),
        ({"groups": 26, "replicas": 9}, f"234 brokers; at most {BROKERS_MAX}"),
        ({"replicated_groups": 3}, "replicated_groups = 3: between 0 and 2, the groups"),
        ({"role": "both"}, "role = 'both': write sync or async"),
        ({"flush": ""}, "flush = '': write sync or async"),
        ({"first_port": 80}, "port 80: between 1024"),
        ({"first_port": 65_500}, "port 65500: between 1024 and 65475"),
    ],
)
def test_shape_out_of_range_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        msgspec.structs.replace(Shape(), **changes)
    assert says in str(raised.value)


def test_shape_in_words() -> None:
    assert Shape().text == "2 groups, 1 slave each, 3 name servers, role async, flush async"
    alone = Shape(groups=1, replicas=1, name_servers=1, role="sync")
    assert alone.text == "1 group, no slaves, 1 name server, role sync, flush async"
    assert "2 slaves each" in Shape(replicas=3).text


def broker_of(shape: Shape, name: str) -> Node:
    return next(node for node in nodes_of(shape) if node.name == name)


def test_broker_settings_are_read_back_as_meant(tmp_path: Path) -> None:
    shape = Shape(role="sync", flush="sync", first_port=9876, settings={"slaveReadEnable": "true"})
    for name in ("broker-b", "broker-b-s1"):
        node = broker_of(shape, name)
        files = NodeFiles(tmp_path / "a b", node)
        files.folder.mkdir(parents=True)
        files.config.write_text(broker_settings(node, files, shape, cluster="c", name_servers="h:1;h:2"))
        loaded = load_settings(file=files.config)
        assert loaded.ignored == ()
        broker = loaded.broker
        assert (broker.broker_name, broker.broker_id, broker.broker_role) == ("broker-b", node.broker_id, node.role)
        assert (broker.listen_port, broker.fast_listen_port, broker.ha_listen_port) == node.ports
        assert (broker.bind_address, broker.broker_ip1) == ("127.0.0.1", "127.0.0.1")
        assert broker.namesrv_addr == "h:1;h:2"
        assert broker.broker_cluster_name == "c"
        assert broker.slave_read_enable
        assert loaded.store.flush_disk_type.value == "SYNC_FLUSH"
        assert loaded.store_path == str(files.store)


def test_name_server_settings_are_read_back_as_meant(tmp_path: Path) -> None:
    node = nodes_of(Shape(first_port=9876))[1]
    files = NodeFiles(tmp_path, node)
    files.folder.mkdir()
    files.config.write_text(name_server_settings(node, files))
    loaded = load(NameServerConfig, program="namesrv", file=files.config)
    assert loaded.ignored == ()
    assert (loaded.value.bind_address, loaded.value.listen_port) == ("127.0.0.1", 9877)
    assert loaded.value.kv_config_path.startswith(str(files.folder))


def test_settings_are_taken_in_either_spelling() -> None:
    given = {"slaveReadEnable": "true", "mapped_file_size_commit_log": "1048576"}
    assert check_settings(given) == {"slaveReadEnable": "true", "mappedFileSizeCommitLog": "1048576"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("slaveReadEnabled", "true", "no setting 'slaveReadEnabled', did you mean slaveReadEnable?"),
        ("qqqq", "1", "no setting 'qqqq'; `fusee broker --print-config` lists all"),
        ("listenPort", "1", "listenPort is decided by the cluster's own options"),
        ("broker_id", "1", "broker_id is decided by the cluster's own options"),
        ("storePathRootDir", "/", "storePathRootDir is decided by the cluster's own options"),
        ("slaveReadEnable", "perhaps", "slave_read_enable = 'perhaps'"),
    ],
)
def test_wrong_settings_are_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_settings({name: value})
    assert says in str(raised.value)
