"""A broker process is killed with SIGKILL under load, again and again on one store; every promise it made is kept.

Producers, a consumer, delayed messages, transactions and an administrator work on it at the same time. The same must
hold under SYNC_FLUSH and ASYNC_FLUSH: what was written survives the process, flushed or not. 2 rounds; 20 with
FUSEE_LONG=1.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from pathlib import Path

import pytest

from fusee.broker.config import load_settings
from fusee.message.model import StoredMessage
from fusee.message.record import iterate_records
from fusee.service import run
from fusee.store import GetStatus, MessageStore
from tests.broker.kill.broker_calls import TIMEOUT_S, BrokerCalls, by_unique_id
from tests.broker.kill.broker_process import BrokerProcess
from tests.broker.kill.load import LATER, ORDERS, PAYMENTS, QUEUES, TRANSACTION_GROUP, Bookkeeper, Load
from tests.broker.kill.promises import Promises, Sent

ROUNDS = 20 if os.environ.get("FUSEE_LONG") else 2
DELAYS_MS = {"1": 1_000, "2": 2_000}
SETTINGS = {
    "flushConsumerOffsetInterval": "100",
    "flushDelayOffsetInterval": "200",
    "mappedFileSizeCommitLog": str(1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 1_000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "20000",
    "messageDelayLevel": "1s 2s",
    "transactionTimeOut": "300",
    "transactionCheckInterval": "200",
    "transactionCheckMax": "1000000",
    "transactionOpBatchInterval": "500",
}


def check_plain(promises: Promises, found: list[StoredMessage]) -> None:
    """Everything acknowledged is at its place as it was sent, in the order of each producer; nothing else is there."""
    last: dict[tuple[str, str, int], int] = defaultdict(lambda: -1)
    for uid, message in by_unique_id(found).items():
        sent = promises.sent[uid]
        assert (message.topic, message.queue_id, message.body) == (sent.topic, sent.queue_id, sent.body), uid
        assert message.properties.items() >= sent.properties.items()
        assert (message.born_timestamp_ms, message.flag) == (sent.born_ms, 7)
        assert promises.stored.get(uid, message.queue_offset) == message.queue_offset
    for message in sorted(found, key=lambda each: (each.topic, each.queue_id, each.queue_offset)):
        sent = promises.sent[message.unique_id or ""]
        lane = (sent.producer, sent.topic, sent.queue_id)
        assert last[lane] < sent.number, f"{message.unique_id} overtook {last[lane]}"
        last[lane] = sent.number


def is_due(message: StoredMessage, sent: Sent) -> bool:
    return message.store_timestamp_ms - sent.born_ms >= DELAYS_MS[sent.properties["DELAY"]]


class Auditor:
    """Reads what a restarted broker has, and compares it with what was promised."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises
        self._places: dict[tuple[str, int], int] = {}
        self._orders: list[StoredMessage] = []
        self._later: list[StoredMessage] = []
        self._payments: list[StoredMessage] = []

    async def check(self, address: str, number: int) -> None:
        promises = self._promises
        calls = BrokerCalls(address)
        bookkeeper = Bookkeeper(promises, address, frozenset(promises.fates))
        try:
            await self._check_offsets(calls)
            await self._check_topics(calls, number)
            for queue_id in range(QUEUES):
                self._orders += await self._read(calls, ORDERS, queue_id)
            check_plain(promises, self._orders)
            orders = {uid for uid in promises.stored if promises.sent[uid].topic == ORDERS}
            assert orders <= {message.unique_id for message in self._orders}

            await bookkeeper.calls.introduce_producer(TRANSACTION_GROUP)
            committed = {uid for uid in promises.halves_stored if promises.fates[uid].is_commit}
            before = {message.unique_id or "" for message in self._payments}
            self._payments += await self._read(calls, PAYMENTS, 0, until=committed - before)
            for uid in by_unique_id(self._payments):
                assert promises.fates[uid].is_commit, f"{uid} was rolled back, and is delivered"
            answered = {uid for uid in promises.fates if int(uid[2:]) < (number - 1) * 1_000_000}
            await bookkeeper.all_asked(already=answered)
            await self._check_delayed(calls)
        finally:
            await bookkeeper.calls.close()
            await calls.close()

    async def _check_delayed(self, calls: BrokerCalls) -> None:
        promises = self._promises
        before = {message.unique_id or "" for message in self._later}
        self._later += await self._read(calls, LATER, 0, until=promises.delayed_stored - before)
        for uid, message in by_unique_id(self._later).items():
            assert message.body == uid.encode()
            assert is_due(message, promises.delayed[uid])

    async def _check_offsets(self, calls: BrokerCalls) -> None:
        """Not behind what was in the file, not ahead of what the consumer has committed."""
        for queue_id, queue_offset in self._promises.seen_saved.items():
            found = await calls.committed_offset(ORDERS, queue_id)
            assert queue_offset <= found <= self._promises.committed[queue_id]

    async def _check_topics(self, calls: BrokerCalls, number: int) -> None:
        for topic, queues in self._promises.topics.items():
            if topic.startswith(f"made-{number - 1}-"):
                assert await calls.queues_of(topic) == queues

    async def _read(
        self, calls: BrokerCalls, topic: str, queue_id: int, until: set[str] | None = None
    ) -> list[StoredMessage]:
        """What came since the last time, to the end of the queue; waiting until these are there."""
        found: list[StoredMessage] = []
        missing = set(until or ())
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                place = self._places.get((topic, queue_id), 0)
                place, messages = await calls.pull(topic, queue_id, place, hold_ms=1_000 if missing else 0)
                self._places[topic, queue_id] = place
                found += messages
                missing -= {message.unique_id or "" for message in messages}
                if not messages and not missing:
                    return found


