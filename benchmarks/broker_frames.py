"""What producers and consumers ask a broker, as frames for the load generator, and a few questions about a queue.

Messages look as Java clients send them: 1 KiB of body, half of it random, with UNIQ_KEY, WAIT, TAGS and KEYS.
"""

from __future__ import annotations

import random
import socket
import struct
from typing import Final

from benchmarks.cluster import ANSWER_LIMIT_S, Answer, exchange_whole
from benchmarks.errors import BenchmarkError
from benchmarks.frames import frame, json_header

PULL_MESSAGE: Final = 11
UPDATE_CONSUMER_OFFSET: Final = 15
GET_MAX_OFFSET: Final = 30
GET_ROUTE: Final = 105
SEND_MESSAGE_V2: Final = 310
SEND_BATCH_MESSAGE: Final = 320

BODY_BYTES: Final = 1024
BATCH_MESSAGES: Final = 32
PULL_MESSAGES: Final = 32
# A prime, so that no queue always gets the same messages.
SEND_FRAMES: Final = 1021
BATCH_FRAMES: Final = 64
PULL_FRAMES: Final = 1024
SUBSCRIPTION_IN_HEADER: Final = 4


def send_frames(topic: str, *, queues: int = 4, count: int = SEND_FRAMES) -> list[bytes]:
    """Single messages, queue after queue."""
    chance = random.Random(1)
    return [
        frame(
            json_header(SEND_MESSAGE_V2, _send_fields(topic, number % queues, queues, _properties(number, chance))),
            _body(chance),
        )
        for number in range(count)
    ]


def batch_frames(topic: str, *, queues: int = 4) -> list[bytes]:
    """Batches of 32 messages, queue after queue."""
    chance = random.Random(2)
    frames = []
    for number in range(BATCH_FRAMES):
        elements = []
        for position in range(BATCH_MESSAGES):
            body, properties = _body(chance), _properties(position, chance).encode()
            size = 5 * 4 + len(body) + 2 + len(properties)
            elements += [struct.pack(">5I", size, 0, 0, 0, len(body)), body]
            elements += [struct.pack(">H", len(properties)), properties]
        fields = _send_fields(topic, number % queues, queues, "", batch=True)
        frames.append(frame(json_header(SEND_BATCH_MESSAGE, fields), b"".join(elements)))
    return frames


def pull_frames(topic: str, *, queues: int = 4) -> list[bytes]:
    """Pulls of 32 messages that walk through all queues from their beginning; none waits."""
    return [
        _pull("benchmark_pull", topic, number % queues, number // queues * PULL_MESSAGES)
        for number in range(PULL_FRAMES)
    ]


def pulled_depth(queues: int = 4) -> int:
    """Messages that each queue must hold for `pull_frames`."""
    return (PULL_FRAMES + queues - 1) // queues * PULL_MESSAGES


def send_once(port: int, topic: str) -> int:
    """Sends one message and returns the code of the answer."""
    return ask(port, send_frames(topic, count=1)[0])[0]


def queue_depths(port: int, topic: str, *, queues: int = 4) -> list[int]:
    """How many messages each queue has ever had."""
    depths = []
    for queue_id in range(queues):
        request = frame(json_header(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}))
        code, fields = ask(port, request)
        if code != 0:
            raise BenchmarkError(f"the end of queue {queue_id} of {topic} was asked for and the answer was {code}")
        depths.append(int(fields["offset"]))
    return depths


def rewind(port: int, topic: str, group: str, *, queues: int = 4) -> None:
    """Lets this group begin at the beginning of every queue. A pull makes the group known, as a consumer would."""
    ask(port, _pull(group, topic, 0, 0))
    for queue_id in range(queues):
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": "0"}
        code, _ = ask(port, frame(json_header(UPDATE_CONSUMER_OFFSET, fields)))
        if code != 0:
            raise BenchmarkError(f"the offset of {group} could not be set on queue {queue_id} of {topic}: {code}")


def has_route(port: int, topic: str) -> bool:
    """Whether the name server on this port knows a broker of the topic."""
    return ask(port, frame(json_header(GET_ROUTE, {"topic": topic})))[0] == 0


def ask(port: int, request: bytes) -> tuple[int, dict[str, str]]:
    """One request on its own connection: code and fields of the answer. Raises BenchmarkError without an answer."""
    answer = ask_whole(port, request)
    return answer.code, answer.fields


def ask_whole(port: int, request: bytes) -> Answer:
    """The same with the body."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_LIMIT_S) as connection:
            return exchange_whole(connection, request)
    except OSError as error:
        raise BenchmarkError(f"nobody answers on 127.0.0.1:{port}: {error}") from error


def _pull(group: str, topic: str, queue_id: int, queue_offset: int) -> bytes:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(PULL_MESSAGES),
        "sysFlag": str(SUBSCRIPTION_IN_HEADER),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
    }
    return frame(json_header(PULL_MESSAGE, fields))


def _send_fields(topic: str, queue_id: int, queues: int, properties: str, *, batch: bool = False) -> dict[str, str]:
    return {
        "a": "benchmark_producer",
        "b": topic,
        "c": "TBW102",
        "d": str(queues),
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if batch else "false",
    }


def _properties(number: int, chance: random.Random) -> str:
    unique = f"7F0000010A2C18B4AAC2{chance.getrandbits(48):012X}"
    tag = "ABCD"[number % 4]
    return f"UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02TAGS\x01Tag{tag}\x02KEYS\x01order-{100_000 + number}\x02"


def _body(chance: random.Random) -> bytes:
    return chance.randbytes(BODY_BYTES // 2) + b"x" * (BODY_BYTES // 2)
