"""Name servers die and come back while the real broker and the real clients go on working."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.harness import probe
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.programs import Consumer, Producer
from tests.interop.harness.servers import NameServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


_WRITE_TO_THE_DEAD = "RemotingSendRequestException"


class Traffic:
    """A producer and a consumer that must lose nothing, each step also on a topic nobody knows yet."""

    def __init__(self, cluster: Cluster, fleet: Fleet, runtime: Runtime) -> None:
        self._name = f"interop_loss_{runtime.name.replace('.', '_').replace('-', '_')}"
        self._cluster = cluster
        self._topics: list[str] = []
        self._producer = Producer(fleet, runtime, cluster.addresses, group=f"P_{self._name}")
        self._consumer = Consumer(fleet, runtime, cluster.addresses, f"{self._name}_0", group=f"C_{self._name}")

    def await_ready(self) -> None:
        self._producer.await_ready()
        self._consumer.await_ready()

    def flow(self, count: int) -> None:
        """Messages to the first topic and to a new one, which needs a route from a living name server."""
        step = len(self._topics)
        topic = f"{self._name}_{step}"
        self._topics.append(topic)
        names = set()
        for target in {self._topics[0], topic}:
            prefix = f"{target}-step{step}"
            sent = self._producer.send(target, count, prefix)
            failures = [event for event in sent if event.get("status") != "SEND_OK"]
            assert len(sent) == count
            if failures and all(_WRITE_TO_THE_DEAD in event["error"] for event in failures):
                # The Java client was writing its route query to the very connection that died. It throws then, and
                # moves on with the next call: its user sends again.
                names |= {event["name"] for event in sent if event not in failures}
                sent = self._producer.send(target, len(failures), f"{prefix}-again")
                failures = [event for event in sent if event.get("status") != "SEND_OK"]
            assert not failures, f"step {step}: {failures[:3]}"
            names |= {event["name"] for event in sent}
        if step:
            self._consumer.subscribe(topic)
        received = self._consumer.messages(names)
        assert all(message["reconsumeTimes"] == 0 for message in received)

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()

    @property
    def first_topic(self) -> str:
        return self._topics[0]


@pytest.fixture(scope="module")
def module_cluster(fleet: Fleet, current: Runtime) -> Iterator[Cluster]:
    cluster = Cluster(fleet, current, with_oracle=False)
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture
def lone_cluster(module_cluster: Cluster) -> Cluster:
    """Two name servers under test and nobody else: even the broker has no other place to ask."""
    module_cluster.heal()
    return module_cluster


@pytest.mark.quick
def test_clients_and_broker_outlive_the_loss_of_each_name_server(
    cluster: Cluster, fleet: Fleet, current: Runtime
) -> None:
    traffic = Traffic(cluster, fleet, current)
    traffic.await_ready()
    traffic.flow(5)
    lose_each_in_turn(cluster, [traffic], NameServer.kill, count=5)
    traffic.close()


def test_clients_of_both_versions_outlive_repeated_losses(
    lone_cluster: Cluster, fleet: Fleet, current: Runtime, old: Runtime
) -> None:
    traffics = [Traffic(lone_cluster, fleet, runtime) for runtime in (current, old)]
    for traffic in traffics:
        traffic.await_ready()
        traffic.flow(200)
    for end in (NameServer.kill, NameServer.stop):
        lose_each_in_turn(lone_cluster, traffics, end, count=200)
        lone_cluster.heal()
    for traffic in traffics:
        traffic.flow(200)
        traffic.close()


def test_name_servers_that_all_died_come_back_to_the_same_routes(lone_cluster: Cluster) -> None:
    before = probe.route_of(lone_cluster.first.address, "TBW102")
    assert before is not None
    for server in lone_cluster.subjects:
        server.kill()
    lone_cluster.heal()
    for server in lone_cluster.subjects:
        assert probe.route_of(server.address, "TBW102") == before


def lose_each_in_turn(
    cluster: Cluster, traffics: list[Traffic], end: Callable[[NameServer], object], *, count: int
) -> None:
    """The first ends and returns, then the second ends: at each moment one of them holds the routes."""
    kv = {"namespace": "INTEROP_LOSS", "key": "kept"}
    assert probe.ask(cluster.first.address, probe.PUT_KV_CONFIG, {**kv, "value": "v"}).code == 0
    end(cluster.first)
    for traffic in traffics:
        traffic.flow(count)
    cluster.first.start()
    cluster.first.await_ready()
    assert probe.ask(cluster.first.address, probe.GET_KV_CONFIG, kv).fields == {"value": "v"}
    cluster.broker.await_registration(cluster.first)
    for traffic in traffics:
        cluster.first.await_topic(traffic.first_topic)
    end(cluster.second)
    for traffic in traffics:
        traffic.flow(count)
