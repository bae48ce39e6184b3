"""What Spark asks of readers, asked without Spark: of a broker, of a store at work, of a cluster under TLS."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import fusee.sync
from fusee.clock import ManualClock
from fusee.errors import DataLossError, TopicNotFoundError
from fusee.message.model import MessageQueue
from fusee.pipeline.admission import Bounds
from fusee.pipeline.batch import BatchReader
from fusee.pipeline.option_table import OptionError
from fusee.pipeline.options import read_options
from fusee.pipeline.positions import StreamOffset
from fusee.pipeline.stream import StreamDriver, StreamReader
from tests.pipeline.topics_of_tests import BROKER, fill

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from fusee.sync import EmbeddedServer

COLUMNS = ("topic", "queueId", "queueOffset", "body")
Reader = BatchReader | StreamReader


def batch(**options: object) -> BatchReader:
    return BatchReader(read_options(_texts(options), reading="batch"), COLUMNS)


def stream(**options: object) -> StreamReader:
    return StreamReader(read_options(_texts(options), reading="stream"), COLUMNS)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name.replace("__", "."): str(value) for name, value in options.items()}


def bodies(reader: Reader, tasks: Sequence[Any]) -> list[str]:
    """What workers read: reader and tasks travel to them pickled."""
    found = []
    for task in tasks:
        there, work = pickle.loads(pickle.dumps((reader, task)))
        for each in there.read(work):
            found += [bytes(body).decode() for body in each.column("body").to_pylist()]
    return sorted(found)


def next_batch(reader: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """One micro-batch, its end through the checkpoint: the end and what was read."""
    end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    return end, bodies(reader, reader.partitions(start, end))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A broker whose store is in a folder that is known."""
    with fusee.sync.embedded(store=tmp_path / "embedded" / "store") as running:
        yield running


def visible(server: EmbeddedServer, topic: str) -> None:
    """Wait until what was sent is in the queues, which come a moment behind the log."""
    with server.connect() as mq:
        mq.admin.topic_stats(topic)


def test_a_store_at_work_is_read_like_its_broker(store: EmbeddedServer) -> None:
    store.create_topics({"orders": 4, "parts": 1})
    sent = sorted(fill(store, "orders", range(40)))
    fill(store, "parts", range(3), queues=1)
    visible(store, "parts")
    folder = str(store.store_path)
    reader = batch(store=folder, subscribe="orders")
    assert bodies(reader, reader.partitions()) == sent
    some = batch(store=folder, subscribe="orders", tags="paid", minPartitions=3, maxRecordsPerPartition=7)
    tasks = some.partitions()
    assert len(tasks) >= 6
    assert bodies(some, tasks) == sorted(f"orders {number}" for number in range(0, 40, 2))
    every = batch(store=folder, endingOffsets='{"orders": {"0": 1, "1": 0, "2": 0, "3": 0}}')
    assert bodies(every, every.partitions()) == ["orders 0", "parts 0", "parts 1", "parts 2"]
    with pytest.raises(TopicNotFoundError, match="topic 'nowhere' has no queue in"):
        batch(store=folder, subscribe="nowhere").partitions()
    with pytest.raises(OptionError, match="sql and store contradict"):
        batch(store=folder, sql="a = 1")


def test_a_stream_follows_a_store_at_work(store: EmbeddedServer) -> None:
    store.create_topics({"orders": 2})
    sent = fill(store, "orders", range(6), queues=2)
    visible(store, "orders")
    reader = stream(store=store.store_path, subscribe="orders", startingOffsets="earliest", pollIntervalMs=1)
    end, found = reader.initialOffset(), list[str]()
    for number in (6, 9):
        # The queues of a store at work come a moment behind its log.
        while len(found) < len(sent):
            end, more = next_batch(reader, end)
            found += more
        assert sorted(found) == sorted(sent)
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end
        sent += fill(store, "orders", range(number, number + 3), queues=2)


def test_what_expired_is_an_error_or_left_out_by_the_driver(server: EmbeddedServer) -> None:
    server.create_topics({"orders": 1})
    fill(server, "orders", range(3), queues=1)
    place = StreamOffset.from_json({"version": 1, "from": None, "to": {"orders": {BROKER: {"0": 9}}}}).to_json()
    reader = stream(nameServer=server.name_server, subscribe="orders")
    with pytest.raises(DataLossError, match="ends at 3 now, and 9 was to be read next"):
        reader.latestOffset(place, reader.getDefaultReadLimit())
    reader = stream(nameServer=server.name_server, subscribe="orders", failOnDataLoss=False)
    end, found = next_batch(reader, place)
    assert (end["to"], found) == ({"orders": {BROKER: {"0": 3}}}, [])


