"""Records for tests of queues: what dispatch would tell of a log."""

from __future__ import annotations

from pathlib import Path

from fusee.message.hashing import java_string_hash
from fusee.message.record import decode_record, read_frame
from fusee.message.record_layout import MAGIC_V1, MAGIC_V2
from fusee.store.results import Dispatched


def dispatched(
    log_offset: int,
    queue_offset: int,
    *,
    size: int = 100,
    topic: str = "orders",
    queue_id: int = 0,
    tags_code: int = 0,
    store_timestamp_ms: int = 1_700_000_000_000,
    sys_flag: int = 0,
    batch_count: int = 0,
) -> Dispatched:
    """One record."""
    return Dispatched(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        log_offset=log_offset,
        size=size,
        tags_code=tags_code,
        store_timestamp_ms=store_timestamp_ms,
        sys_flag=sys_flag,
        prepared_transaction_offset=0,
        unique_key="",
        keys=(),
        properties=b"",
        batch_count=batch_count,
    )


def consecutive(first: int, count: int, *, start: int | None = None, size: int = 100) -> list[Dispatched]:
    """Messages `first`, `first` + 1 ... of a queue, adjacent in the log from `start` on."""
    begin = first * size if start is None else start
    return [dispatched(begin + number * size, first + number, size=size) for number in range(count)]


def records_of(root: Path) -> list[Dispatched]:
    """Every record in the commit log of a store, as dispatch tells of it; without delivery times of delayed ones."""
    found: list[Dispatched] = []
    for path in sorted((root / "commitlog").iterdir()):
        data = path.read_bytes()
        position = 0
        while True:
            size, magic = read_frame(data, position, len(data))
            if magic not in (MAGIC_V1, MAGIC_V2):
                break
            message = decode_record(data, position)
            assert message.log_offset == int(path.name) + position
            found.append(
                dispatched(
                    message.log_offset,
                    message.queue_offset,
                    size=size,
                    topic=message.topic,
                    queue_id=message.queue_id,
                    tags_code=java_string_hash(message.tag) if message.tag else 0,
                    store_timestamp_ms=message.store_timestamp_ms,
                    sys_flag=message.sys_flag,
                    batch_count=int(message.properties.get("INNER_NUM", "0")),
                )
            )
            position += size
    return found
