"""Stores for tests of the offline tools: copies of golden ones to damage, and small ones made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from fusee.message.hashing import tags_code
from fusee.message.properties import encode_properties, find_tag
from fusee.message.record import decode_record, encode_blank, read_frame, seal_record, with_crc_tail
from fusee.message.record_layout import MAGIC_V1, MAGIC_V2, body_crc, pack_record
from fusee.store.layout import segment_name
from fusee.store.offline.files import OfflineStore
from fusee.store.offline.findings import Finding, Severity
from fusee.store.offline.verify import VerifyReport, verify

ENTRY = Struct(">qiq")
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
LOG_SIZE = 16_384
QUEUE_SIZE = 200
TIME_MS = 1_700_000_000_000


def check(root: Path, shown_per_kind: int = 50) -> VerifyReport:
    with OfflineStore(root) as store:
        return verify(store, shown_per_kind=shown_per_kind)


def errors(report: VerifyReport) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is Severity.ERROR]


def notes(report: VerifyReport) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is Severity.NOTE]


def kinds(findings: Iterable[Finding]) -> set[str]:
    return {finding.kind for finding in findings}


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, mask: int = 0x40) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


class Placed:
    """A record in a golden log: where it is, and what it says."""

    def __init__(self, path: Path, position: int) -> None:
        self.path = path
        self.position = position
        self.message = decode_record(path.read_bytes(), position)

    @property
    def log_offset(self) -> int:
        return int(self.path.name) + self.position


def records(root: Path) -> Iterator[Placed]:
    """The records of a store's log, in order."""
    for path in sorted((root / "commitlog").iterdir()):
        data = path.read_bytes()
        position = 0
        while True:
            size, magic = read_frame(data, position, len(data))
            if magic not in (MAGIC_V1, MAGIC_V2):
                break
            yield Placed(path, position)
            position += size


def record_of(root: Path, topic: str, number: int = 0) -> Placed:
    """The record of this number among those of a topic."""
    return [placed for placed in records(root) if placed.message.topic == topic][number]


class HandmadeStore:
    """Writes a log, its consume queues and nothing else; what is asked for need not make sense."""

    def __init__(self, root: Path, *, log_size: int = LOG_SIZE, queue_size: int = QUEUE_SIZE) -> None:
        self.root = root
        self.log_size = log_size
        self.queue_size = queue_size
        self.log = bytearray()
        self.base = 0
        self.queues: dict[tuple[str, int], dict[int, bytes]] = {}
        self.places: list[tuple[int, int]] = []
        """Log offset and size of each record."""
        self._time_ms = TIME_MS

    def put(
        self,
        topic: str = "orders",
        queue_id: int = 0,
        queue_offset: int = 0,
        *,
        body: bytes = b"hello",
        properties: dict[str, str] | bytes | None = None,
        sys_flag: int = 0,
        time_ms: int | None = None,
        sealed: bool = False,
        queued: bool = True,
    ) -> int:
        """Append a record, with its queue entry; its log offset."""
        raw = properties if isinstance(properties, bytes) else encode_properties(properties or {})
        if sealed:
            raw = with_crc_tail(raw)
        self._time_ms = self._time_ms + 1 if time_ms is None else time_ms

        def packed(log_offset: int) -> bytes:
            return pack_record(
                topic.encode(),
                body,
                raw,
                body_crc(body),
                queue_id,
                0,
                queue_offset,
                log_offset,
                sys_flag,
                self._time_ms,
                HOST,
                self._time_ms,
                HOST,
                0,
                0,
            )

        size = len(packed(0))
        left = self.log_size - len(self.log) % self.log_size
        if size + 8 > left:
            self.log += encode_blank(left).ljust(left, b"\0")
        log_offset = self.base + len(self.log)
        record = packed(log_offset)
        self.log += seal_record(record) if sealed else record
        self.places.append((log_offset, size))
        if queued:
            tag = find_tag(raw)
            self.entry(topic, queue_id, queue_offset, log_offset, size, tags_code(tag) if tag else 0)
        return log_offset

    def entry(self, topic: str, queue_id: int, queue_offset: int, log_offset: int, size: int, code: int = 0) -> None:
        self.queues.setdefault((topic, queue_id), {})[queue_offset] = ENTRY.pack(log_offset, size, code)

    def write(self, *, unclean: bool = False) -> Path:
        """Put everything into files; the root."""
        if unclean:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / "abort").write_text("1")
        _write_row(self.root / "commitlog", self.base, bytes(self.log), self.log_size)
        for (topic, queue_id), entries in self.queues.items():
            per_file = self.queue_size // 20
            first = min(entries) // per_file * per_file
            data = b"".join(entries.get(number, bytes(20)) for number in range(first, max(entries) + 1))
            _write_row(self.root / "consumequeue" / topic / str(queue_id), first * 20, data, self.queue_size)
        return self.root


def _write_row(folder: Path, base: int, data: bytes, size: int) -> None:
    folder.mkdir(parents=True)
    for start in range(0, max(len(data), 1), size):
        (folder / segment_name(base + start)).write_bytes(data[start : start + size].ljust(size, b"\0"))


def fill(made: HandmadeStore, count: int, *, queues: int = 2, topic: str = "orders") -> HandmadeStore:
    """Records of one topic, in turn over its queues."""
    for number in range(count):
        made.put(
            topic, number % queues, number // queues, body=b"body %d" % number, properties={"TAGS": f"t{number % 3}"}
        )
    return made


@contextmanager
def opened(root: Path) -> Iterator[OfflineStore]:
    with OfflineStore(root) as store:
        yield store


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    """Time of change and bytes of every file, to see that nothing was touched."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.stat().st_size < 1 << 20 else b"",
        )
        for path in root.rglob("*")
        if path.is_file()
    }


def only(findings: Sequence[Finding], kind: str) -> Finding:
    """The one finding of a kind."""
    found = [finding for finding in findings if finding.kind == kind]
    assert len(found) == 1, found
    return found[0]
