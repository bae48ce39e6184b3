"""Who changed what, when: one line of JSON per change, appended and synced before the change is reported as done.

The file is bounded: when it is full it becomes `audit.1.jsonl`, which replaces the one before. A change is written
down twice: that it is about to be made, and how it ended; a crash between the two leaves the first, which tells that
the outcome is not known. An entry may hold what is needed to undo the change.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.clock import Clock

SIZE_MAX: Final = 8 * 1024 * 1024
SHOWN_MAX: Final = 500
_LINE_MAX: Final = 256 * 1024


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    number: int
    at_ms: int
    who: str
    action: str
    target: str
    details: dict[str, Any] = {}
    outcome: str = "begun"
    """`begun`, `done`, or `failed: cause`; `begun` that stays means that the outcome is not known."""
    undo: dict[str, Any] = {}
    """What would put things back: given to the change named `undo`."""
    undone_by: int = 0


class Audit:
    """The log of changes. Without a folder it lives in memory, for consoles that keep nothing."""

    def __init__(self, folder: Path | None, clock: Clock, *, size_max: int = SIZE_MAX) -> None:
        self._path = None if folder is None else folder / "audit.jsonl"
        self._clock = clock
        self._size_max = size_max
        self._entries: dict[int, Entry] = {}
        self._next = 1

    @property
    def is_durable(self) -> bool:
        return self._path is not None

    def load(self) -> None:
        """Read what was written down. Raises ConfigError when the folder cannot be used."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for path in (self._path.with_suffix(".1.jsonl"), self._path):
                if path.exists():
                    self._read(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"the audit log {self._path} cannot be read: {error.strerror or error}") from error

    def _read(self, content: bytes) -> None:
        for line in content.splitlines():
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except msgspec.DecodeError:
                continue  # the last line of a crash
            self._entries[entry.number] = entry
            self._next = max(self._next, entry.number + 1)
        self._drop_old()

    def begin(self, who: str, action: str, target: str, details: dict[str, Any]) -> Entry:
        """Write down that a change is about to be made. Raises ConfigError when it cannot be written."""
        entry = Entry(
            number=self._next, at_ms=self._clock.time_ms(), who=who, action=action, target=target, details=details
        )
        self._next += 1
        self._write(entry)
        return entry

    def finish(self, entry: Entry, *, failure: str = "", undo: dict[str, Any] | None = None) -> Entry:
        """Write down how it ended."""
        outcome = f"failed: {failure}" if failure else "done"
        ended = msgspec.structs.replace(entry, outcome=outcome, undo=undo or {})
        self._write(ended)
        return ended

    def mark_undone(self, entry: Entry, by: Entry) -> None:
        """Write down that a change was put back by another."""
        self._write(msgspec.structs.replace(entry, undone_by=by.number))

    def get(self, number: int) -> Entry | None:
        return self._entries.get(number)

    def newest(self, limit: int = SHOWN_MAX) -> tuple[Entry, ...]:
        """The newest changes first."""
        return tuple(sorted(self._entries.values(), key=lambda entry: -entry.number)[:limit])

    def _write(self, entry: Entry) -> None:
        self._entries[entry.number] = entry
        self._drop_old()
        if self._path is None:
            return
        line = msgspec.json.encode(entry) + b"\n"
        if len(line) > _LINE_MAX:
            line = msgspec.json.encode(msgspec.structs.replace(entry, details={"too large": True}, undo={})) + b"\n"
        try:
            if self._path.exists() and self._path.stat().st_size + len(line) > self._size_max:
                self._path.replace(self._path.with_suffix(".1.jsonl"))
            with self._path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(
                f"nothing was changed: the audit log {self._path} cannot be written: {error.strerror or error}"
            ) from error

    def _drop_old(self) -> None:
        while len(self._entries) > 4 * SHOWN_MAX:
            del self._entries[next(iter(self._entries))]
