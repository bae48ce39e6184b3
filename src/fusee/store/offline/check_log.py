"""Records one by one: checksums, own offsets, properties, times; and how the log ends.

A record that is well formed but wrong counts as damage, unless it is the last one of a store that was not closed: then
it is what an interrupted write leaves, and recovery cuts the log there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from fusee.errors import RecordError
from fusee.message.record import CRC_TAIL_SIZE, check_record_crc
from fusee.store.offline.findings import Severity
from fusee.store.offline.walk import DamageKind, reason_of
from fusee.store.record_parts import checksums
from fusee.store.record_scan import windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.store.offline.columns import Columns, Topics
    from fusee.store.offline.files import OfflineStore
    from fusee.store.offline.findings import Findings
    from fusee.store.offline.log_facts import LogFacts
    from fusee.store.offline.walk import Chunk, Damage, LogEnd

_SEAL_START: Final = int.from_bytes(b"__CRC32#", "big")
_TIME_MS_MAX: Final = 1 << 43  # the year 2248
_DAMAGE_KINDS: Final = {
    DamageKind.BAD: "log-damaged",
    DamageKind.UNWRITTEN: "log-unwritten",
    DamageKind.MISSING: "log-missing",
    DamageKind.REMOVED: "log-removed",
}


class LogCheck:
    """Checks records, and keeps what others need to know of the log in `LogFacts`."""

    def __init__(self, store: OfflineStore, findings: Findings, facts: LogFacts, topics: Topics) -> None:
        self._store = store
        self._findings = findings
        self._facts = facts
        self._topics = topics
        self._suspects: list[tuple[str, str, int]] = []
        self._topics_checked: set[int] = set()
        self._times_back = 0
        self._time_back_max_ms = 0
        self._time_back_first = 0
        self.records = 0
        self.size = 0

    def accept(self, chunk: Chunk, columns: Columns) -> None:
        """Check these records."""
        self.records += len(columns.size)
        self.size += int(columns.size.sum())
        wrong: dict[int, tuple[str, str]] = {}
        self._check_sums(chunk, wrong)
        own = chunk.parts.head["log_offset"]
        for row in np.flatnonzero(own != columns.log_offset).tolist():
            wrong[row] = ("record-offset", f"the record says that it belongs at log offset {own[row]}")
        self._sort_out(columns, wrong)
        self._check_fields(columns)
        self._check_properties(columns)
        self._check_times(columns)
        self._facts.end_offset = chunk.log_offset + int(chunk.parts.record_end[-1])

    def _check_sums(self, chunk: Chunk, wrong: dict[int, tuple[str, str]]) -> None:
        data, parts = chunk.data, chunk.parts
        view, stored = np.frombuffer(data, np.uint8), parts.head["body_crc"]
        found = checksums(view, parts.body_start, parts.body_end)
        for row in np.flatnonzero((found != stored) & (parts.body_start != parts.body_end)).tolist():
            text = f"the body's checksum is {found[row]}, the record says {stored[row]}"
            wrong[row] = ("record-checksum", text)
        seal_start = parts.record_end - CRC_TAIL_SIZE
        sealed = windows(view, ">u8")[seal_start] == _SEAL_START
        for row in np.flatnonzero(sealed & (seal_start >= parts.properties_start)).tolist():
            try:
                check_record_crc(data, int(parts.positions[row]), int(parts.record_end[row]))
            except RecordError as error:
                wrong[row] = ("record-checksum", reason_of(error))

    def _sort_out(self, columns: Columns, wrong: dict[int, tuple[str, str]]) -> None:
        """What is wrong with records behind the last good one may be the torn end of the log."""
        last_good = next((row for row in range(len(columns.size) - 1, -1, -1) if row not in wrong), -1)
        if last_good >= 0:
            self._settle()
        for row, (kind, text) in sorted(wrong.items()):
            suspect = (kind, text, int(columns.log_offset[row]))
            if row > last_good:
                self._suspects.append(suspect)
            else:
                self._tell(Severity.ERROR, *suspect)

    def _settle(self) -> None:
        for suspect in self._suspects:
            self._tell(Severity.ERROR, *suspect)
        self._suspects.clear()

    def _tell(self, severity: Severity, kind: str, text: str, log_offset: int) -> None:
        file, position = self._facts.place(log_offset)
        self._findings.tell(severity, kind, file, text, position, log_offset)

    def _check_fields(self, columns: Columns) -> None:
        for number in set(columns.topic.tolist()) - self._topics_checked:
            self._topics_checked.add(number)
            topic = self._topics.names[number]
            if not topic or "�" in topic:
                log_offset = int(columns.log_offset[int(np.argmax(columns.topic == number))])
                self._tell(Severity.ERROR, "record-topic", f"{topic!r} is no name of a topic", log_offset)
        bad = (columns.queue_id < 0) | (columns.queue_offset < 0)
        for row in np.flatnonzero(bad).tolist():
            text = f"queue {columns.queue_id[row]} and queue offset {columns.queue_offset[row]} cannot be"
            self._tell(Severity.ERROR, "record-queue", text, int(columns.log_offset[row]))

    def _check_properties(self, columns: Columns) -> None:
        view, offsets = columns.properties, columns.properties_offsets
        for row in columns.untidy_rows.tolist():
            raw = view[offsets[row] : offsets[row + 1]].tobytes()
            # An entry without a value is what some clients send; something without a name is not.
            if any(not entry.partition(b"\x01")[0] or b"\x01" not in entry for entry in raw.split(b"\x02") if entry):
                text = f"the properties are not entries of name and value: {raw[:40]!r}..."
                self._tell(Severity.ERROR, "record-properties", text, int(columns.log_offset[row]))
        if not (view >= 0x80).any() or _is_utf8(view.tobytes()):
            return
        for row in range(len(offsets) - 1):
            if not _is_utf8(view[offsets[row] : offsets[row + 1]].tobytes()):
                text = "the properties are no UTF-8 text; readers see U+FFFD in it"
                self._tell(Severity.NOTE, "record-text", text, int(columns.log_offset[row]))

    def _check_times(self, columns: Columns) -> None:
        times = columns.store_timestamp_ms
        senseless = (times <= 0) | (times > _TIME_MS_MAX)
        for row in np.flatnonzero(senseless).tolist():
            self._tell(Severity.ERROR, "record-time", f"store time {times[row]} is none", int(columns.log_offset[row]))
        sensible: NDArray[np.int64] = times[~senseless]
        if not len(sensible):
            return
        highest = np.maximum.accumulate(np.concatenate(([self._facts.last_timestamp_ms], sensible)))
        back = highest[:-1] - sensible
        rows = np.flatnonzero(back > 0)
        if len(rows):
            if not self._times_back:
                self._time_back_first = int(columns.log_offset[~senseless][rows[0]])
            self._times_back += len(rows)
            self._time_back_max_ms = max(self._time_back_max_ms, int(back.max()))
        self._facts.last_timestamp_ms = int(highest[-1])

    def damage(self, damage: Damage) -> None:
        """Take note of a place where there is no record."""
        self._settle()
        self._facts.damages.append((damage.log_offset, damage.end_offset))
        kind = _DAMAGE_KINDS[damage.kind]
        file = self._store.relative(damage.path)
        lost = f"{damage.end_offset - damage.log_offset} bytes up to log offset {damage.end_offset} cannot be read"
        text = f"no record at log offset {damage.log_offset}: {damage.reason}; {lost}"
        if damage.kind is DamageKind.REMOVED:
            self._findings.note(kind, file, text, damage.position, damage.log_offset)
        elif damage.kind is DamageKind.MISSING:
            self._findings.error(kind, file, text, None, damage.log_offset)
        else:
            self._findings.error(kind, file, text, damage.position, damage.log_offset)

    def end(self, end: LogEnd, covered_offset: int) -> None:
        """Judge how the log ends. Consume queues know of records up to `covered_offset`."""
        is_unclean = self._facts.is_unclean
        self._facts.end_offset = end.log_offset
        if self._suspects and is_unclean:
            _, text, log_offset = self._suspects[0]
            self._tell(
                Severity.NOTE, "log-torn", f"{text}; it is the last record, so recovery cuts the log here", log_offset
            )
            self._facts.end_offset = log_offset
            self._suspects.clear()
        self._settle()
        file = self._store.relative(end.path)
        if end.reason:
            text = f"the log ends with something that is no record: {end.reason} ({end.leftover_size} bytes)"
            if is_unclean:
                self._findings.note("log-torn", file, f"{text}; recovery cuts them", end.position, end.log_offset)
            elif covered_offset > end.log_offset:
                self._findings.error(
                    "log-damaged",
                    file,
                    f"{text}; consume queues know of records up to log offset {covered_offset}",
                    end.position,
                    end.log_offset,
                )
            else:
                text = f"{end.leftover_size} bytes of an earlier end of the log lie behind its end"
                self._findings.note("log-leftovers", file, text, end.position, end.log_offset)
        elif end.leftover_size:
            text = f"behind the end of the log, {end.leftover_size} bytes further on, lies something that is no record"
            self._findings.note("log-leftovers", file, text, end.position, end.log_offset)
        if self._times_back:
            self._tell(
                Severity.NOTE,
                "log-clock",
                f"store times go back in {self._times_back} records, by up to {self._time_back_max_ms} ms: the clock "
                "was set back, and a search by time may miss by as much",
                self._time_back_first,
            )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
