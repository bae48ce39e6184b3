"""The topics of a broker: configuration by name, saved in config/topics.json (Java: TopicConfigManager).

The system's own topics are there from the start; what the file says of them goes before. A topic comes into being by
an administrator (`put`), by a send to an unknown name (`create_for_send`, after the pattern of a topic that may be
inherited from, TBW102), or because messages must go there (`create_for_send_back`: retry, dead letters, transactions).

Every change makes a new data version, by which name servers and slaves see that something changed. `listeners` are told
which topics were made or altered, so that they can be registered at once; a deletion reaches name servers with the next
whole registration, and a topic that becomes ordered was made so by them.

A TopicConfig in the table is never altered, only replaced: who holds one holds a fact about the past.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.attributes import TOPIC_ATTRIBUTES, altered
from fusee.broker.config import spelled
from fusee.broker.documents import TOPICS, DocumentTable, TableDocument, TableFullError, next_version, pretty
from fusee.message import topics as names
from fusee.wire.bodies.topic import PERM_INHERIT, PERM_READ, PERM_WRITE, DataVersion, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from fusee.broker.config import BrokerConfig
    from fusee.clock import Clock
    from fusee.store.filesystem import FileSystem

SCHEDULE_QUEUES: Final = 18
REVIVE_QUEUES: Final = 8
BENCHMARK_QUEUES: Final = 1024

_TABLE: Final = "topicConfigTable"
_READ_WRITE: Final = PERM_READ | PERM_WRITE


class _Document(msgspec.Struct, rename="camel", kw_only=True):
    data_version: DataVersion | None = None
    topic_config_table: dict[str, TopicConfig] = {}


def _text(topic: TopicConfig) -> str:
    return pretty(topic, 2)


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that a broker of this configuration has from the start."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    found = [_topic(names.SELF_TEST_TOPIC)]
    if config.auto_create_topic_enable:
        found.append(_topic(names.AUTO_CREATE_TOPIC, config.default_topic_queue_nums, _READ_WRITE | PERM_INHERIT))
    found += [
        _topic(names.BENCHMARK_TOPIC, BENCHMARK_QUEUES),
        _topic(cluster, 16, PERM_INHERIT | (_READ_WRITE if config.cluster_topic_enable else 0)),
        _topic(broker, 1, PERM_INHERIT | (_READ_WRITE if config.broker_topic_enable else 0)),
        _topic(names.OFFSET_MOVED_TOPIC),
        _topic(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES),
    ]
    if config.trace_topic_enable:
        found.append(_topic(config.msg_trace_topic_name))
    found += [
        _topic(names.reply_topic(cluster)),
        _topic(names.revive_topic(cluster), REVIVE_QUEUES),
        _topic(names.SYNC_BROKER_MEMBER_PREFIX + broker, 1, PERM_INHERIT),
        _topic(names.HALF_TOPIC),
        _topic(names.HALF_OP_TOPIC),
        _topic(names.ROCKSDB_HALF_TOPIC),
        _topic(names.ROCKSDB_HALF_OP_TOPIC),
        _topic(names.TIMER_TOPIC),
    ]
    return found


def _topic(name: str, queues: int = 1, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


class TopicTable(DocumentTable):
    """All topics of one broker. `folder` is the store's config/; `config` may be replaced while it runs."""

    def __init__(self, *, config: BrokerConfig, folder: Path, files: FileSystem, clock: Clock) -> None:
        self.config = config
        self.state_version = 0
        """Version of the store's state machine, part of every new data version; 0 without a controller."""
        self.listeners: list[Callable[[Sequence[TopicConfig]], object]] = []
        """Told which topics were made or altered."""
        self._clock = clock
        self._document = TableDocument(folder / TOPICS, files, document_type=_Document, texts={_TABLE: _text})
        self._version = DataVersion(timestamp=clock.time_ms())
        self._topics: dict[str, TopicConfig] = {}
        self._all: Mapping[str, TopicConfig] = MappingProxyType(self._topics)
        own = system_topics(config)
        self._system_names = names.SYSTEM_TOPICS | {topic.topic_name for topic in own}
        for topic in own:
            self._topics[topic.topic_name] = topic
            self._document.changed(_TABLE, topic.topic_name, topic)

    # Saving

    def load(self) -> None:
        """Take over what the file says. Raises StoreCorruptError when neither it nor its `.bak` can be read."""
        document = self._document.load()
        if document is None:
            return
        for name, topic in document.topic_config_table.items():
            if topic.topic_name != name:
                topic = msgspec.structs.replace(topic, topic_name=name)  # noqa: PLW2901
            self._topics[name] = topic
            self._document.loaded(_TABLE, name, topic)
        self._version = document.data_version or self._version

    # Reading

    def get(self, topic: str) -> TopicConfig | None:
        """The topic, or None."""
        return self._topics.get(topic)

    def all(self) -> Mapping[str, TopicConfig]:
        """All topics by name: a view, not a copy."""
        return self._all

    def __len__(self) -> int:
        return len(self._topics)

    def is_system(self, topic: str) -> bool:
        """Whether the topic is one of the system's own, this broker's and cluster's included."""
        return topic in self._system_names or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    def page(self, known: DataVersion | None, first: int, count: int) -> dict[str, TopicConfig]:
        """Up to `count` topics in order of name from the `first` on, or from the start when `known` is outdated."""
        start = max(first, 0) if known == self._version else 0
        return {name: self._topics[name] for name in sorted(self._topics)[start : start + max(count, 0)]}

    # Changing

    def create_for_send(
        self, topic: str, default_topic: str, queue_nums: int, *, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic, made after the pattern of `default_topic` if need be; None when that may not be inherited from.

        Raises TableFullError.
        """
        found = self._topics.get(topic)
        if found is not None:
            return found
        pattern = self._topics.get(default_topic)
        if pattern is None:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC and not self.config.auto_create_topic_enable:
            # It is still in a file of the time when topics were made by sends; Java closes it for good, too.
            if pattern.perm != _READ_WRITE:
                pattern = msgspec.structs.replace(pattern, perm=_READ_WRITE)
                self._topics[default_topic] = pattern
                self._document.changed(_TABLE, default_topic, pattern)
            return None
        if not pattern.perm & PERM_INHERIT:
            return None
        queues = max(min(queue_nums, pattern.write_queue_nums), 0)
        made = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=pattern.perm & ~PERM_INHERIT,
            topic_sys_flag=topic_sys_flag,
            topic_filter_type=pattern.topic_filter_type,
        )
        self._store([made])
        return made

    def create_for_send_back(
        self, topic: str, queue_nums: int, perm: int, *, order: bool = False, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """The topic, made if need be; one that exists keeps everything but `order`. Raises TableFullError."""
        found = self._topics.get(topic)
        if found is None:
            found = _topic(topic, queue_nums, perm)
            found.order = order
            found.topic_sys_flag = topic_sys_flag
            self._store([found])
        elif found.order != order:
            found = msgspec.structs.replace(found, order=order)
            self._store([found])
        return found

    def put(self, topic: TopicConfig) -> TopicConfig:
        """Make or replace a topic; its `attributes` are alterations, `+key` and `-key`. The topic as it is now.

        Raises InvalidAttributeError or TableFullError; nothing has changed then.
        """
        return self.put_all([topic])[0]

    def put_all(self, topics: Sequence[TopicConfig]) -> list[TopicConfig]:
        """As `put`, for several: all of them, or none when one is refused. Listeners are told once."""
        made: dict[str, TopicConfig] = {}
        for topic in topics:
            name = topic.topic_name
            current = made.get(name) or self._topics.get(name)
            attributes = altered(TOPIC_ATTRIBUTES, current.attributes if current else None, topic.attributes)
            made[name] = msgspec.structs.replace(topic, attributes=attributes)
        changed = list(made.values())
        self._store(changed)
        return [made[topic.topic_name] for topic in topics]

    def delete(self, topic: str) -> bool:
        """Forget the topic; whether there was one."""
        if self._topics.pop(topic, None) is None:
            return False
        self._next_version()
        self._document.changed(_TABLE, topic, None)
        return True

    def apply_order_topics(self, order_topics: Iterable[str] | None) -> None:
        """Mark these topics as ordered: the keys of the order configuration in a registration's answer."""
        changed = [
            topic for name in order_topics or () if (topic := self._topics.get(name)) is not None and not topic.order
        ]
        if not changed:
            return
        self._next_version()
        for topic in changed:
            ordered = msgspec.structs.replace(topic, order=True)
            self._topics[topic.topic_name] = ordered
            self._document.changed(_TABLE, topic.topic_name, ordered)

    def take_over(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Have these topics and no others, as the master has them in this version of its table: a slave's way.

        Listeners are told which were made or altered. Raises TableFullError; nothing has changed then.
        """
        if len(topics) > self.config.topics_max:
            raise TableFullError(
                f"the master has {len(topics)} topics, this slave has room for {spelled('topics_max')}="
                f"{self.config.topics_max}: raise it to the master's"
            )
        changes: dict[str, TopicConfig | None] = {name: None for name in self._topics if name not in topics}
        changed = [topic for name, topic in topics.items() if self._topics.get(name) != topic]
        changes.update((topic.topic_name, topic) for topic in changed)
        self._version = version
        for name, topic in changes.items():
            if topic is None:
                del self._topics[name]
            else:
                self._topics[name] = topic
        self._document.changed_all(_TABLE, changes)
        if changed:
            for listener in self.listeners:
                listener(changed)

    def _store(self, topics: Sequence[TopicConfig]) -> None:
        added = sum(topic.topic_name not in self._topics for topic in topics)
        if added and len(self._topics) + added > self.config.topics_max:
            raise TableFullError(
                f"no room for topic {topics[-1].topic_name!r}: {spelled('topics_max')}={self.config.topics_max} is "
                "reached; delete topics that nobody uses, or raise it"
            )
        for topic in topics:
            self._topics[topic.topic_name] = topic
            # Java counts each topic of a list as one change.
            self._next_version()
        for topic in topics:
            self._document.changed(_TABLE, topic.topic_name, topic)
        if topics:
            for listener in self.listeners:
                listener(topics)

    def _next_version(self) -> None:
        self._version = next_version(self._version, self._clock, self.state_version)
