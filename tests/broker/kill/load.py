"""Everything that clients do to a broker while it is about to be killed.

Each actor has a connection of its own and goes on until that ends. What they are told goes into the Promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import msgspec

from fusee.clock import SystemClock
from fusee.errors import TransportError
from fusee.message.batch import BatchElement, join_batch
from fusee.message.flags import TransactionType
from fusee.message.ids import decode_offset_id
from fusee.message.properties import encode_properties
from fusee.message.record import decode_record
from fusee.transport.link import Link
from fusee.wire.codes import ResponseCode
from fusee.wire.command import Command
from fusee.wire.fields import Int32, Int64
from fusee.wire.headers.send import SendMessageResponse
from fusee.wire.headers.transaction import CheckTransactionState
from fusee.wire.lenient_json import decode_json
from tests.broker.kill.broker_calls import TIMEOUT_S, BrokerCalls, end_transaction, router_for_checks, send_command
from tests.broker.kill.promises import Fate, Promises, Sent

ORDERS, LATER, PAYMENTS = "orders", "later", "payments"
QUEUES = 4
PRODUCERS = 4
WINDOW = 8
TRANSACTION_GROUP = "bookkeepers"
clock = SystemClock()


class _SavedOffsets(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[Int32, Int64]] = {}


def saved_offsets(store: Path) -> dict[int, int]:
    """Committed offsets in the file of the broker; none while there is no file, as between two renames."""
    try:
        text = (store / "config" / "consumerOffset.json").read_bytes()
    except FileNotFoundError:
        return {}
    return decode_json(text, _SavedOffsets).offset_table.get(f"{ORDERS}@readers", {})


class Bookkeeper:
    """The producer of transactions: it answers the broker's questions about those of earlier rounds."""

    def __init__(self, promises: Promises, address: str, answers: frozenset[str]) -> None:
        """`answers` are the transactions that are spoken of when asked; about others it keeps silent."""
        self._promises = promises
        self._answers = answers
        self._awaited = {uid for uid in answers if promises.fates[uid].is_told_only_when_asked}
        self._awaited &= promises.halves_stored
        self._all_asked = asyncio.Event()
        self.asked: set[str] = set()
        self.calls = BrokerCalls(address, router=router_for_checks(self._asked))

    async def all_asked(self, already: set[str]) -> None:
        """Wait until every acknowledged transaction that waits for a question was asked about, but for `already`."""
        self._awaited -= already
        self._look()
        await asyncio.wait_for(self._all_asked.wait(), TIMEOUT_S)

    def _look(self) -> None:
        if self._awaited <= self.asked:
            self._all_asked.set()

    def _asked(self, command: Command, link: Link) -> None:
        header = command.read(CheckTransactionState)
        message = decode_record(command.body)
        uid = message.unique_id
        assert uid is not None
        assert message.topic == PAYMENTS
        if uid not in self._answers:
            return
        self.asked.add(uid)
        verdict = TransactionType.COMMIT if self._promises.fates[uid].is_commit else TransactionType.ROLLBACK
        command = end_transaction(
            TRANSACTION_GROUP, header.half_queue_offset, header.log_offset, verdict, uid, asked=True, oneway=True
        )
        link.send_oneway(command)
        self._look()


