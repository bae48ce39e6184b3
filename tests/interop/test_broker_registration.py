"""Real brokers come and go at the name servers under test: crash, farewell, a replica and its master."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.harness import probe
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.processes import eventually
from tests.interop.harness.programs import Producer
from tests.interop.harness.servers import JavaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def module_cluster(fleet: Fleet, current: Runtime) -> Iterator[Cluster]:
    cluster = Cluster(fleet, current, with_oracle=True)
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture
def own_cluster(module_cluster: Cluster) -> Cluster:
    """Brokers die here, so the cluster is not that of the other modules."""
    module_cluster.heal()
    return module_cluster


def test_broker_that_is_killed_disappears_at_once_and_returns(own_cluster: Cluster) -> None:
    own_cluster.broker.kill()
    assert_gone(own_cluster)
    own_cluster.broker.start()
    own_cluster.broker.await_ready()
    for server in own_cluster.name_servers:
        assert probe.route_of(server.address, "TBW102") is not None, server.name


def test_broker_that_says_farewell_disappears(own_cluster: Cluster) -> None:
    own_cluster.broker.stop()
    assert_gone(own_cluster)


def test_replica_finds_its_master_and_copies_the_log(own_cluster: Cluster, fleet: Fleet, current: Runtime) -> None:
    master = own_cluster.broker
    # The oracle is left out: only our answer can tell the replica where its master is.
    replica = JavaBroker(fleet, current, own_cluster.subjects, broker_id=1)
    replica.start()
    replica.await_ready()
    members = {"0": master.address, "1": replica.address}
    for server in own_cluster.subjects:
        assert probe.brokers_of(server.address) == {"broker-a": members}
    producer = Producer(fleet, current, own_cluster.addresses, group="P_replica")
    producer.await_ready()
    producer.send("interop_replica", 50, "m")
    producer.close()
    log_size = master.runtime_info()["commitLogMaxOffset"]
    assert int(log_size) > 0
    eventually(
        "the replica has the master's log",
        lambda: replica.runtime_info()["commitLogMaxOffset"] == log_size,
    )
    route = probe.route_of(own_cluster.first.address, "interop_replica")
    assert route is not None
    assert route["brokerDatas"][0]["brokerAddrs"] == members
    replica.kill()
    for server in own_cluster.subjects:
        server.await_brokers({"broker-a": {"0": master.address}})


def assert_gone(cluster: Cluster) -> None:
    for server in cluster.name_servers:
        server.await_brokers({})
        assert probe.route_of(server.address, "TBW102") is None, server.name
