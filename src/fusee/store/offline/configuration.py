"""The configuration that a broker keeps beside its store, as far as topics, groups and their offsets go.

It is read as leniently as Java reads it. A file that is missing, empty or no JSON is replaced by its `.bak`, as a
broker does on start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fusee.errors import ProtocolError, StoreError
from fusee.store.offline.files import names_in
from fusee.wire.lenient_json import loads

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.store.offline.files import OfflineStore

FILE_SIZE_MAX: Final = 256 << 20
_JSON_WITHOUT_ENDING: Final = frozenset({"timermetrics", "transactionMetrics"})
# What a file holds is counted in this table of it.
_TABLES: Final = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "lmqConsumerOffset.json": "offsetTable",
    "consumerFilter.json": "filterDataByTopic",
    "consumerOrderInfo.json": "table",
    "delayOffset.json": "offsetTable",
    "messageRequestMode.json": "messageRequestModeMap",
    "topicQueueMapping.json": "topicQueueMappingInfoMap",
    "timermetrics": "timingCount",
    "transactionMetrics": "transactionCount",
}


class ConfigFile(NamedTuple):
    """One file of the configuration."""

    path: Path
    size: int
    value: Any
    """What is in it; None when it is no JSON."""
    problem: str

    @property
    def held(self) -> int | None:
        """How many topics, groups, ... it holds; None when it is not known what to count."""
        table = _TABLES.get(self.path.name.removesuffix(".bak"))
        if table is None or not isinstance(self.value, dict):
            return None
        entries = self.value.get(table)
        return len(entries) if isinstance(entries, dict) else 0


class CommittedOffset(NamedTuple):
    """How far a group has come in a queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


class Configuration:
    """All files of the configuration."""

    def __init__(self, store: OfflineStore) -> None:
        self._folder = store.paths.config
        self.files: dict[str, ConfigFile] = {}
        self.others: list[str] = []
        """Names of what is in the folder and no JSON."""
        for name in names_in(self._folder):
            plain = name.removesuffix(".bak")
            if plain.endswith(".json") or plain in _JSON_WITHOUT_ENDING:
                found = _read(store, self._folder / name)
                if found is not None:
                    self.files[name] = found
            else:
                self.others.append(name)

    def value(self, name: str) -> dict[Any, Any] | None:
        """What this file or else its `.bak` says; None when neither says anything."""
        for candidate in (name, f"{name}.bak"):
            file = self.files.get(candidate)
            if file is not None and isinstance(file.value, dict):
                return file.value
        return None

    def topics(self) -> frozenset[str] | None:
        """Names of the topics; None when nothing is known."""
        value = self.value("topics.json")
        table = value.get("topicConfigTable") if value is not None else None
        return frozenset(map(str, table)) if isinstance(table, dict) else None

    def committed_offsets(self) -> list[CommittedOffset]:
        """How far groups have come."""
        found: list[CommittedOffset] = []
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            value = self.value(name)
            table = value.get("offsetTable") if value is not None else None
            for key, queues in table.items() if isinstance(table, dict) else ():
                topic, at, group = str(key).partition("@")
                if at and isinstance(queues, dict):
                    found += [
                        CommittedOffset(group, topic, int(queue_id), queue_offset)
                        for queue_id, queue_offset in queues.items()
                        if str(queue_id).isdecimal() and isinstance(queue_offset, int)
                    ]
        return found


def _read(store: OfflineStore, path: Path) -> ConfigFile | None:
    data = None
    try:
        data = store.read_file(path, FILE_SIZE_MAX)
        if data is None:
            return None
        if not data.strip():
            return ConfigFile(path, len(data), None, "it is empty")
        value = loads(data, size_max=FILE_SIZE_MAX)
    except (ProtocolError, StoreError) as error:
        return ConfigFile(path, len(data or b""), None, str(error))
    if not isinstance(value, dict):
        return ConfigFile(path, len(data), None, "it is JSON, but no object")
    return ConfigFile(path, len(data), value, "")