def check_store(promises: Promises, broker: BrokerProcess) -> None:
    """The same once more over everything, read from the files."""
    store = MessageStore(broker.store, load_settings(file=broker.settings).store)
    report = store.open()
    try:
        assert not report.unclean
        found = {topic: messages_of(store, topic) for topic in store.queues.topics()}
    finally:
        store.close()
    plain = [message for topic, messages in found.items() if topic.startswith((ORDERS, "new-")) for message in messages]
    check_plain(promises, plain)
    assert promises.stored.keys() <= {message.unique_id for message in plain}
    delayed = by_unique_id(found[LATER])
    assert promises.delayed_stored <= delayed.keys() <= promises.delayed.keys()
    payments = by_unique_id(found[PAYMENTS])
    committed = {uid for uid in promises.halves_stored if promises.fates[uid].is_commit}
    assert committed <= payments.keys() <= {uid for uid, fate in promises.fates.items() if fate.is_commit}


def messages_of(store: MessageStore, topic: str) -> list[StoredMessage]:
    found = []
    for queue_id in store.queues.queue_ids(topic):
        place = 0
        while (result := store.get(topic, queue_id, place, 32)).status is GetStatus.FOUND:
            found += [message for part in result.slices for message in iterate_records(part)]
            place = result.next_offset
    return found


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_kill_of_a_broker_under_load_breaks_no_promise(flush: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {**SETTINGS, "flushDiskType": flush})
    promises = Promises()
    auditor = Auditor(promises)

    async def rounds() -> None:
        for number in range(ROUNDS + 1):
            address = broker.start()
            if number:
                await auditor.check(address, number)
            else:
                calls = BrokerCalls(address)
                for topic, queues in ((ORDERS, QUEUES), (LATER, 1), (PAYMENTS, 1)):
                    await calls.create_topic(topic, queues)
                await calls.close()
            if number < ROUNDS:
                load = Load(promises, address, broker.store, f"{flush}-{number}", number)
                assert await load.run_until(broker.kill) > 100

    try:
        run(rounds())
        broker.stop()
        check_store(promises, broker)
    finally:
        broker.abandon()
    for kind in (promises.stored, promises.delayed_stored, promises.halves_stored, promises.decided, promises.topics):
        assert kind, "the load must have exercised everything"
