"""A store seen from both sides: what the real broker serves of it, and what Fusee reads out of its folder.

`BrokerView` asks a running broker, `FolderView` opens a folder; both say what they see in the same terms, so that a
test can compare them. Records are bytes.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fusee.store.consume_queue import Boundary
from fusee.store.engine import MessageStore
from fusee.store.query import RecordQuery
from fusee.store.results import GetStatus
from tests.interop.harness import probe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fusee.store.config import StoreConfig

_LOG_OFFSET_POSITION: Final = 28
_TIME_MS_MAX: Final = (1 << 63) - 1
_WANT_SUBSCRIPTION: Final = 4
_FOUND: Final = 0
_NOT_FOUND: Final = 22
_PULL_COUNT: Final = 32
# FastJSON writes the integer keys of a map bare, also over several lines.
_BARE_KEY: Final = re.compile(r"([{,]\s*)(\d+)(\s*:)")


class QueueLimits(NamedTuple):
    """First and next queue offset."""

    min_offset: int
    max_offset: int


class Entry(NamedTuple):
    """What a consume queue says about a message."""

    log_offset: int
    size: int
    tags_code: int


class BrokerView:
    """A store as the real broker that runs on it serves it."""

    def __init__(self, address: str) -> None:
        self._connection = probe.Connection(address)

    def close(self) -> None:
        self._connection.close()

    def limits(self, topic: str, queue_id: int) -> QueueLimits:
        fields = {"topic": topic, "queueId": str(queue_id)}
        answers = [self._ask(code, fields) for code in (probe.GET_MIN_OFFSET, probe.GET_MAX_OFFSET)]
        return QueueLimits(*(int(answer.fields["offset"]) for answer in answers))

    def records(self, topic: str, queue_id: int) -> list[bytes]:
        """Every record of a queue, pulled as a consumer does."""
        limits = self.limits(topic, queue_id)
        queue_offset = limits.min_offset
        found: list[bytes] = []
        while queue_offset < limits.max_offset:
            fields = {
                "consumerGroup": "TOOLS_CONSUMER",
                "topic": topic,
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
                "maxMsgNums": str(_PULL_COUNT),
                "sysFlag": str(_WANT_SUBSCRIPTION),
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": "*",
                "subVersion": "0",
            }
            answer = self._ask(probe.PULL_MESSAGE, fields)
            found += split_records(answer.body)
            assert int(answer.fields["nextBeginOffset"]) > queue_offset, answer.fields
            queue_offset = int(answer.fields["nextBeginOffset"])
        return found

    def entries(self, topic: str, queue_id: int) -> list[Entry]:
        """Every entry of a consume queue."""
        limits = self.limits(topic, queue_id)
        queue_offset = limits.min_offset
        found: list[Entry] = []
        while queue_offset < limits.max_offset:
            fields = {"topic": topic, "queueId": str(queue_id), "index": str(queue_offset), "count": "1000"}
            data = self._ask(probe.QUERY_CONSUME_QUEUE, fields).json()["queueData"]
            assert data, f"no entries of {topic} {queue_id} from {queue_offset} on"
            found += [Entry(each["physicOffset"], each["physicSize"], each["tagsCode"]) for each in data]
            queue_offset += len(data)
        # An entry for a batch has many queue offsets, so it is given more than once.
        return list(dict.fromkeys(found))

    def by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = _TIME_MS_MAX, unique: bool = False
    ) -> list[int]:
        """Log offsets of the records that the index gives for this key, ascending; one may be there twice."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": "64",
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
            "indexType": "U" if unique else "K",
            **({"_UNIQUE_KEY_QUERY": "true"} if unique else {}),
        }
        answer = self._connection.ask(probe.QUERY_MESSAGE, fields)
        assert answer.code in (_FOUND, _NOT_FOUND), answer
        return sorted(log_offset_of(record) for record in split_records(answer.body))

    def by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        fields = {
            "topic": topic,
            "queueId": str(queue_id),
            "timestamp": str(timestamp_ms),
            "boundaryType": boundary.name,
        }
        return int(self._ask(probe.SEARCH_OFFSET, fields).fields["offset"])

    def record_at(self, topic: str, log_offset: int) -> bytes:
        """The record that the broker gives for the offset in a message id."""
        return self._ask(probe.VIEW_MESSAGE, {"topic": topic, "offset": str(log_offset)}).body

    def consumer_offsets(self) -> dict[str, dict[str, int]]:
        """`topic@group` -> queue id -> committed offset."""
        table: dict[str, dict[str, int]] = self._ask(probe.GET_ALL_CONSUMER_OFFSETS, {}).json()["offsetTable"]
        return table

    def _ask(self, code: int, fields: dict[str, str]) -> probe.Answer:
        answer = self._connection.ask(code, fields)
        assert answer.code == _FOUND, f"request {code} {fields}: {answer.code} {answer.remark}"
        return answer


