"""The real clients, current and old, find their broker through the name servers under test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.harness.programs import Consumer, Producer
from tests.interop.harness.toolchain import CURRENT, OLD

if TYPE_CHECKING:
    from tests.interop.harness.cluster import Cluster
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

COUNT_QUICK = 20
COUNT_LONG = 2000

PAIRS = {
    "current_to_old": (CURRENT, OLD, False),
    "old_to_current": (OLD, CURRENT, False),
    "current_to_current_in_binary_form": (CURRENT, CURRENT, True),
    "old_to_old_in_binary_form": (OLD, OLD, True),
}


@pytest.mark.parametrize("count", [pytest.param(COUNT_QUICK, marks=pytest.mark.quick), pytest.param(COUNT_LONG)])
@pytest.mark.parametrize("pair", PAIRS)
def test_messages_go_from_producer_to_consumer(
    cluster: Cluster, fleet: Fleet, current: Runtime, old: Runtime, pair: str, count: int
) -> None:
    sender, receiver, binary = PAIRS[pair]
    runtimes = {CURRENT: current, OLD: old}
    topic = f"interop_{pair}_{count}"
    producer = Producer(fleet, runtimes[sender], cluster.addresses, group=f"P_{topic}", binary=binary)
    consumer = Consumer(fleet, runtimes[receiver], cluster.addresses, topic, group=f"C_{topic}", binary=binary)
    producer.await_ready()
    sent = producer.send(topic, count, "m")
    assert [(event["event"], event.get("status")) for event in sent] == [("sent", "SEND_OK")] * count, sent
    consumer.await_ready()
    received = consumer.messages({event["name"] for event in sent})
    producer.close()
    consumer.close()
    assert_same(sent, received)


def assert_same(sent: list[dict[str, Any]], received: list[dict[str, Any]]) -> None:
    """Every message arrived once, from where it was stored, with all that it carried."""
    places = ("name", "topic", "brokerName", "queueId", "queueOffset", "msgId")
    # The old client does not tell a consumer which broker a message came from.
    known = [key for key in places if received[0].get(key) is not None]
    assert sorted(([event[key] for key in known] for event in sent), key=str) == sorted(
        ([message[key] for key in known] for message in received), key=str
    )
    for message in received:
        assert message["tags"] == "TagA"
        assert message["origin"] == message["name"]
        assert message["body"] == f"body of {message['name']} é"
        assert message["reconsumeTimes"] == 0