def test_a_broker_that_is_away_keeps_its_place_and_is_read_on(server: EmbeddedServer) -> None:
    server.create_topics({"orders": 2})
    fill(server, "orders", range(4), queues=2)
    reader = stream(
        nameServer=server.name_server,
        subscribe="orders",
        startingOffsets="earliest",
        group="reports",
        pollIntervalMs=0,
        partition__metadata__cache__ttl__ms=0,
        requestTimeoutMs=2000,
    )
    end, found = next_batch(reader, reader.initialOffset())
    assert len(found) == 4
    server.stop_broker()
    for _ in range(3):
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end
    server.start_broker()
    more = sorted(fill(server, "orders", range(4, 6), queues=2))
    while (following := next_batch(reader, end)) == (end, []):
        pass
    assert following[1] == more
    reader.latestOffset(following[0], reader.getDefaultReadLimit())
    with server.connect() as mq:
        assert mq.admin.lag("reports", "orders", owners=False).total == 0
    assert reader.reportLatestOffset() == {**following[0], "from": None}
    reader.stop()


class Scripted:
    """A cluster of one queue whose end moves as it is told, and a clock that moves while somebody waits."""

    def __init__(self, **options: object) -> None:
        self.queue = MessageQueue("orders", BROKER, 0)
        self.end = 0
        self.waits: list[float] = []
        self.clock = ManualClock()
        given = read_options(_texts({"nameServer": "a:1", "subscribe": "orders", **options}), reading="stream")
        self.driver = StreamDriver(given, self, self.clock, self.wait)
        self.place = self.driver.initial()

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)

    def batch(self, messages: int, *, seconds: float = 0.05) -> list[float]:
        """Another batch, after so many messages and seconds: what was waited for before it."""
        self.end += messages
        self.clock.advance(seconds)
        self.waits.clear()
        self.place = self.driver.next(self.place, is_limited=False)
        return list(self.waits)

    def queues(self, topics: Any, *, missing_ok: bool = False) -> tuple[MessageQueue, ...]:
        return (self.queue,)

    def bounds(self, queues: Any, *, all_needed: bool = True) -> dict[MessageQueue, Bounds]:
        return {self.queue: Bounds(0, self.end)}

    def offsets_at(self, times: Any) -> dict[MessageQueue, int]:
        return {}

    def record_sizes(self, starts: Any) -> dict[MessageQueue, float]:
        return {}

    def commit(self, group: str, offsets: Any) -> None: ...

    def mark(self, group: str, since_ms: int) -> None: ...

    def close(self) -> None: ...


def test_a_stream_of_small_batches_gathers_a_little_before_each() -> None:
    stream = Scripted()
    assert stream.batch(500) == []  # nothing came before it
    assert stream.batch(500, seconds=0.03) == [pytest.approx(0.015)]  # half of what the batch before took
    assert stream.batch(500) == [0.018]
    assert stream.batch(500, seconds=0.5) == [0.018]  # and no more than the option says
    assert stream.batch(500, seconds=5.0) == []  # Spark's trigger has let time pass already
    assert stream.batch(20_000) == [0.018]
    assert stream.batch(500) == []  # behind a large one there is work enough
    assert stream.batch(0) == [0.018]
    assert stream.batch(0, seconds=0.01) == [pytest.approx(0.04)]  # while nothing is new, brokers are asked seldom
    at_once = Scripted(gatherMs=0)
    assert [at_once.batch(500), at_once.batch(500)] == [[], [0.0]]


def test_what_there_is_now_is_read_without_gathering() -> None:
    stream = Scripted(maxOffsetsPerTrigger=10, startingOffsets="earliest")
    stream.end = 30
    stream.driver.freeze()
    for _ in range(3):
        stream.place = stream.driver.next(stream.place, is_limited=True)
    assert stream.waits == []
    assert stream.place.to == {stream.queue: 30}


def test_an_idle_stream_asks_seldom(server: EmbeddedServer) -> None:
    """Spark asks a hundred times a second; each answer that nothing is new holds the next question back."""
    server.create_topics({"orders": 1})
    reader = stream(nameServer=server.name_server, subscribe="orders", pollIntervalMs=40)
    start = reader.initialOffset()
    asked: list[float] = []
    driver = reader._driver
    ask, clock = driver._view.bounds, driver._clock

    def count(*args: Any, **options: Any) -> Any:
        asked.append(clock.monotonic())
        return ask(*args, **options)

    driver._view.bounds = count  # type: ignore[method-assign]
    for _ in range(5):
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) is start
    assert min(later - earlier for earlier, later in pairwise(asked)) >= 0.035