class FolderView:
    """A store as Fusee reads it. The folder is Fusee's from now on: opening recovers."""

    def __init__(self, root: Path, config: StoreConfig, *, repair: bool = False) -> None:
        self.root = root
        self.store = MessageStore(root, config)
        self.report = self.store.open(repair=repair)
        self.query = RecordQuery(self.store.log, self.store.index)

    def close(self) -> None:
        self.store.close()

    def queues(self) -> list[tuple[str, int]]:
        queues = self.store.queues
        return [(topic, queue_id) for topic in queues.topics() for queue_id in queues.queue_ids(topic)]

    def limits(self, topic: str, queue_id: int) -> QueueLimits:
        return QueueLimits(self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id))

    def records(self, topic: str, queue_id: int) -> list[bytes]:
        """Every record of a queue, as gets give them."""
        return list(self._pull(topic, queue_id))

    def entries(self, topic: str, queue_id: int) -> list[Entry]:
        """Every entry of a consume queue."""
        queue = self.store.queues.get(topic, queue_id)
        assert queue is not None
        count = queue.next_offset - queue.min_offset
        found: list[Entry] = []
        queue_offset = queue.min_offset
        while count > 0:
            units = list(queue.units(queue_offset, count))
            assert units, f"no entries of {topic} {queue_id} from {queue_offset} on"
            found += [Entry(log_offset, size, tags_code) for _, log_offset, size, tags_code, _ in units]
            last_offset, _, _, _, last_count = units[-1]
            count -= last_offset + last_count - queue_offset
            queue_offset = last_offset + last_count
        return found

    def by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = _TIME_MS_MAX, unique: bool = False
    ) -> list[int]:
        """Log offsets of the records with this key, ascending."""
        find = self.query.by_unique_key if unique else self.query.by_key
        return list(find(topic, key, 64, begin_ms, end_ms).log_offsets)

    def by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        return self.store.offset_by_time(topic, queue_id, timestamp_ms, boundary)

    def record_at(self, topic: str, log_offset: int) -> bytes:
        record = self.store.record_at(log_offset)
        assert record is not None, f"no record of {topic} at log offset {log_offset}"
        return bytes(record)

    def consumer_offsets(self) -> dict[str, dict[str, int]]:
        """`topic@group` -> queue id -> committed offset."""
        table: dict[str, dict[str, int]] = read_java_json(self.store.paths.config / "consumerOffset.json")[
            "offsetTable"
        ]
        return table

    def _pull(self, topic: str, queue_id: int) -> Iterator[bytes]:
        limits = self.limits(topic, queue_id)
        queue_offset = limits.min_offset
        while queue_offset < limits.max_offset:
            result = self.store.get(topic, queue_id, queue_offset, _PULL_COUNT)
            assert result.status is GetStatus.FOUND, f"{topic} {queue_id} at {queue_offset}: {result}"
            assert result.next_offset > queue_offset
            for piece in result.slices:
                yield from split_records(bytes(piece))
            queue_offset = result.next_offset


def split_records(data: bytes) -> list[bytes]:
    """The records that lie one behind the other in these bytes."""
    records = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        assert 0 < size <= len(data) - position, f"a record of {size} bytes at {position} of {len(data)}"
        records.append(data[position : position + size])
        position += size
    return records


def log_offset_of(record: bytes) -> int:
    """Where a record says that it lies."""
    (log_offset,) = struct.unpack_from(">q", record, _LOG_OFFSET_POSITION)
    return int(log_offset)


def read_java_json(path: Path) -> Any:
    """A configuration file of the reference, in FastJSON's dialect."""
    return json.loads(_BARE_KEY.sub(r'\1"\2"\3', path.read_text(encoding="utf-8")))


def copy_store(source: Path, target: Path, *, without: Iterable[str] = ()) -> Path:
    """A copy of a store, also of one that is in use; the broker's own database is left out, which it makes anew."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("rocksdbstore", "lock", *without))
    return target


def broker_settings(config: StoreConfig) -> dict[str, str]:
    """The same settings in a broker's words."""
    return {
        "mappedFileSizeCommitLog": str(config.mapped_file_size_commit_log),
        "mappedFileSizeConsumeQueue": str(config.mapped_file_size_consume_queue),
        "mapperFileSizeBatchConsumeQueue": str(config.mapper_file_size_batch_consume_queue),
        "maxHashSlotNum": str(config.max_hash_slot_num),
        "maxIndexNum": str(config.max_index_num),
        "maxMessageSize": str(config.max_message_size),
        # After a crash Java throws unfinished index files away; so told, it reads far enough back to make them again.
        "messageIndexSafe": "true",
        "mappedFileSizeTimerLog": "102400",
        # Pending transactions stay as they are for as long as a test runs.
        "transactionCheckInterval": "3600000",
        "transactionOpBatchInterval": "100",
    }
