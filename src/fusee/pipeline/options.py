"""The options of one read, understood: what Spark hands over as text becomes a frozen value, or an error.

Every error names the option, says what is wrong with it, and what would be right.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from fusee.client.config import name_servers_of
from fusee.errors import ConfigError, FilterError
from fusee.filter import parse_subscription
from fusee.pipeline.option_table import READ_OPTIONS, TLS_FILES, TLS_OPTIONS, OptionError, check_tls, spelled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from fusee.message.model import MessageQueue

EARLIEST: Final = -2
LATEST: Final = -1
READER_GROUP: Final = "fusee-spark"
"""The group that workers pull as when no other is named. Nothing is committed to it."""

QueueKey: TypeAlias = tuple[str, str | None, int]
"""Topic, broker and queue; without a broker, that queue of whichever broker has the topic."""

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)i?b?")
_SIZE_BYTES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Where:
    """A place in every queue: `default` is EARLIEST, LATEST or a time, `by_queue` has offsets, or times, of some."""

    default: int = EARLIEST
    by_queue: Mapping[QueueKey, int] = field(default_factory=dict)
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    """Which queues are read: named topics, those that match a pattern, or queues one by one."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    queues: frozenset[QueueKey] = frozenset()


def chosen_queues(there: Collection[MessageQueue], topics: Topics, *, missing_ok: bool) -> tuple[MessageQueue, ...]:
    """Of the queues that topics have, those that are read, sorted.

    Raises OptionError for one that `assign` names and is not there, unless `missing_ok`.
    """
    if not topics.queues:
        return tuple(sorted(there))
    by_key: dict[QueueKey, list[MessageQueue]] = {}
    for queue in there:
        for broker_name in (queue.broker_name, None):
            by_key.setdefault((queue.topic, broker_name, queue.queue_id), []).append(queue)
    missing = [] if missing_ok else sorted(topics.queues - by_key.keys(), key=str)
    if missing:
        topic, broker_name, queue_id = missing[0]
        raise OptionError(
            f"option 'assign' names queue {queue_id} of {topic!r}{on_broker(broker_name)}, which does not exist; there "
            f"are: {listed_queues(there, topic)}"
        )
    return tuple(sorted({queue for key in topics.queues for queue in by_key.get(key, ())}))


def listed_queues(queues: Iterable[MessageQueue], topic: str) -> str:
    """The queues of a topic among these, for an error to name them."""
    there = sorted(queue for queue in queues if queue.topic == topic)
    return ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in there) or "none"


def on_broker(broker_name: str | None) -> str:
    """Where a queue is, for an error that names it."""
    return f" on {broker_name}" if broker_name else ""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS towards name servers and brokers."""

    ca_file: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is read, from where to where, in which pieces and which form."""

    name_servers: str = ""
    store: tuple[str, ...] = ()
    topics: Topics
    tags: str = "*"
    sql: str | None = None
    starting: Where
    starting_no_match: Literal["error", "latest"] = "error"
    ending: Where
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_properties: bool = True
    kafka_compatible: bool = False
    group: str = ""
    local_reads: bool = True
    pull_batch_size: int = 32
    pull_timeout_ms: int = 30_000
    retries: int = 6
    retry_delay_ms: int = 100
    request_timeout_ms: int = 5_000
    metadata_ttl_ms: int = 10_000
    poll_interval_ms: int = 50
    gather_ms: int = 18
    tls: Tls | None = None


def read_options(given: Mapping[str, str], *, reading: Literal["batch", "stream"]) -> ReadOptions:
    """The options of a batch or of a stream. Raises OptionError."""
    said = _Said(spelled(given, READ_OPTIONS, reading=reading))
    store = tuple(part.strip() for part in said.text("store").split(",") if part.strip())
    for name in (*_OF_CLUSTERS, *TLS_OPTIONS):
        said.exclude(name, "store")
    is_kafka = said.flag("kafkaCompatible", default=False)
    tags, sql = _filters(said)
    return ReadOptions(
        name_servers="" if store else _name_servers(said),
        store=store,
        topics=_topics(said, store),
        tags=tags,
        sql=sql,
        starting=_where(said, "starting", LATEST if reading == "stream" else EARLIEST, reading),
        starting_no_match=_strategy(said),
        ending=_where(said, "ending", LATEST, reading),
        max_offsets_per_trigger=said.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_min_offsets(said),
        max_trigger_delay_ms=_duration_ms(said, "maxTriggerDelay", 900_000),
        max_bytes_per_trigger=_size(said, "maxBytesPerTrigger"),
        min_partitions=said.number("minPartitions"),
        max_records_per_partition=said.number("maxRecordsPerPartition"),
        fail_on_data_loss=said.flag("failOnDataLoss", default=True),
        include_properties=said.flag("includeProperties", default=not is_kafka),
        kafka_compatible=is_kafka,
        group=said.text("group"),
        local_reads=said.flag("localReads", default=True),
        pull_batch_size=said.number("pullBatchSize") or 32,
        pull_timeout_ms=said.number("pullTimeoutMs") or 30_000,
        retries=said.number("fetchOffset.numRetries", least=0, default=6),
        retry_delay_ms=said.number("fetchOffset.retryIntervalMs", least=0, default=100),
        request_timeout_ms=said.number("requestTimeoutMs") or 5_000,
        metadata_ttl_ms=said.number("partition.metadata.cache.ttl.ms", least=0, default=10_000),
        poll_interval_ms=said.number("pollIntervalMs", least=0, default=50),
        gather_ms=said.number("gatherMs", least=0, default=18),
        tls=_tls(said),
    )


