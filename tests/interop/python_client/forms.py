"""Messages of every form from a client of one language to a client of another."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import TYPE_CHECKING, Final

from tests.interop.clients.programs import Consumer, Draft, Producer
from tests.interop.clients.servers import DELAYS_S
from tests.interop.clients.stage import assert_places, assert_same, drafts, ids_of, keys_of
from tests.interop.harness.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.clients.programs import ClientProgram, Fields
    from tests.interop.clients.stage import Stage

FOUR_MIB: Final = 4 * 1024 * 1024
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
COMPRESSIBLE: Final = "0123456789 àéîõü 消息 🚀 " * 1000
LATENESS_MAX_MS: Final = 5_000


class Passage:
    """A topic with a sender at one end and a receiver at the other."""

    def __init__(self, stage: Stage, sender: ClientProgram, receiver: ClientProgram, topic: str) -> None:
        self._stage = stage
        self._sender = sender
        self._receiver = receiver
        self.topic = topic

    def carry(
        self,
        messages: list[Draft],
        send: Callable[[Producer], list[Fields]],
        *,
        transactional: bool = False,
        lost: tuple[Draft, ...] = (),
    ) -> tuple[list[Fields], list[Fields]]:
        """The results of sending, and what arrived: each message once and whole, and those lost not at all."""
        stage, topic = self._stage, self.topic
        consumer = Consumer(self._receiver, stage.name_servers, f"GID_{topic}", topic)
        producer = Producer(self._sender, stage.name_servers, f"PG_{topic}", transactional=transactional)
        results = send(producer)
        wanted = [message for message in messages if message not in lost]
        consumer.await_keys(keys_of(wanted))
        received = consumer.close()
        producer.close()
        assert_same(wanted, received)
        return results, received


def plain(passage: Passage) -> None:
    messages = [
        *drafts(passage.topic, 10),
        Draft(passage.topic, "several keys", "x", tags="TagA", properties={"größe 消": "ñ 🚀 = ; , \\ \" '"}),
        Draft(passage.topic, "schlüssel-消-🚀", "Grüße, 世界 🚀\n\t", tags="zahlung-é"),
        Draft(passage.topic, "long", "x", properties={f"name-{i}": "v" * 300 for i in range(40)}),
    ]
    results, received = passage.carry(messages, lambda producer: producer.send(messages))
    assert_places(messages, results, received)
    by_key = {message["keys"]: message for message in received}
    for draft in messages:
        for name, value in draft.properties.items():
            assert by_key[draft.keys]["properties"][name] == value


def called_back(passage: Passage) -> None:
    messages = drafts(passage.topic, 20)
    results, received = passage.carry(messages, lambda producer: producer.send(messages, "async"))
    assert_places(messages, results, received)


def oneway(passage: Passage) -> None:
    messages = drafts(passage.topic, 20)
    passage.carry(messages, lambda producer: producer.send(messages, "oneway"))


def compressed(passage: Passage) -> None:
    """By the codec that each client has by itself."""
    messages = [Draft(passage.topic, f"large-{i}", f"{i} {COMPRESSIBLE}") for i in range(5)]
    results, received = passage.carry(messages, lambda producer: producer.send(messages))
    assert_places(messages, results, received)


def four_mebibytes(passage: Passage) -> None:
    text = "".join(Random(7).choices(LETTERS, k=FOUR_MIB))
    messages = [Draft(passage.topic, "four mebibytes", text)]
    results, received = passage.carry(messages, lambda producer: producer.send(messages))
    assert_places(messages, results, received)


def batch(passage: Passage) -> None:
    messages = drafts(passage.topic, 30)
    [result], received = passage.carry(messages, lambda producer: producer.send(messages, "batch"))
    assert result["status"] == "SEND_OK"
    by_key = {message["keys"]: message for message in received}
    offsets = [by_key[draft.keys]["queueOffset"] for draft in messages]
    assert offsets == list(range(result["queueOffset"], result["queueOffset"] + 30))
    assert len({message["queueId"] for message in received}) == 1


def ordered(passage: Passage) -> None:
    messages = [dataclasses.replace(draft, shard=i % 3 + 1) for i, draft in enumerate(drafts(passage.topic, 30))]
    results, received = passage.carry(messages, lambda producer: producer.send(messages, "ordered"))
    assert_places(messages, results, received)
    by_key = {message["keys"]: message for message in received}
    assert [by_key[draft.keys]["queueId"] for draft in messages] == [draft.shard for draft in messages]


def delayed(passage: Passage) -> None:
    messages = [Draft(passage.topic, f"level-{level}", "é", delay_level=level) for level in (1, 2)]
    _, received = passage.carry(messages, lambda producer: producer.send(messages))
    for message in received:
        delay_ms = DELAYS_S[int(message["keys"][-1]) - 1] * 1000
        assert delay_ms <= message["storeMs"] - message["bornMs"] <= delay_ms + LATENESS_MAX_MS, message


def transactions(passage: Passage) -> None:
    endings = [("commit", "unknown"), ("rollback", "unknown"), ("unknown", "commit"), ("unknown", "rollback")]
    messages = [
        dataclasses.replace(draft, outcome=outcome, check=check)
        for outcome, check in endings
        for draft in drafts(passage.topic, 2, f"{outcome}-{check}")
    ]
    lost = tuple(message for message in messages if "rollback" in (message.outcome, message.check))
    asked = {message.keys for message in messages if message.outcome == "unknown"}

    def transact(producer: Producer) -> list[Fields]:
        results = producer.transact(messages)
        eventually("the broker asks about every open transaction", lambda: producer.checks().keys() >= asked)
        return results

    results, received = passage.carry(messages, transact, transactional=True, lost=lost)
    by_key = {message["keys"]: message for message in received}
    for draft, result in zip(messages, results, strict=True):
        if draft not in lost:
            assert result["id"] in ids_of(by_key[draft.keys])


FORMS: Final = {
    form.__name__: form
    for form in (plain, called_back, oneway, compressed, four_mebibytes, batch, ordered, delayed, transactions)
}
