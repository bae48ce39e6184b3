"""The C++ client, through its Python binding, behind the common orders of the client matrix: JSON lines in and out.

It runs in a virtual environment of its own. Where the binding cannot say what the client can do (answer
RECONSUME_LATER, name an instance), the library is called directly.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage  # type: ignore[import-not-found]
from rocketmq.exceptions import ffi_check  # type: ignore[import-not-found]
from rocketmq.ffi import MessageModel, _CConsumeStatus, dll  # type: ignore[import-not-found]

Fields = dict[str, Any]

ASYNC_TIMEOUT_S = 20
SEND_TIMEOUT_MS = 10_000
# The library gives a property by its name only.
PROPERTIES = ("origin", "UNIQ_KEY", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "REAL_TOPIC", "DELAY")


class Sender:
    """A producer."""

    def __init__(self, order: Fields) -> None:
        self._producer = Producer(order["group"], timeout=SEND_TIMEOUT_MS)
        self._producer.set_namesrv_addr(order["nameServers"])
        ffi_check(dll.SetProducerInstanceName(self._producer._handle, order["name"].encode()))
        self._producer.start()

    def send(self, mode: str, orders: list[Fields]) -> list[Fields]:
        messages = [build(order) for order in orders]
        match mode:
            case "batch":
                return [report(self._producer.send_batch(messages))]
            case "async":
                return self._send_async(messages)
            case "oneway":
                for message in messages:
                    self._producer.send_oneway(message)
                return []
            case "ordered":
                return [
                    report(self._producer.send_orderly(message, order["shard"]))
                    for message, order in zip(messages, orders, strict=True)
                ]
        return [report(self._producer.send_sync(message)) for message in messages]

    def _send_async(self, messages: list[Any]) -> list[Fields]:
        results: list[Fields] = [{} for _ in messages]
        left = threading.Semaphore(0)

        def finish(index: int, fields: Fields) -> None:
            results[index] = fields
            left.release()

        for index, message in enumerate(messages):
            self._producer.send_async(
                message,
                lambda result, index=index: finish(index, report(result)),
                lambda failure, index=index: finish(index, {"error": repr(failure)}),
            )
        for _ in messages:
            if not left.acquire(timeout=ASYNC_TIMEOUT_S):
                raise TimeoutError("not every send was called back")
        return results

    def close(self) -> None:
        self._producer.shutdown()


class Receiver:
    """A push or pull consumer that keeps a record of every delivery and fails those it was ordered to fail."""

    def __init__(self, order: Fields) -> None:
        self._failures: dict[str, int] = order["failures"]
        self._lock = threading.Lock()
        self._deliveries: list[Fields] = []
        self._is_pull = order["kind"] == "pull"
        if self._is_pull:
            self._consumer = PullConsumer(order["group"])
        else:
            model = MessageModel.BROADCASTING if order["broadcast"] else MessageModel.CLUSTERING
            self._consumer = PushConsumer(order["group"], orderly=order["kind"] == "orderly", message_model=model)
            self._consumer.set_instance_name(order["name"])
            ffi_check(dll.Subscribe(self._consumer._handle, order["topic"].encode(), order["expression"].encode()))
            self._consumer._register_callback(self._on_message)
        self._consumer.set_namesrv_addr(order["nameServers"])
        self._consumer.start()

    def received(self, start: int) -> list[Fields]:
        with self._lock:
            return self._deliveries[start:]

    def pull(self, topic: str, expression: str) -> list[Fields]:
        return [describe(message) for message in self._consumer.pull(topic, expression)]

    def close(self) -> None:
        self._consumer.shutdown()

    def _on_message(self, _consumer: object, handle: object) -> int:
        record = describe(RecvMessage(handle))
        with self._lock:
            left = self._failures.get(record["keys"], 0)
            if left > 0:
                self._failures[record["keys"]] = left - 1
            record["success"] = left == 0
            self._deliveries.append(record)
        status = _CConsumeStatus.CONSUME_SUCCESS if left == 0 else _CConsumeStatus.RECONSUME_LATER
        return int(status.value)


def build(order: Fields) -> Any:
    message = Message(order["topic"])
    message.set_tags(order["tags"])
    message.set_keys(order["keys"])
    message.set_body(order["body"])
    for name, value in order["properties"].items():
        message.set_property(name, value)
    if order["delayLevel"] > 0:
        message.set_delay_time_level(order["delayLevel"])
    return message


def report(result: Any) -> Fields:
    status = "SEND_OK" if result.status.name == "OK" else result.status.name
    return {"status": status, "id": result.msg_id, "queueOffset": result.offset}


def describe(message: Any) -> Fields:
    properties = {name: text(message.get_property(name)) for name in PROPERTIES}
    return {
        "id": message.id,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "body": text(message.body),
        "tags": text(message.tags),
        "keys": text(message.keys),
        "properties": {name: value for name, value in properties.items() if value},
        "reconsumeTimes": message.reconsume_times,
        "bornMs": message.born_timestamp,
        "storeMs": message.store_timestamp,
        "receivedMs": int(time.time() * 1000),
    }


def text(value: bytes | None) -> str:
    return (value or b"").decode()


class Client:
    """Everything that is open, by the name it was given."""

    def __init__(self) -> None:
        self._senders: dict[str, Sender] = {}
        self._receivers: dict[str, Receiver] = {}

    def obey(self, order: Fields) -> object:
        match order["do"]:
            case "producer":
                self._senders[order["name"]] = Sender(order)
            case "consumer":
                self._receivers[order["name"]] = Receiver(order)
            case "send":
                return self._senders[order["producer"]].send(order["mode"], order["messages"])
            case "received":
                return self._receivers[order["consumer"]].received(order["from"])
            case "pull":
                return self._receivers[order["consumer"]].pull(order["topic"], order["expression"])
            case "close":
                open_one = self._senders.pop(order["name"], None) or self._receivers.pop(order["name"], None)
                if open_one is not None:
                    open_one.close()
            case unknown:
                raise ValueError(f"unknown order {unknown}")
        return None


def answer(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main() -> None:
    client = Client()
    answer(event="ready")
    for line in sys.stdin:
        try:
            result = client.obey(json.loads(line))
        except Exception as failure:  # noqa: BLE001 - the test that gave the order judges every failure
            answer(event="failed", error=repr(failure))
        else:
            answer(event="done", result=result)


if __name__ == "__main__":
    main()