_OF_CLUSTERS: Final = (
    "nameServer",
    "sql",
    "group",
    "maxBytesPerTrigger",
    "localReads",
    "pullBatchSize",
    "pullTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "requestTimeoutMs",
)
"""What a read of store directories has no use for: nobody is asked, and nobody evaluates SQL92."""


class _Said:
    """What was said, by option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str) -> str:
        return self.given.get(name, "").strip()

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name).lower()
        if value not in ("", "true", "false"):
            raise OptionError(f"option {name!r} is {value!r}; it is true or false")
        return value == "true" if value else default

    def number(self, name: str, *, least: int = 1, default: Any = None) -> Any:
        value = self.text(name)
        if not value:
            return default
        if not (value.isascii() and value.isdigit()) or int(value) < least:
            raise OptionError(f"option {name!r} is {value!r}; it is a whole number of at least {least}")
        return int(value)

    def exclude(self, *names: str) -> None:
        """At most one of these is given."""
        there = [name for name in names if self.text(name)]
        if len(there) > 1:
            raise OptionError(f"options {' and '.join(there)} contradict each other; give one of {', '.join(names)}")


def _name_servers(said: _Said) -> str:
    try:
        return name_servers_of(said.text("nameServer") or None)
    except ConfigError:
        raise OptionError(
            "option 'nameServer' is missing: where is the cluster? e.g. .option('nameServer', '127.0.0.1:9876'); or "
            "give a store directory: .option('store', '/var/lib/fusee/store')"
        ) from None


def _topics(said: _Said, store: tuple[str, ...]) -> Topics:
    ways = ("subscribe", "subscribePattern", "assign")
    said.exclude(*ways)
    if names := said.text("subscribe"):
        return Topics(names=tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip())))
    if pattern := said.text("subscribePattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is {pattern!r}, no regular expression: {error}") from None
        return Topics(pattern=pattern)
    if said.text("assign"):
        return _assigned(said)
    if store:
        return Topics(pattern=".*")
    raise OptionError(
        f"which topics are to be read? give one of {', '.join(ways)}, e.g. .option('subscribe', 'orders')"
    )


def _assigned(said: _Said) -> Topics:
    shape = '{"orders": [0, 1]} or {"orders": {"broker-a": [0, 1]}}'
    queues: set[QueueKey] = set()
    for topic, value in _json(said, "assign", shape).items():
        for broker_name, numbers in value.items() if isinstance(value, dict) else [(None, value)]:
            if not isinstance(numbers, list) or not all(_is_queue(number) for number in numbers):
                raise OptionError(f"option 'assign' gives {topic!r} no list of queue numbers; write {shape}")
            queues.update((topic, broker_name, number) for number in numbers)
    if not queues:
        raise OptionError(f"option 'assign' names no queue; write {shape}")
    return Topics(names=tuple(sorted({topic for topic, _, _ in queues})), queues=frozenset(queues))


def _is_queue(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _filters(said: _Said) -> tuple[str, str | None]:
    said.exclude("tags", "sql")
    tags = said.text("tags") or "*"
    try:
        parse_subscription("", tags)
    except FilterError as error:
        raise OptionError(f"option 'tags' is {tags!r}: {error}") from error
    return tags, said.text("sql") or None


def _where(said: _Said, side: Literal["starting", "ending"], default: int, reading: str) -> Where:
    names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    said.exclude(*names)
    if (time := said.number(names[0], least=0)) is not None:
        return Where(time, is_time=True)
    if said.text(names[1]):
        return Where(default, _by_queue(said, names[1], least=0), is_time=True)
    value = said.text(names[2])
    if value.startswith("{"):
        by_queue = _by_queue(said, names[2], least=EARLIEST)
        if side == "ending" and EARLIEST in by_queue.values():
            raise OptionError(
                "option 'endingOffsets' has -2 (earliest), and nothing would be read; give an offset or -1"
            )
        if side == "starting" and reading == "batch" and LATEST in by_queue.values():
            raise OptionError(
                "option 'startingOffsets' has -1 (latest), and a batch would be empty; give an offset or -2"
            )
        return Where(EARLIEST if side == "starting" else LATEST, by_queue)
    known = {"earliest": EARLIEST, "latest": LATEST, "": default}
    if value.lower() not in known:
        raise OptionError(
            f"option {names[2]!r} is {value!r}; it is earliest, latest or JSON per queue: {_OFFSETS_SHAPE}"
        )
    if side == "ending" and value.lower() == "earliest":
        raise OptionError(
            "option 'endingOffsets' is 'earliest', and nothing would be read; give latest or JSON per queue"
        )
    if side == "starting" and reading == "batch" and value.lower() == "latest":
        raise OptionError("option 'startingOffsets' is 'latest', and a batch would be empty; give earliest or JSON")
    return Where(known[value.lower()])


_OFFSETS_SHAPE: Final = '{"orders": {"broker-a": {"0": 23}}} or {"orders": {"0": 23}}'


def _by_queue(said: _Said, name: str, *, least: int) -> dict[QueueKey, int]:
    found: dict[QueueKey, int] = {}
    for topic, value in _json(said, name, _OFFSETS_SHAPE).items():
        if not isinstance(value, dict):
            raise OptionError(f"option {name!r} gives {topic!r} no queues; write {_OFFSETS_SHAPE}")
        for outer, inner in value.items():
            brokers = {outer: inner} if isinstance(inner, dict) else {None: {outer: inner}}
            for broker_name, numbers in brokers.items():
                for queue, place in numbers.items():
                    if not queue.isdigit() or not isinstance(place, int) or place < least:
                        raise OptionError(f"option {name!r} has {queue!r}: {place!r}; write {_OFFSETS_SHAPE}")
                    found[topic, broker_name, int(queue)] = place
    return found


def _json(said: _Said, name: str, shape: str) -> dict[str, Any]:
    text = said.text(name)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name!r} is no JSON ({error}): {text!r}; write {shape}") from None
    if not isinstance(value, dict):
        raise OptionError(f"option {name!r} is {text!r}; write {shape}")
    return value


def _strategy(said: _Said) -> Literal["error", "latest"]:
    value = said.text("startingOffsetsByTimestampStrategy").lower()
    if value not in ("", "error", "latest"):
        raise OptionError(f"option 'startingOffsetsByTimestampStrategy' is {value!r}; it is error or latest")
    times = ("startingTimestamp", "startingOffsetsByTimestamp")
    if value and not any(map(said.text, times)):
        raise OptionError(
            "option 'startingOffsetsByTimestampStrategy' does nothing without a time to begin at; give one of "
            f"{', '.join(times)}, or remove it"
        )
    return "latest" if value == "latest" else "error"


def _min_offsets(said: _Said) -> int | None:
    least: int | None = said.number("minOffsetsPerTrigger")
    most: int | None = said.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option 'minOffsetsPerTrigger' is {least}, more than 'maxOffsetsPerTrigger', which is {most}"
        )
    if least is None and said.text("maxTriggerDelay"):
        raise OptionError("option 'maxTriggerDelay' does nothing without 'minOffsetsPerTrigger'; give both or neither")
    return least


def _duration_ms(said: _Said, name: str, default: int) -> int:
    value = said.text(name).lower()
    if not value:
        return default
    found = _DURATION.fullmatch(value)
    if found is None:
        raise OptionError(f"option {name!r} is {value!r}; it is a duration such as 500ms, 30s, 15m, 1h")
    return int(found[1]) * _DURATION_MS[found[2] or "ms"]


def _size(said: _Said, name: str) -> int | None:
    value = said.text(name).lower()
    if not value:
        return None
    found = _SIZE.fullmatch(value)
    if found is None or not int(found[1]):
        raise OptionError(f"option {name!r} is {value!r}; it is a size such as 1000000, 64m, 1g")
    return int(found[1]) * _SIZE_BYTES[found[2]]


def _tls(said: _Said) -> Tls | None:
    is_on = said.flag("tls", default=any(map(said.text, TLS_FILES)))
    check_tls(said.given, is_on=is_on)
    if not is_on:
        return None
    verify = said.flag("tlsVerify", default=True)
    return Tls(said.text("tlsCaFile"), said.text("tlsCertificate"), said.text("tlsKey"), verify)
