"""Shares of queues: as the Java classes gave them, and what holds for any group."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.consumer.assignment import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    id_order,
    queue_order,
    strategy,
)
from fusee.errors import ConfigError
from fusee.message.model import MessageQueue

GOLDEN = Path(__file__).parents[2] / "golden" / "client" / "allocations.jsonl.xz"


@cache
def golden_cases() -> list[dict[str, Any]]:
    with lzma.open(GOLDEN) as stream:
        return [msgspec.json.decode(line) for line in stream]


def queues_of(case: dict[str, Any]) -> list[MessageQueue]:
    queues = [
        MessageQueue(case["topic"], broker_name, queue_id)
        for broker_name, count in case["brokers"].items()
        for queue_id in reversed(range(count))
    ]
    return sorted(queues, key=queue_order)


def nearby(inner: AllocateStrategy) -> MachineRoomNearby:
    return MachineRoomNearby(
        inner, broker_room=lambda queue: queue.broker_name.split("-")[0], client_room=lambda name: name.split("-")[0]
    )


def strategy_of(case: dict[str, Any]) -> AllocateStrategy:
    name: str = case["strategy"]
    if name == "CONFIG":
        return Configured(MessageQueue(case["topic"], broker, queue_id) for broker, queue_id in case["queues"])
    if name == "MACHINE_ROOM":
        return MachineRoom(case["rooms"])
    if name.startswith("MACHINE_ROOM_NEARBY-"):
        return nearby(strategy(name.removeprefix("MACHINE_ROOM_NEARBY-")))
    if "virtual_nodes" in case:
        return ConsistentHash(case["virtual_nodes"])
    return strategy(name)


@pytest.mark.parametrize("name", sorted({case["strategy"] for case in golden_cases()}))
def test_allocate_gives_what_java_gave(name: str) -> None:
    cases = [case for case in golden_cases() if case["strategy"] == name]
    for case in cases:
        queues, client_ids = queues_of(case), sorted(case["client_ids"], key=id_order)
        chosen = strategy_of(case)
        assert chosen.name == name
        for client_id, expected in case["allocated"].items():
            if isinstance(expected, str):
                with pytest.raises(ConfigError):
                    chosen.allocate("group", client_id, queues, client_ids)
            else:
                assert chosen.allocate("group", client_id, queues, client_ids) == [queues[at] for at in expected], case


def test_golden_cases_are_many() -> None:
    assert len(golden_cases()) > 400


client_id_lists = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=12, unique=True)
broker_counts = st.dictionaries(
    st.sampled_from(["room1-a", "room1-b", "room2-a", "room3-a", "x"]), st.integers(1, 9), min_size=1
)


@given(
    client_ids=client_id_lists,
    brokers=broker_counts,
    chosen=st.sampled_from([Averagely(), AveragelyByCircle(), ConsistentHash()]),
)
def test_shares_of_all_members_are_every_queue_once(
    client_ids: list[str], brokers: dict[str, int], chosen: AllocateStrategy
) -> None:
    queues = queues_of({"topic": "t", "brokers": brokers})
    shares = [chosen.allocate("g", client_id, queues, client_ids) for client_id in client_ids]
    assert sorted((queue for share in shares for queue in share), key=queue_order) == queues


@given(rooms=st.lists(st.sampled_from(["room1", "room2", "room4"]), min_size=1, max_size=9), brokers=broker_counts)
def test_shares_by_room_are_every_queue_once(rooms: list[str], brokers: dict[str, int]) -> None:
    client_ids = sorted(f"{room}-{number}" for number, room in enumerate(rooms))
    queues = queues_of({"topic": "t", "brokers": brokers})
    chosen = nearby(Averagely())
    shares = {client_id: chosen.allocate("g", client_id, queues, client_ids) for client_id in client_ids}
    assert sorted((queue for share in shares.values() for queue in share), key=queue_order) == queues
    for client_id, share in shares.items():
        for queue in share:
            room = queue.broker_name.split("-")[0]
            assert room not in rooms or room == client_id.split("-")[0]


@given(client_ids=client_id_lists, brokers=broker_counts)
def test_averagely_when_divided_differs_by_one_at_most(client_ids: list[str], brokers: dict[str, int]) -> None:
    queues = queues_of({"topic": "t", "brokers": brokers})
    for chosen in (Averagely(), AveragelyByCircle()):
        sizes = [len(chosen.allocate("g", client_id, queues, client_ids)) for client_id in client_ids]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


def test_configured_when_topic_is_another_gives_nothing() -> None:
    configured = Configured([MessageQueue("orders", "a", 0)])
    assert configured.allocate("g", "me", [MessageQueue("bills", "a", 0)], ["me"]) == []


def test_configured_when_retry_topic_is_not_configured_divides_it_averagely() -> None:
    configured = Configured([MessageQueue("orders", "a", 0)])
    retry = [MessageQueue("%RETRY%g", "a", 0), MessageQueue("%RETRY%g", "b", 0)]
    assert configured.allocate("g", "me", retry, ["me", "you"]) == retry[:1]
    assert configured.allocate("g", "you", retry, ["me", "you"]) == retry[1:]


def test_configured_when_retry_topic_is_configured_gives_that() -> None:
    chosen = MessageQueue("%RETRY%g", "b", 0)
    retry = [MessageQueue("%RETRY%g", "a", 0), chosen]
    assert Configured([chosen]).allocate("g", "me", retry, ["me"]) == [chosen]


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_strategy_by_name(name: str) -> None:
    assert strategy(name).name == name


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("MACHINE_ROOM", "MachineRoom"),
        ("MACHINE_ROOM_NEARBY", "MachineRoomNearby"),
        ("CONFIG", "Configured"),
        ("avg", "AVG_BY_CIRCLE"),
    ],
)
def test_strategy_when_name_is_not_enough_says_what_is(name: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=fix):
        strategy(name)


def test_consistent_hash_when_virtual_nodes_negative_is_refused() -> None:
    with pytest.raises(ConfigError, match="virtual_nodes"):
        ConsistentHash(-1)


def test_allocate_when_client_id_is_empty_is_refused() -> None:
    with pytest.raises(ConfigError, match="client id"):
        Averagely().allocate("g", "", [MessageQueue("t", "a", 0)], ["x"])
