"""The queues of a topic as a producer uses them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fusee.client.latency import LatencyFaults
from fusee.client.outlet import Lane
from fusee.client.publication import Publication
from fusee.client.routes import topic_route
from fusee.clock import ManualClock
from fusee.errors import MessageError
from fusee.message.model import MessageQueue
from fusee.wire.bodies.route import BrokerData, QueueData, TopicRouteData


def route(**queues: int) -> Any:
    return topic_route(
        "orders",
        TopicRouteData(
            broker_datas=[BrokerData(broker_name=name, broker_addrs={0: f"{name}:1"}) for name in queues],
            queue_datas=[
                QueueData(broker_name=name, perm=6, read_queue_nums=count, write_queue_nums=count)
                for name, count in queues.items()
            ],
        ),
    )


def publication(**queues: int) -> Publication:
    clock = ManualClock()
    open_brokers: set[str] = set()

    def lane(queue: MessageQueue) -> Lane:
        outlet = SimpleNamespace(is_open=queue.broker_name in open_brokers)
        return Lane(queue, cast("Any", outlet), group="g", default_topic="TBW102", default_topic_queue_nums=4)

    made = Publication("orders", lane, start=0, clock=clock, timers=clock)
    made.adopt(route(**queues))
    return made


def test_queues_take_turns() -> None:
    orders = publication(a=2, b=1)
    taken = [orders.next_lane().queue for _ in range(6)]
    assert taken[:3] == taken[3:]
    assert sorted(taken[:3]) == sorted(orders.queues)


def test_new_route_replaces_queues_and_an_empty_one_does_not() -> None:
    orders = publication(a=2)
    lanes = orders.lanes
    orders.adopt(route(a=2))
    assert orders.lanes is lanes
    orders.adopt(route())
    assert orders.lanes is lanes
    orders.adopt(route(a=1, b=1))
    assert [lane.broker_name for lane in orders.lanes] == ["a", "b"]


def test_broker_that_failed_is_avoided_while_there_is_another() -> None:
    orders = publication(a=3, b=1)
    assert {orders.lane_avoiding("a", None, 0.0).broker_name for _ in range(8)} == {"b"}
    assert publication(a=2).lane_avoiding("a", None, 0.0).broker_name == "a"


def test_available_brokers_come_before_reachable_ones_before_any() -> None:
    orders, faults = publication(a=1, b=1, c=1), LatencyFaults()
    faults.update("a", 16_000, 0.0)
    assert {orders.lane_avoiding("", faults, 1.0).broker_name for _ in range(6)} == {"b", "c"}
    assert {orders.lane_avoiding("b", faults, 1.0).broker_name for _ in range(6)} == {"c"}
    for name in "bc":
        faults.update(name, 1, 0.0, failed=True, reachable=False)
    assert {orders.lane_avoiding("", faults, 1.0).broker_name for _ in range(6)} == {"a"}
    faults.update("a", 1, 0.0, failed=True, reachable=False)
    assert {orders.lane_avoiding("", faults, 1.0).broker_name for _ in range(6)} == {"a", "b", "c"}
    assert {orders.lane_avoiding("", faults, 31.0).broker_name for _ in range(6)} == {"a", "b", "c"}


def test_open_lane_is_of_another_broker_with_an_open_way() -> None:
    orders = publication(a=1, b=1)
    assert orders.open_lane("") is None
    for lane in orders.lanes:
        cast("Any", lane.outlet).is_open = True
    found = orders.open_lane("a")
    assert found is not None
    assert found.broker_name == "b"


def test_lane_of_a_queue_outside_the_route_is_made_and_remembered() -> None:
    orders = publication(a=1)
    inside, outside = MessageQueue("orders", "a", 0), MessageQueue("orders", "z", 9)
    assert orders.lane_of(inside) is orders.lanes[0]
    assert orders.lane_of(outside) is orders.lane_of(outside)
    assert orders.lane_of(outside).queue == outside
    with pytest.raises(MessageError, match="cannot go to a queue of topic 'others'"):
        orders.lane_of(MessageQueue("others", "a", 0))
