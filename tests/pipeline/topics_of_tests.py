"""Topics that tests fill, sources that read them, and what a broker says it has delivered."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusee.message.model import Message, MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from fusee.sync import EmbeddedServer

BROKER = "embedded"


def source(spark: SparkSession, server: EmbeddedServer, **options: object) -> DataFrameReader:
    """A batch read of a server."""
    made = spark.read.format("fusee").option("nameServer", server.name_server)
    return made.options(**{name.replace("__", "."): str(value) for name, value in options.items()})


def stream(spark: SparkSession, server: EmbeddedServer, **options: object) -> DataStreamReader:
    """A streaming read of a server."""
    made = spark.readStream.format("fusee").option("nameServer", server.name_server)
    return made.options(**{name.replace("__", "."): str(value) for name, value in options.items()})


def fill(
    server: EmbeddedServer,
    topic: str,
    numbers: Iterable[int],
    *,
    queues: int = 4,
    tags: tuple[str, ...] = ("paid", "open"),
) -> list[str]:
    """Send messages `topic number`, spread over queues, their tags in turn; their bodies."""
    bodies = []
    with server.connect() as mq:
        for number in numbers:
            bodies.append(f"{topic} {number}")
            message = Message.of(
                topic,
                bodies[-1].encode(),
                tag=tags[number % len(tags)],
                keys=f"k{number}",
                properties={"number": str(number)},
            )
            mq.send(message, queue=MessageQueue(topic, BROKER, number % queues))
    return bodies


def texts(rows: Iterable[Any], column: str = "body") -> list[str]:
    """The bodies of rows, sorted."""
    return sorted(bytes(row[column]).decode() for row in rows)


SMALL_LOG: dict[str, Any] = {"mapped_file_size_commit_log": 16_384, "clean_resource_interval": 20}
"""Settings of a server whose messages `expire`."""


def expire(server: EmbeddedServer, store: Path, queue: MessageQueue) -> int:
    """Let the older half of the log's files expire, as after days; the first offset that the queue has then."""
    segments = sorted((store / "commitlog").iterdir())
    assert len(segments) > 3
    for segment in segments[: len(segments) // 2]:
        os.utime(segment, (0, 0))
    with server.connect() as mq:
        while True:
            mq.admin.delete_expired_log()
            (state,) = (each for each in mq.admin.topic_stats(queue.topic).queues if each.queue == queue)
            if state.min_offset and len(list((store / "commitlog").iterdir())) < len(segments):
                return state.min_offset


class Delivered:
    """Counts what a broker delivers, by group, topic and queue."""

    def __init__(self, server: EmbeddedServer) -> None:
        statistics = server._target.broker.statistics
        self.counts: Counter[tuple[str, str, int]] = Counter()
        got = statistics.got

        def count(group: str, topic: str, queue_id: int, count: int, *args: Any, **options: Any) -> None:
            self.counts[group, topic, queue_id] += count
            got(group, topic, queue_id, count, *args, **options)

        statistics.got = count  # type: ignore[method-assign]

    def to(self, group: str) -> dict[tuple[str, int], int]:
        """Messages delivered to a group, by topic and queue."""
        return {(topic, queue_id): count for (name, topic, queue_id), count in self.counts.items() if name == group}
