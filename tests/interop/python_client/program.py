"""Our client behind the common orders of the client matrix: a JSON object per line in, one per line out.

Producers and consumers are named by the orders and live until they are closed; the end of the input ends all. Beside
the common orders it knows those of the mixed groups: a consumer's `strategy` and `journal`, a producer's
`compressType` and `autoBatch`, and `queues` for what a consumer owns.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fusee
from fusee import TransactionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fusee.client.transaction import TransactionProducer

Fields = dict[str, Any]

TRUST_VARIABLE: Final = "FUSEE_INTEROP_TRUST"
LINE_SIZE_MAX: Final = 64 * 1024 * 1024
SEND_TIMEOUT_MS: Final = 10_000
STATES: Final = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}


def connection(order: Fields) -> fusee.Connection:
    """A client of its own for each producer and consumer, as the other programs have it."""
    tls: ssl.SSLContext | None = None
    if order.get("tls"):
        tls = ssl.create_default_context(cafile=os.environ[TRUST_VARIABLE])
        tls.check_hostname = False
    return fusee.connect(
        order["nameServers"],
        instance_name=order["name"],
        tls=tls,
        enable_trace=bool(order.get("trace")),
        poll_name_server_interval_ms=1_000,
        heartbeat_broker_interval_ms=1_000,
        persist_consumer_offset_interval_ms=1_000,
    )


def message_of(order: Fields) -> fusee.Message:
    return fusee.Message.of(
        order["topic"],
        order["body"].encode(),
        tag=order["tags"],
        keys=order["keys"],
        properties=order["properties"],
        delay_level=order["delayLevel"],
    )


def report(result: fusee.SendResult) -> Fields:
    return {
        "status": result.status.name,
        "id": result.message_id,
        "offsetId": result.offset_id,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


def describe(message: fusee.ReceivedMessage) -> Fields:
    return {
        "id": message.message_id,
        "offsetId": message.offset_id,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "body": message.body.decode(),
        "tags": message.tag,
        "keys": " ".join(message.keys),
        "properties": dict(message.properties),
        "reconsumeTimes": message.reconsume_times,
        "bornMs": message.born_timestamp_ms,
        "storeMs": message.store_timestamp_ms,
        "receivedMs": time.time_ns() // 1_000_000,
    }


def by_shard(queues: Sequence[fusee.MessageQueue], message: fusee.Message, shard: object) -> fusee.MessageQueue:
    assert isinstance(shard, int)
    return queues[shard % len(queues)]


class Sender:
    """A producer of any kind; its transactions end as each message was ordered to, and check-backs are counted."""

    def __init__(self, mq: fusee.Connection) -> None:
        self._mq = mq
        self._plain: fusee.Producer | None = None
        self._transactional: TransactionProducer | None = None
        self._transactions: dict[str, Fields] = {}
        self.checks: Counter[str] = Counter()

    @classmethod
    async def open(cls, order: Fields) -> Sender:
        sender = cls(await connection(order))
        await sender._start(order)
        return sender

    async def _start(self, order: Fields) -> None:
        if order.get("transactional"):
            self._transactional = self._mq.transaction_producer(
                order["group"], execute=self._execute, check=self._check, send_msg_timeout_ms=SEND_TIMEOUT_MS
            )
            await self._transactional.start()
        else:
            self._plain = self._mq.producer(
                order["group"],
                send_msg_timeout_ms=SEND_TIMEOUT_MS,
                compress_type=order.get("compressType") or "ZLIB",
                auto_batch=bool(order.get("autoBatch")),
            )
            await self._plain.start()

    async def _execute(self, message: fusee.Message, argument: object) -> TransactionState:
        return STATES.get(self._transactions[message.keys[0]]["outcome"], TransactionState.UNKNOWN)

    async def _check(self, message: fusee.ReceivedMessage) -> TransactionState:
        self.checks[message.keys[0]] += 1
        return STATES.get(self._transactions[message.keys[0]]["check"], TransactionState.UNKNOWN)

    async def send(self, mode: str, orders: list[Fields]) -> list[Fields]:
        producer = self._plain
        assert producer is not None
        messages = [message_of(order) for order in orders]
        match mode:
            case "batch":
                return [report(await producer.send_batch(messages))]
            case "async":
                return await self._send_async(producer, messages)
            case "oneway":
                for message in messages:
                    await producer.send_oneway(message)
                return []
            case "ordered":
                return [
                    report(await producer.send(message, selector=by_shard, selector_argument=order["shard"]))
                    for message, order in zip(messages, orders, strict=True)
                ]
        return [report(await producer.send(message)) for message in messages]

    async def _send_async(self, producer: fusee.Producer, messages: list[fusee.Message]) -> list[Fields]:
        results: dict[int, Fields] = {}
        all_back = asyncio.Event()

        def called_back(number: int, result: fusee.SendResult | None, error: Exception | None) -> None:
            results[number] = {"error": repr(error)} if result is None else report(result)
            if len(results) == len(messages):
                all_back.set()

        for number, message in enumerate(messages):
            producer.send_async(message, callback=partial(called_back, number))
        await asyncio.wait_for(all_back.wait(), 20)
        return [results[number] for number in range(len(messages))]

    async def transact(self, orders: list[Fields]) -> list[Fields]:
        producer = self._transactional
        assert producer is not None
        results = []
        for order in orders:
            self._transactions[order["keys"]] = order
            result = await producer.send_in_transaction(message_of(order))
            results.append({**report(result.sent), "state": result.state.value})
        return results

    async def request(self, order: Fields, timeout_ms: int) -> Fields:
        reply = await self._mq.request(message_of(order), timeout_ms=timeout_ms)
        return {"body": reply.body.decode(), "properties": dict(reply.properties)}

    async def close(self) -> None:
        await self._mq.close()


class Receiver:
    """A consumer of any kind that keeps a record of every delivery and fails those that it was ordered to fail."""

    def __init__(self, mq: fusee.Connection, order: Fields) -> None:
        self._mq = mq
        self._failures: dict[str, int] = order.get("failures") or {}
        self._failed: Counter[str] = Counter()
        self._replies = bool(order.get("reply"))
        self._journal = Path(order["journal"]) if order.get("journal") else None
        self._consumer: fusee.Consumer | None = None
        self._puller: fusee.PullConsumer | None = None
        self._polling: asyncio.Task[None] | None = None
        self.deliveries: list[Fields] = []

    @classmethod
    async def open(cls, order: Fields) -> Receiver:
        receiver = cls(await connection(order), order)
        await receiver._start(order)
        return receiver

    async def _start(self, order: Fields) -> None:
        kind = order["kind"]
        if kind == "pull":
            self._puller = self._mq.pull_consumer(group=order["group"])
            await self._puller.start()
        elif kind == "lite":
            self._puller = self._mq.pull_consumer(
                order["topic"],
                group=order["group"],
                tags=order["expression"],
                consume_from="first",
                auto_commit_interval_ms=1_000,
            )
            await self._puller.start()
            self._polling = asyncio.create_task(self._poll(self._puller))
        else:
            expression = fusee.Sql(order["expression"]) if order.get("sql") else order["expression"]
            self._consumer = self._mq.consumer(
                {order["topic"]: expression},
                group=order["group"],
                consume_from="first",
                ordered=kind == "orderly",
                broadcast=bool(order.get("broadcast")),
                listener=self._take,
                strategy=order.get("strategy") or "AVG",
                max_reconsume_times=order.get("maxReconsumes", -1),
                suspend_current_queue_time_ms=200,
            )
            await self._consumer.start()

    async def _poll(self, consumer: fusee.PullConsumer) -> None:
        while True:
            for message in await consumer.poll(100):
                self._keep(message)

    async def _take(self, message: fusee.ReceivedMessage) -> bool:
        success = self._keep(message)
        if self._replies:
            await self._mq.reply(message, f"reply to {' '.join(message.keys)}", timeout_ms=5_000)
        return success

    def _keep(self, message: fusee.ReceivedMessage) -> bool:
        keys = " ".join(message.keys)
        success = True
        if (wanted := self._failures.get(keys)) is not None:
            success = wanted >= 0 and self._failed[keys] >= wanted
            self._failed[keys] += 1
        self.deliveries.append({**describe(message), "success": success})
        if self._journal is not None:
            with self._journal.open("a", encoding="utf-8") as journal:
                journal.write(f"{keys}\n")
        return success

    def queues(self) -> list[Fields]:
        assert self._consumer is not None
        return [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
            for queue in sorted(self._consumer.assignment)
        ]

    async def pull(self, topic: str, expression: str) -> list[Fields]:
        consumer = self._puller
        assert consumer is not None
        found: list[Fields] = []
        for queue in sorted(await consumer.queues(topic)):
            next_offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while next_offset < end:
                result = await consumer.pull(queue, next_offset, tags=expression)
                found += map(describe, result.messages)
                next_offset = result.next_offset
        return found

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})
        await self._mq.close()


class Program:
    """Everything that is open."""

    def __init__(self) -> None:
        self._senders: dict[str, Sender] = {}
        self._receivers: dict[str, Receiver] = {}

    async def obey(self, order: Fields) -> Any:
        match order["do"]:
            case "producer":
                self._senders[order["name"]] = await Sender.open(order)
            case "consumer":
                self._receivers[order["name"]] = await Receiver.open(order)
            case "send":
                return await self._senders[order["producer"]].send(order["mode"], order["messages"])
            case "transact":
                return await self._senders[order["producer"]].transact(order["messages"])
            case "checks":
                return self._senders[order["producer"]].checks
            case "request":
                return await self._senders[order["producer"]].request(order["message"], order["timeoutMs"])
            case "received":
                return self._receivers[order["consumer"]].deliveries[order["from"] :]
            case "queues":
                return self._receivers[order["consumer"]].queues()
            case "pull":
                return await self._receivers[order["consumer"]].pull(order["topic"], order["expression"])
            case "close":
                if (sender := self._senders.pop(order["name"], None)) is not None:
                    await sender.close()
                if (receiver := self._receivers.pop(order["name"], None)) is not None:
                    await receiver.close()
            case unknown:
                raise ValueError(f"unknown order {unknown}")
        return None


async def main() -> None:
    program = Program()
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=LINE_SIZE_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    answer({"event": "ready"})
    while line := await orders.readline():
        try:
            result = await program.obey(json.loads(line))
        except Exception as failure:  # noqa: BLE001 - whatever it is, the one who gave the order wants to know
            answer({"event": "failed", "error": f"{type(failure).__name__}: {failure}"})
        else:
            answer({"event": "done", "result": result})


def answer(event: Fields) -> None:
    sys.stdout.write(json.dumps(event, ensure_ascii=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
