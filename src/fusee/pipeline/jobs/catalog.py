"""What an archive holds: one small file for every change, numbered, never altered.

Theory of operation
-------------------
    ARCHIVE/
      topic=orders/date=2026-11-17/hour=9/b000000000012-0.parquet    rows; only committed ones are ever here
      _catalog/000000000012.json                                      a change: files that came and went, offsets
      _staged/000000000012-5f0c.../...                                files of a change that is being made
      _checkpoint/                                                    Spark's own, of the stream that fills the archive

A change is made in three steps: its files are written under `_staged`; its entry is published in `_catalog`, which is
the moment at which it counts; its files are moved to their places and those it replaces are deleted. A crash before
the second step leaves nothing that counts, and the next attempt writes over it. A crash after it is finished by
whoever opens the catalog for writing next (`Catalog.finish`); both parts of the third step may be done again. Two
writers at once meet at the second step: the number can be published once, and each has a staged folder of its own. The
one that begins clears the folder of the other, who finds its files gone and publishes nothing.

An entry of the stream carries the query and the batch that it is, so that a batch which Spark runs again after a crash
is recognised and left out. It carries where each queue is after it, which is how a new stream without checkpoint goes
on behind what is archived, and how live rows are told from archived ones.

A reader that goes by the catalog sees a change whole or not at all. One that lists the folders sees files come one
after the other, and for a moment both sides of a compaction.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from fusee.errors import FuseeError
from fusee.pipeline.positions import flat, nested

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fusee.message.model import MessageQueue
    from fusee.pipeline.jobs.folders import Folder

VERSION: Final = 1
CATALOG: Final = "_catalog"
STAGED: Final = "_staged"
CHECKPOINT: Final = "_checkpoint"
HOUR: Final = "%s/%02d"
"""How an hour is told: its date and its number."""


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of rows: its path below the archive, rows, bytes, and its topic and hour."""

    path: str
    rows: int
    size: int
    topic: str
    date: str
    hour: int

    @property
    def partition(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change of an archive."""

    number: int
    kind: Literal["batch", "compaction"]
    added: tuple[ArchivedFile, ...] = ()
    removed: tuple[str, ...] = ()
    positions: Mapping[str, Any] = field(default_factory=dict)
    """Where each queue that the batch has rows of is after it: topic, broker, queue, next offset."""
    query_id: str = ""
    batch_id: int = -1
    made_at_ms: int = 0
    attempt: str = ""
    """Tells its staged folder apart from that of another writer who tries the same number."""

    @property
    def staged(self) -> str:
        return f"{STAGED}/{self.number:012}-{self.attempt}" if self.attempt else f"{STAGED}/{self.number:012}"

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, path: str) -> Entry:
        try:
            value = json.loads(text)
            version = value.pop("version")
            if version != VERSION:
                raise FuseeError(f"{path} is of version {version}; this Fusee reads version {VERSION}: use a newer one")
            value["added"] = tuple(ArchivedFile(**one) for one in value["added"])
            value["removed"] = tuple(value["removed"])
            return cls(**value)
        except (ValueError, TypeError, KeyError) as error:
            raise FuseeError(f"{path} is not an entry of an archive's catalog: {error}") from error


class Catalog:
    """The catalog of one archive."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._entries: list[Entry] = []
        self.refresh()

    def refresh(self) -> None:
        """Reads what was published since. Raises FuseeError when an entry is missing or cannot be understood."""
        names = [name for name in self._folder.names(CATALOG) if not name.startswith(".")]
        for name in names[len(self._entries) :]:
            path = f"{CATALOG}/{name}"
            entry = Entry.from_json(self._folder.read(path), self._folder.uri(path))
            if entry.number != len(self._entries):
                raise FuseeError(
                    f"{self._folder.uri(CATALOG)} has no entry {len(self._entries)}: what is archived cannot be told; "
                    "bring the file back"
                )
            self._entries.append(entry)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    @property
    def next_number(self) -> int:
        return len(self._entries)

    def files(self) -> list[ArchivedFile]:
        """Every file that counts, in the order in which they came."""
        held: dict[str, ArchivedFile] = {}
        for entry in self._entries:
            for path in entry.removed:
                held.pop(path, None)
            held.update((one.path, one) for one in entry.added)
        return list(held.values())

    def positions(self) -> dict[MessageQueue, int]:
        """Where each queue is behind what is archived."""
        found: dict[MessageQueue, int] = {}
        for entry in self._entries:
            found.update(flat(entry.positions))
        return found

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Whether this batch of this query is archived."""
        return any(one.query_id == query_id and one.batch_id == batch_id for one in reversed(self._entries))

    def commit(self, entry: Entry) -> None:
        """Publishes the change and puts its files in place. Raises FuseeError when another writer was first."""
        if not all(self._folder.exists(f"{entry.staged}/{one.path}") for one in entry.added):
            raise self._refusal(f"the files of entry {entry.number} are gone")
        if not self._folder.publish(f"{CATALOG}/{entry.number:012}.json", entry.to_json()):
            raise self._refusal(f"entry {entry.number} is there already")
        self._entries.append(entry)
        self._apply(entry)

    def finish(self) -> None:
        """Completes the last change if its writer could not, and clears what was never committed."""
        if self._entries:
            self._apply(self._entries[-1])
        self._folder.delete(STAGED)

    def resolve(
        self, *, topics: Collection[str] | None = None, hours: Collection[str] | None = None
    ) -> dict[str, list[str]]:
        """The addresses of the files that count, by the root they are below: a few may not be in their place yet.

        All of them, or those of some topics, or of some hours.
        """
        found: dict[str, list[str]] = {}
        last = self._entries[-1] if self._entries else None
        for one in self.files():
            if (topics is not None and one.topic not in topics) or (
                hours is not None and HOUR % (one.date, one.hour) not in hours
            ):
                continue
            is_moved = last is None or one not in last.added or self._folder.exists(one.path)
            root = self._folder.root if is_moved or last is None else self._folder.uri(last.staged)
            found.setdefault(root, []).append(f"{root}/{one.path}")
        return found

    def _refusal(self, reason: str) -> FuseeError:
        return FuseeError(
            f"somebody else writes to {self._folder.root} ({reason}): one archive has one writer at a time; stop the "
            "other one and start again"
        )

    def _apply(self, entry: Entry) -> None:
        for one in entry.added:
            self._folder.move(f"{entry.staged}/{one.path}", one.path)
        for path in entry.removed:
            self._folder.delete(path)
        self._folder.delete(STAGED)


def written(positions: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Positions as an entry has them."""
    return nested(positions)
