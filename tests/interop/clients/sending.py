"""Cells about sending: the client sends, and what the broker stored is read by the judge."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.clients.programs import Consumer, Draft, Fields, Producer
from tests.interop.clients.servers import DELAYS_S
from tests.interop.clients.stage import assert_places, assert_same, drafts, ids_of, keys_of
from tests.interop.harness import probe
from tests.interop.harness.processes import eventually

if TYPE_CHECKING:
    from tests.interop.clients.stage import Stage

# Large enough for every client to compress it.
LARGE_BODY: Final = "0123456789 àéîõü " * 1000
# Most that a delivery may come after its time, on a machine that is busy.
LATENESS_MAX_MS: Final = 5000


def send_sync(stage: Stage, client: str) -> None:
    topic = stage.topic("send_sync", client)
    messages = [*drafts(topic, 20), Draft(topic, "large", LARGE_BODY)]
    producer = Producer(stage.program(client), stage.name_servers, f"PG_{topic}")
    results = producer.send(messages)
    stored = stage.await_stored(topic, keys_of(messages))
    assert_same(messages, stored)
    assert_places(messages, results, stored)
    producer.close()


def send_async(stage: Stage, client: str) -> None:
    topic = stage.topic("send_async", client)
    messages = [*drafts(topic, 20), Draft(topic, "large", LARGE_BODY)]
    producer = Producer(stage.program(client), stage.name_servers, f"PG_{topic}")
    results = producer.send(messages, "async")
    stored = stage.await_stored(topic, keys_of(messages))
    assert_same(messages, stored)
    assert_places(messages, results, stored)
    producer.close()


def send_oneway(stage: Stage, client: str) -> None:
    topic = stage.topic("send_oneway", client)
    messages = drafts(topic, 20)
    producer = Producer(stage.program(client), stage.name_servers, f"PG_{topic}")
    assert producer.send(messages, "oneway") == []
    assert_same(messages, stage.await_stored(topic, keys_of(messages)))
    producer.close()


def send_batch(stage: Stage, client: str) -> None:
    topic = stage.topic("send_batch", client)
    batches = [drafts(topic, 10, "first"), drafts(topic, 5, "second")]
    producer = Producer(stage.program(client), stage.name_servers, f"PG_{topic}")
    results = [producer.send(batch, "batch") for batch in batches]
    everything = [*batches[0], *batches[1]]
    stored = stage.await_stored(topic, keys_of(everything))
    assert_same(everything, stored)
    by_key = {message["keys"]: message for message in stored}
    for batch, [result] in zip(batches, results, strict=True):
        assert result["status"] == "SEND_OK", result
        places = [(by_key[draft.keys]["queueId"], by_key[draft.keys]["queueOffset"]) for draft in batch]
        # One queue, side by side, in the order of the batch; the answer names the first place.
        assert places == [(places[0][0], places[0][1] + i) for i in range(len(batch))]
        assert result["queueOffset"] == places[0][1], (result, places)
        assert_batch_ids(batch, result, by_key)
    producer.close()


def assert_batch_ids(batch: list[Draft], result: Fields, by_key: dict[str, Fields]) -> None:
    """Where the client names ids, there is one per message, in order; the broker's answer has them joined by commas."""
    for name in ("id", "offsetId"):
        ids = [each for each in (result.get(name) or "").split(",") if each]
        if len(ids) > 1 or name == "offsetId":
            assert all(each in ids_of(by_key[draft.keys]) for each, draft in zip(ids, batch, strict=False)), result
            assert len(ids) in (0, len(batch)), result


def send_ordered(stage: Stage, client: str) -> None:
    topic = stage.topic("send_ordered", client)
    # No shard 0: one client takes it for no shard.
    messages = [dataclasses.replace(draft, shard=i % 3 + 1) for i, draft in enumerate(drafts(topic, 30))]
    producer = Producer(stage.program(client), stage.name_servers, f"PG_{topic}")
    results = producer.send(messages, "ordered")
    stored = stage.await_stored(topic, keys_of(messages))
    assert_same(messages, stored)
    assert_places(messages, results, stored)
    for shard in (1, 2, 3):
        wanted = [draft.keys for draft in messages if draft.shard == shard]
        queue = sorted((m for m in stored if m["queueId"] == shard), key=lambda message: int(message["queueOffset"]))
        assert [message["keys"] for message in queue] == wanted
    producer.close()