class Load:
    """One round of load on one broker process."""

    def __init__(self, promises: Promises, address: str, store: Path, seed: str, number: int) -> None:
        self._promises = promises
        self._address = address
        self._store = store
        self._random = Random(seed)
        self._round = number
        self._acknowledged = 0
        self._target: int | None = None
        self._enough = asyncio.Event()
        self._saved = asyncio.Event()
        self._refusals: list[Command] = []

    async def run_until(self, kill: Callable[[], None]) -> int:
        """Load the broker, kill it at a moment that the seed decides; how much it had acknowledged."""
        actors = [
            *(self._produce(f"p{number}") for number in range(PRODUCERS)),
            self._delay(),
            self._keep_books(),
            self._consume(),
            self._make_topics(),
            self._send_to_new_topics(),
        ]
        tasks = [asyncio.create_task(self._guarded(actor)) for actor in actors]
        await asyncio.wait_for(self._saved.wait(), TIMEOUT_S)
        self._target = self._acknowledged + self._random.randint(100, 1_500)
        await asyncio.wait_for(self._enough.wait(), TIMEOUT_S)
        kill()
        await asyncio.wait_for(asyncio.gather(*tasks), TIMEOUT_S)
        assert not self._refusals
        return self._acknowledged

    async def _guarded(self, actor: Coroutine[None, None, None]) -> None:
        with suppress(TransportError):
            await actor

    def _count(self) -> None:
        self._acknowledged += 1
        if self._target is not None and self._acknowledged >= self._target:
            self._enough.set()

    # Plain messages: single ones and batches, several under way on each connection

    async def _produce(self, name: str) -> None:
        calls = BrokerCalls(self._address)
        window = asyncio.Semaphore(WINDOW)
        ended = asyncio.Event()
        numbers = count(self._round * 1_000_000)
        try:
            await calls.client.link(self._address)
            while not ended.is_set():
                await window.acquire()
                queue_id = self._random.randrange(QUEUES)
                size = 3 if self._random.random() < 0.1 else 1
                born_ms = clock.time_ms()
                batch = [self._new_message(name, next(numbers), ORDERS, queue_id, born_ms) for _ in range(size)]
                if size == 1:
                    command = _command_of(batch[0])
                else:
                    elements = [BatchElement(7, sent.body, encode_properties(sent.properties)) for sent in batch]
                    command = send_command(ORDERS, queue_id, join_batch(elements), {}, born_ms=born_ms, batch=True)
                calls.client.call(self._address, command, partial(self._sent, batch, window, ended), TIMEOUT_S)
        finally:
            await calls.close()

    def _new_message(self, producer: str, number: int, topic: str, queue_id: int, born_ms: int) -> Sent:
        uid = f"{producer}-{number}"
        body = f"{uid} ".encode() + self._random.randbytes(self._random.choice((0, 20, 300, 3_000)))
        properties = {"TAGS": producer, "KEYS": f"k{number}", "UNIQ_KEY": uid}
        sent = Sent(producer, number, topic, queue_id, body, properties, born_ms)
        self._promises.sent[uid] = sent
        return sent

    def _sent(
        self, batch: list[Sent], window: asyncio.Semaphore, ended: asyncio.Event, answer: Command | TransportError
    ) -> None:
        window.release()
        if isinstance(answer, TransportError):
            ended.set()
            return
        if answer.code != ResponseCode.SUCCESS:
            self._refusals.append(answer)
            return
        header = answer.read(SendMessageResponse)
        for place, sent in enumerate(batch):
            self._promises.stored[sent.properties["UNIQ_KEY"]] = header.queue_offset + place
        self._count()

    async def _send_to_new_topics(self) -> None:
        """Messages to topics that the broker makes when it first sees them."""
        calls = BrokerCalls(self._address)
        try:
            for number in count(self._round * 1_000_000):
                topic = f"new-{self._round}-{number % 50}"
                sent = self._new_message("founder", number, topic, number % QUEUES, clock.time_ms())
                answer = await calls.ask(_command_of(sent))
                self._sent([sent], asyncio.Semaphore(), asyncio.Event(), answer)
        finally:
            await calls.close()

    # Delayed messages

    async def _delay(self) -> None:
        calls = BrokerCalls(self._address)
        try:
            for number in count(self._round * 1_000_000):
                uid = f"d-{number}"
                level = 1 + number % 2
                sent = Sent(
                    "d", number, LATER, 0, uid.encode(), {"UNIQ_KEY": uid, "DELAY": str(level)}, clock.time_ms()
                )
                self._promises.delayed[uid] = sent
                answer = await calls.ask(_command_of(sent))
                assert answer.code == ResponseCode.SUCCESS, answer
                self._promises.delayed_stored.add(uid)
                self._count()
        finally:
            await calls.close()

    # Transactions

    async def _keep_books(self) -> None:
        promises = self._promises
        bookkeeper = Bookkeeper(promises, self._address, frozenset(promises.fates))
        calls = bookkeeper.calls
        try:
            await calls.introduce_producer(TRANSACTION_GROUP)
            for number in count(self._round * 1_000_000):
                uid = f"t-{number}"
                fate = promises.fates[uid] = self._random.choice(list(Fate))
                properties = {"UNIQ_KEY": uid, "TRAN_MSG": "true", "PGROUP": TRANSACTION_GROUP}
                answer = await calls.ask(
                    send_command(
                        PAYMENTS,
                        0,
                        uid.encode(),
                        properties,
                        born_ms=clock.time_ms(),
                        group=TRANSACTION_GROUP,
                        sys_flag=TransactionType.PREPARED,
                    )
                )
                assert answer.code == ResponseCode.SUCCESS, answer
                promises.halves_stored.add(uid)
                self._count()
                if fate.is_told_only_when_asked:
                    continue
                header = answer.read(SendMessageResponse)
                verdict = TransactionType.COMMIT if fate.is_commit else TransactionType.ROLLBACK
                log_offset = decode_offset_id(header.msg_id).log_offset
                answer = await calls.ask(
                    end_transaction(
                        TRANSACTION_GROUP, header.queue_offset, log_offset, verdict, uid, asked=False, oneway=False
                    )
                )
                assert answer.code == ResponseCode.SUCCESS, answer
                promises.decided.add(uid)
                self._count()
        finally:
            await calls.close()

    # A consumer

    async def _consume(self) -> None:
        calls = BrokerCalls(self._address)
        try:
            await asyncio.gather(*(self._consume_queue(calls, queue_id) for queue_id in range(QUEUES)))
        finally:
            await calls.close()

    async def _consume_queue(self, calls: BrokerCalls, queue_id: int) -> None:
        promises = self._promises
        place = max(await calls.committed_offset(ORDERS, queue_id), 0)
        first = None
        while True:
            place, messages = await calls.pull(ORDERS, queue_id, place, hold_ms=1_000)
            if not messages:
                continue
            promises.committed[queue_id] = max(place, promises.committed.get(queue_id, 0))
            await calls.commit_offset(ORDERS, queue_id, place)
            self._count()
            first = place if first is None else first
            saved = saved_offsets(self._store)
            for each, queue_offset in saved.items():
                promises.seen_saved[each] = max(queue_offset, promises.seen_saved.get(each, 0))
            if saved.get(queue_id, -1) >= first:
                self._saved.set()

    # An administrator

    async def _make_topics(self) -> None:
        calls = BrokerCalls(self._address)
        try:
            for number in range(10_000):
                topic, queues = f"made-{self._round}-{number}", self._random.randint(1, 16)
                await calls.create_topic(topic, queues)
                self._promises.topics[topic] = queues
                self._count()
        finally:
            await calls.close()


def _command_of(sent: Sent) -> Command:
    return send_command(sent.topic, sent.queue_id, sent.body, sent.properties, born_ms=sent.born_ms)
