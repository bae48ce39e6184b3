"""What a broker did: messages put and got by topic, queue and group, their rates, and how long it took.

(Java: BrokerStatsManager, StoreStatsService, BrokerStats.)

Counting is on the way of every message, so it is one look-up and a few additions in a table of what is new: `put` and
`got` add to the cell of their queue, and every ten seconds `sample` moves what has gathered into the counts that
are shown (`sampled_counts`): of the queue, of its topic or group, and of the whole broker. The table then begins
empty again; it holds what was busy in those seconds, and nothing else.

Every record that is stored is counted with `put` under the topic it is stored in: a delayed message when it is put
aside and again when it is delivered, as in the reference. Totals per day leave the topics of the system out.

`sample` is to be called every second, or at least every ten; rates over 10, 60 and 600 seconds are as exact as that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.broker.daily_totals import DailyTotals, day_of, encode_totals
from fusee.broker.histograms import (
    CREATE_EDGES_MS,
    FINISH_EDGES_S,
    SIZE_EDGES,
    Distribution,
    Histogram,
    by_bit_length,
)
from fusee.broker.put_latency import PutLatency
from fusee.broker.sampled_counts import Column, Owner, SampledCounts, Span, Window
from fusee.message.topics import is_system_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fusee.clock import Clock
    from fusee.store.saved_document import SavedDocument

SAMPLE_INTERVAL: Final = 1.0

# Names under which code 315 asks.
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
QUEUE_GET_NUMS: Final = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE: Final = "QUEUE_GET_SIZE"
TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
TOPIC_PUT_LATENCY: Final = "TOPIC_PUT_LATENCY"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
GROUP_GET_LATENCY: Final = "GROUP_GET_LATENCY"
GROUP_GET_FROM_DISK_NUMS: Final = "GROUP_GET_FROM_DISK_NUMS"
GROUP_GET_FROM_DISK_SIZE: Final = "GROUP_GET_FROM_DISK_SIZE"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
DLQ_PUT_NUMS: Final = "DLQ_PUT_NUMS"
SNDBCK2DLQ_TIMES: Final = "SNDBCK2DLQ_TIMES"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC: Final = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"
BROKER_GET_FROM_DISK_NUMS: Final = "BROKER_GET_FROM_DISK_NUMS"
BROKER_GET_FROM_DISK_SIZE: Final = "BROKER_GET_FROM_DISK_SIZE"
PRODUCER_REGISTER_TIME: Final = "PRODUCER_REGISTER_TIME"
CONSUMER_REGISTER_TIME: Final = "CONSUMER_REGISTER_TIME"
CHANNEL_ACTIVITY: Final = "CHANNEL_ACTIVITY"

_PUT: Final = "put"
_GET: Final = "get"
_DISK: Final = "get from disk"

# Which number of which account a name shows, and what the parts of its key are.
_SHOWN: Final[Mapping[str, tuple[str, tuple[str, ...], Column]]] = {
    QUEUE_PUT_NUMS: (_PUT, ("topic", "queue"), Column.COUNT),
    QUEUE_PUT_SIZE: (_PUT, ("topic", "queue"), Column.SIZE),
    TOPIC_PUT_LATENCY: (_PUT, ("queue", "topic"), Column.ELAPSED),
    TOPIC_PUT_NUMS: (_PUT, ("topic",), Column.COUNT),
    TOPIC_PUT_SIZE: (_PUT, ("topic",), Column.SIZE),
    QUEUE_GET_NUMS: (_GET, ("topic", "queue", "group"), Column.COUNT),
    QUEUE_GET_SIZE: (_GET, ("topic", "queue", "group"), Column.SIZE),
    GROUP_GET_LATENCY: (_GET, ("queue", "topic", "group"), Column.ELAPSED),
    GROUP_GET_NUMS: (_GET, ("topic", "group"), Column.COUNT),
    GROUP_GET_SIZE: (_GET, ("topic", "group"), Column.SIZE),
    GROUP_GET_FROM_DISK_NUMS: (_DISK, ("topic", "group"), Column.COUNT),
    GROUP_GET_FROM_DISK_SIZE: (_DISK, ("topic", "group"), Column.SIZE),
    SNDBCK_PUT_NUMS: (SNDBCK_PUT_NUMS, ("topic", "group"), Column.COUNT),
    DLQ_PUT_NUMS: (DLQ_PUT_NUMS, ("topic", "group"), Column.COUNT),
    # The owner of an account and a type stand around these two; this broker knows neither.
    SNDBCK2DLQ_TIMES: (DLQ_PUT_NUMS, ("", "topic", "group", ""), Column.COUNT),
}

_LATENCY_MINUTE: Final = 60.0
_RATES_SECONDS: Final = 600.0
_EARLY_SECONDS: Final = 0.5
_SIZE_BITS: Final = 64


class Windows(NamedTuple):
    """One count in the last minute, hour and day."""

    minute: Window
    hour: Window
    day: Window


class Rates(NamedTuple):
    """Per second: records written, gets that found something, gets that found nothing, messages given out."""

    written: float
    found: float
    missed: float
    transferred: float


class Totals(NamedTuple):
    """Messages and bytes put by topic, got by (group, topic); messages sent back, and dead, by (group, topic)."""

    puts: dict[str, tuple[int, int]]
    gets: dict[tuple[str, str], tuple[int, int]]
    sent_back: dict[tuple[str, str], int]
    dead: dict[tuple[str, str], int]


class _Totals(NamedTuple):
    at: float
    written: int
    found: int
    missed: int
    transferred: int


class Statistics:
    """The counters of one broker."""

    def __init__(
        self,
        clock: Clock,
        cluster: str,
        *,
        is_system: Callable[[str], bool] = is_system_topic,
        document: SavedDocument[DailyTotals] | None = None,
    ) -> None:
        """`is_system` tells the topics that totals per day leave out; `document` keeps these totals over a restart."""
        self._clock = clock
        self._cluster = cluster
        self._is_system = is_system
        self._document = document
        # What is new, as amounts of an account, by (topic, queue), by (group, topic, queue) and by (group, topic).
        self._puts: dict[tuple[str, int], list[int]] = {}
        self._gets: dict[tuple[str, str, int], list[int]] = {}
        self._disk_gets: dict[tuple[str, str], list[int]] = {}
        # Messages put by the bit length of what is one less than their size: see `histograms.by_bit_length`.
        self._sizes = [0] * _SIZE_BITS
        self._bytes = 0
        self._topic_creations: dict[tuple[bool, bool], Histogram] = {}
        self._group_creations: dict[bool, Histogram] = {}
        self._finishes = Histogram(FINISH_EDGES_S)
        self._counts = SampledCounts()
        self._latency = PutLatency()
        self._latency_began = clock.monotonic()
        self._history: deque[_Totals] = deque()
        self._days = DailyTotals(day_of(clock.time_ms()))
        self._days_saved: bytes | None = None
        self.started_ms = clock.time_ms()
        self.written = 0
        self.put_failures = 0
        self.found = 0
        self.missed_gets = 0
        self.transferred = 0
        self.get_longest_ms = 0

    # Counting

    def put(self, topic: str, queue_id: int, count: int, size_bytes: int, elapsed_ms: int = 0) -> None:
        """Messages were stored in this queue by one request."""
        self._sizes[((size_bytes if count <= 1 else size_bytes // count) - 1).bit_length()] += count
        cell = self._puts.get((topic, queue_id))
        if cell is None:
            self._puts[topic, queue_id] = [count, size_bytes, elapsed_ms, 1]
            return
        cell[0] += count
        cell[1] += size_bytes
        if elapsed_ms:
            cell[2] += elapsed_ms
        cell[3] += 1

    def got(
        self,
        group: str,
        topic: str,
        queue_id: int,
        count: int,
        size_bytes: int,
        from_disk: bool = False,
        elapsed_ms: int = 0,
    ) -> None:
        """Messages of this queue were given to this group by one request."""
        self.found += 1
        self.transferred += count
        cell = self._gets.get((group, topic, queue_id))
        if cell is None:
            cell = self._gets[group, topic, queue_id] = [0, 0, 0, 0]
        cell[0] += count
        cell[1] += size_bytes
        cell[3] += 1
        if elapsed_ms:
            cell[2] += elapsed_ms
            if elapsed_ms > self.get_longest_ms:
                self.get_longest_ms = elapsed_ms
        if from_disk:
            cell = self._disk_gets.setdefault((group, topic), [0, 0, 0, 0])
            cell[0] += count
            cell[1] += size_bytes
            cell[3] += 1

    def missed(self) -> None:
        """A get found nothing."""
        self.missed_gets += 1

    def put_failed(self, count: int = 1) -> None:
        """Records were not stored."""
        self.put_failures += count

    def put_latency(self, count: int, elapsed_ms: float) -> None:
        """So many records were written, so long after the first of them was put."""
        self.written += count
        self._latency.add(count, int(elapsed_ms))

    def sent_back(self, group: str, topic: str) -> None:
        """A consumer of the group gave a message of this topic back."""
        self._counts.add(Owner(SNDBCK_PUT_NUMS, group, topic), (1, 0, 0, 1))

    def dead_letter(self, group: str, topic: str) -> None:
        """The group could not consume a message of this topic, and it went to the dead letters."""
        self._counts.add(Owner(DLQ_PUT_NUMS, group, topic), (1, 0, 0, 1))

    def count(self, name: str, key: str = "", value: int = 1) -> None:
        """Count anything else, under the cluster when there is no key."""
        self._counts.add(_owner_of(name, key or self._cluster), (value, 0, 0, 1))

    def topic_deleted(self, topic: str) -> None:
        """Forget what was counted of this topic."""
        self._gather()
        self._counts.forget_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget what was counted of this consumer group."""
        self._gather()
        self._counts.forget_group(group)

    def stopwatch(self) -> Callable[[], float]:
        """What tells the milliseconds since now."""
        clock, begun = self._clock, self._clock.monotonic()
        return lambda: (clock.monotonic() - begun) * 1000

    def topic_created(self, elapsed_ms: float, *, is_done: bool, is_system: bool) -> None:
        """Topics were made or changed by one request, or it was refused."""
        self._topic_creations.setdefault((is_done, is_system), Histogram(CREATE_EDGES_MS)).add(elapsed_ms)

    def group_created(self, elapsed_ms: float, *, is_done: bool) -> None:
        """Groups were made or changed by one request, or it was refused."""
        self._group_creations.setdefault(is_done, Histogram(CREATE_EDGES_MS)).add(elapsed_ms)

    def transaction_finished(self, elapsed_ms: int) -> None:
        """A transaction was committed so long after its message was made."""
        self._finishes.add(elapsed_ms // 1000)

    # Sampling

    def sample(self) -> None:
        """Take the samples that are due, and turn the day."""
        now = self._clock.monotonic()
        if self._counts.is_due(now):
            self._gather()
            self._counts.sample(now)
        history = self._history
        history.append(_Totals(now, self.written, self.found, self.missed_gets, self.transferred))
        while len(history) > 2 and now - history[1].at >= _RATES_SECONDS:
            history.popleft()
        if now - self._latency_began >= _LATENCY_MINUTE - _EARLY_SECONDS:
            self._latency_began = now
            self._latency.turn()
        day = day_of(self._clock.time_ms())
        if day > self._days.day:
            self._gather()
            self._days.turn(day)

    def _gather(self) -> None:
        """Move what is new into the accounts."""
        add, is_system = self._counts.add, self._is_system
        puts, self._puts = self._puts, {}
        total = of_users = 0
        for (topic, queue_id), cell in puts.items():
            add(Owner(_PUT, "", topic, queue_id), cell)
            add(Owner(_PUT, "", topic), cell)
            total += cell[0]
            self._bytes += cell[1]
            if not is_system(topic):
                of_users += cell[0]
        self._add_total(BROKER_PUT_NUMS, total)
        self._add_total(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, of_users)
        self._days.put.now += of_users
        gets, self._gets = self._gets, {}
        total = of_users = 0
        for (group, topic, queue_id), cell in gets.items():
            add(Owner(_GET, group, topic, queue_id), cell)
            add(Owner(_GET, group, topic), cell)
            total += cell[0]
            if not is_system(topic):
                of_users += cell[0]
        self._add_total(BROKER_GET_NUMS, total)
        self._add_total(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, of_users)
        self._days.got.now += of_users
        disk_gets, self._disk_gets = self._disk_gets, {}
        for (group, topic), cell in disk_gets.items():
            add(Owner(_DISK, group, topic), cell)
            self._add_total(BROKER_GET_FROM_DISK_NUMS, cell[0])
            self._add_total(BROKER_GET_FROM_DISK_SIZE, cell[1])

    def _add_total(self, name: str, value: int) -> None:
        # The reference does not count how many times, so that the average of a whole broker is 0.
        if value:
            self._counts.add(_owner_of(name, self._cluster), (value, 0, 0, 0))

    # Looking

    def windows(self, name: str, key: str) -> Windows | None:
        """What code 315 shows under this name and key; None when nothing was ever counted there."""
        found = _account_of(name, key)
        if found is None:
            return None
        self._gather()
        minute, hour, day = (self._counts.window(*found, span) for span in Span)
        if minute is None or hour is None or day is None:
            return None
        return Windows(minute, hour, day)

    def totals(self) -> Totals:
        """All that was counted of topics and groups since the broker began, queues taken together."""
        self._gather()
        puts: dict[str, tuple[int, int]] = {}
        gets: dict[tuple[str, str], tuple[int, int]] = {}
        sent_back: dict[tuple[str, str], int] = {}
        dead: dict[tuple[str, str], int] = {}
        for owner, amounts in self._counts.totals():
            if owner.queue_id >= 0:
                continue
            if owner.kind == _PUT:
                puts[owner.topic] = (amounts[Column.COUNT], amounts[Column.SIZE])
            elif owner.kind == _GET:
                gets[owner.group, owner.topic] = (amounts[Column.COUNT], amounts[Column.SIZE])
            elif owner.kind == SNDBCK_PUT_NUMS:
                sent_back[owner.group, owner.topic] = amounts[Column.COUNT]
            elif owner.kind == DLQ_PUT_NUMS:
                dead[owner.group, owner.topic] = amounts[Column.COUNT]
        return Totals(puts, gets, sent_back, dead)

    def message_sizes(self) -> Distribution:
        """Bytes of messages put; those of a batch are taken as equal."""
        self._gather()
        return by_bit_length(self._sizes, SIZE_EDGES, self._bytes)

    def topic_creations(self) -> dict[tuple[bool, bool], Distribution]:
        """Milliseconds that requests took to make topics, by whether they were done, and for a topic of the system."""
        return {key: histogram.distribution() for key, histogram in self._topic_creations.items()}

    def group_creations(self) -> dict[bool, Distribution]:
        """Milliseconds that requests took to make groups, by whether they were done."""
        return {key: histogram.distribution() for key, histogram in self._group_creations.items()}

    def finishes(self) -> Distribution:
        """Seconds from the making of a transaction's message to its commit."""
        return self._finishes.distribution()

    def topic_put_tps(self, topic: str) -> float:
        """Messages put into this topic per second in the last minute."""
        window = self._counts.window(Owner(_PUT, "", topic), Column.COUNT, Span.MINUTE)
        return 0.0 if window is None else window.per_second

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages of this topic given to this group per second in the last minute."""
        window = self._counts.window(Owner(_GET, group, topic), Column.COUNT, Span.MINUTE)
        return 0.0 if window is None else window.per_second

    def rates(self, seconds: float) -> Rates | None:
        """Rates over so many seconds, at most 600, up to the last sample; None while the broker is younger."""
        if not self._history:
            return None
        last = self._history[-1]
        begin = last.at - seconds + _EARLY_SECONDS
        for first in reversed(self._history):
            if first.at <= begin:
                elapsed = last.at - first.at
                return Rates(*((new - old) / elapsed for new, old in zip(last[1:], first[1:], strict=True)))
        return None

    @property
    def latency(self) -> PutLatency:
        return self._latency

    @property
    def days(self) -> DailyTotals:
        """Totals of today and yesterday."""
        self._gather()
        return self._days

    # Keeping

    def load(self) -> None:
        """Go on with the totals per day that were saved. Raises StoreCorruptError."""
        saved = self._document.load() if self._document is not None else None
        if saved is not None:
            saved.turn(self._days.day)
            self._days = saved

    def save(self) -> None:
        """Save the totals per day, when they changed. Waits for the disk. Raises StoreError."""
        if self._document is None:
            return
        days = self.days
        content = encode_totals(days)
        if content != self._days_saved:
            self._document.save(days)
            self._days_saved = content


def _owner_of(name: str, key: str) -> Owner:
    """The account of what is counted under a name and a key that mean no topic, group or queue."""
    return Owner(f"{name} {key}")


def _account_of(name: str, key: str) -> tuple[Owner, Column] | None:
    """The account, and the number in it, that a name and a key show; None when the key has not that form."""
    shown = _SHOWN.get(name)
    if shown is None:
        return _owner_of(name, key), Column.COUNT
    kind, part_names, column = shown
    texts = key.split("@")
    if len(texts) != len(part_names):
        return None
    parts = dict(zip(part_names, texts, strict=True))
    queue = parts.get("queue", "-1")
    if "queue" in parts and not (queue.isascii() and queue.isdigit()):
        return None
    return Owner(kind, parts.get("group", ""), parts.get("topic", ""), int(queue)), column