def send_delayed(stage: Stage, client: str) -> None:
    topic = stage.topic("send_delayed", client)
    messages = [
        Draft(topic, "at-once", "é"),
        Draft(topic, "level-1", "é", delay_level=1),
        Draft(topic, "level-2", "é", delay_level=2),
        Draft(topic, "level-1-again", "é", delay_level=1),
    ]
    producer = Producer(stage.program(client), stage.name_servers, f"PG_{topic}")
    results = producer.send(messages)
    assert [result["status"] for result in results] == ["SEND_OK"] * len(messages), results
    stored = stage.await_stored(topic, keys_of(messages))
    assert_same(messages, stored)
    by_key = {message["keys"]: message for message in stored}
    for draft in messages:
        message = by_key[draft.keys]
        delay_ms = DELAYS_S[draft.delay_level - 1] * 1000 if draft.delay_level else 0
        assert delay_ms <= message["storeMs"] - message["bornMs"] <= delay_ms + LATENESS_MAX_MS, message
    producer.close()


def transaction(stage: Stage, client: str) -> None:
    topic = stage.topic("transaction", client)
    endings = [("commit", "unknown"), ("rollback", "unknown"), ("unknown", "commit"), ("unknown", "rollback")]
    messages = [
        dataclasses.replace(draft, outcome=outcome, check=check)
        for outcome, check in endings
        for draft in drafts(topic, 2, f"{outcome}-{check}")
    ]
    producer = Producer(stage.program(client), stage.name_servers, f"PG_{topic}", transactional=True)
    results = producer.transact(messages)
    assert [result["status"] for result in results] == ["SEND_OK"] * len(messages), results
    asked = {draft.keys for draft in messages if draft.outcome == "unknown"}
    eventually("the broker asks about every open transaction", lambda: producer.checks().keys() >= asked)
    committed = [draft for draft in messages if "commit" in (draft.outcome, draft.check)]
    stored = stage.await_stored(topic, keys_of(committed))
    assert_same(committed, stored)
    by_key = {message["keys"]: message for message in stored}
    for draft, result in zip(messages, results, strict=True):
        if draft in committed:
            assert result["id"] in ids_of(by_key[draft.keys])
    assert producer.checks().keys() == asked
    producer.close()


def request_reply(stage: Stage, client: str) -> None:
    topic = stage.topic("request_reply", client)
    program = stage.program(client)
    replier = Consumer(program, stage.name_servers, f"GID_{topic}", topic, reply=True)
    producer = Producer(program, stage.name_servers, f"PG_{topic}")
    questions = drafts(topic, 3)
    for question in questions:
        reply = producer.request(question, timeout_s=20.0)
        assert reply["body"] == f"reply to {question.keys}"
        assert reply["properties"]["CORRELATION_ID"], reply
    producer.close()
    assert_same(questions, replier.close())


def tls(stage: Stage, client: str) -> None:
    """Through TLS on both servers, where the broker takes nothing else: a plain question gets no answer."""
    servers = stage.tls_servers
    address = servers.name_server.address
    topic = f"tls-{client.replace('.', '_')}"
    program = stage.program(client)
    messages = drafts(topic, 10)
    producer = Producer(program, address, f"PG_{topic}", tls=True)
    results = producer.send(messages)
    consumer = Consumer(program, address, f"GID_{topic}", topic, tls=True)
    received = consumer.await_keys(keys_of(messages))
    assert_same(messages, received)
    assert_places(messages, results, received)
    consumer.close()
    producer.close()
    with pytest.raises(OSError):
        probe.ask(servers.broker.address, probe.GET_BROKER_RUNTIME_INFO)
