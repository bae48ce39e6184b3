"""What a replay sends, cut into chunks that can be counted off, and the file that remembers how far it is."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from fusee.errors import ConfigError, FuseeError
from fusee.message.model import MessageQueue
from fusee.pipeline.cluster_view import ClusterView
from fusee.pipeline.jobs.catalog import Catalog
from fusee.pipeline.jobs.folders import Folder
from fusee.pipeline.jobs.tables import live
from fusee.pipeline.options import read_options
from fusee.pipeline.positions import nested
from fusee.pipeline.start_and_end import ending_positions, starting_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from fusee.pipeline.jobs.catalog import ArchivedFile
    from fusee.pipeline.jobs.selection import Selection
    from fusee.pipeline.jobs.tables import Place

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some files of an archive, or a range of offsets in each of some queues (as JSON of the source's options)."""

    topics: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    assign: str = ""
    starting: str = ""
    ending: str = ""


class ReplayState:
    """The plan of a replay and how much of it is done; kept in a file if there is a path."""

    def __init__(self, path: Path | None, asked: Mapping[str, Any], name: str, chunks: Sequence[Chunk]) -> None:
        self.name = name
        self.chunks = tuple(chunks)
        self._path = path
        self._asked = dict(asked)
        self._counts: list[tuple[int, int]] = []
        self.sent_before = 0

    @classmethod
    def opened(cls, path: Path | None, asked: Mapping[str, Any], plan: Callable[[], list[Chunk]]) -> Self:
        """The state in the file; a new one, with a new plan, when there is none."""
        if path is None or not path.exists():
            state = cls(path, asked, uuid4().hex, plan())
            state._save()
            return state
        try:
            value = json.loads(path.read_text())
            if value["version"] != VERSION:
                raise FuseeError(f"{path} is of version {value['version']}; this Fusee reads version {VERSION}")
            if value["asked"] != json.loads(json.dumps(asked)):
                raise ConfigError(
                    f"{path} is the state of another replay ({value['asked']}); give another state file, or delete it "
                    "to begin anew"
                )
            chunks = [Chunk(**{key: _tupled(part) for key, part in one.items()}) for one in value["chunks"]]
            state = cls(path, asked, value["name"], chunks)
            state._counts = [(int(sent), int(held)) for sent, held in value["counts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise FuseeError(f"{path} is not the state of a replay: {error}; give another state file") from error
        state.sent_before = state.sent
        return state

    @property
    def done(self) -> int:
        return len(self._counts)

    @property
    def sent(self) -> int:
        return sum(sent for sent, _ in self._counts)

    @property
    def held(self) -> int:
        return sum(held for _, held in self._counts)

    def finished(self, number: int, counts: tuple[int, int]) -> None:
        """Chunk `number` is sent. It is the next one."""
        assert number == len(self._counts)
        self._counts.append(counts)
        self._save()

    def counted(self, since: int) -> Iterator[tuple[int, int, int]]:
        for number in range(since, len(self._counts)):
            yield (number, *self._counts[number])

    def _save(self) -> None:
        if self._path is None:
            return
        value = {
            "version": VERSION,
            "name": self.name,
            "asked": self._asked,
            "chunks": [asdict(one) for one in self.chunks],
            "counts": self._counts,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f".{self._path.name}.new")
        with beside.open("w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


def plan_chunks(
    spark: SparkSession, place: Place, topics: Sequence[str], selection: Selection, rows_per_chunk: int
) -> list[Chunk]:
    """Chunks of about so many messages, oldest first."""
    chunks: list[Chunk] = []
    beyond: dict[MessageQueue, int] = {}
    if place.archive is not None:
        catalog = Catalog(Folder(spark, place.archive))
        chunks += file_chunks(catalog.files(), topics, rows_per_chunk)
        beyond = catalog.positions()
    if place.is_live:
        if "store" in place.source:
            ranges = _store_bounds(spark, place.source, topics)
        else:
            ranges = _bounds({"subscribe": ",".join(topics), **place.source, **selection.starting_options()})
        ahead = {queue: (max(start, beyond.get(queue, 0)), end) for queue, (start, end) in ranges.items()}
        chunks += queue_chunks(ahead, rows_per_chunk)
    return chunks


def file_chunks(files: Sequence[ArchivedFile], topics: Sequence[str], rows_per_chunk: int) -> list[Chunk]:
    """Whole files in the order of their hours, as many as fit; a large one makes a chunk of its own."""
    chunks: list[Chunk] = []
    held: list[str] = []
    rows = 0
    for one in sorted(files, key=lambda file: (file.date, file.hour, file.path)):
        if one.topic not in topics:
            continue
        if held and rows + one.rows > rows_per_chunk:
            chunks.append(Chunk(tuple(topics), tuple(held)))
            held, rows = [], 0
        held.append(one.path)
        rows += one.rows
    if held:
        chunks.append(Chunk(tuple(topics), tuple(held)))
    return chunks


def queue_chunks(ranges: Mapping[MessageQueue, tuple[int, int]], rows_per_chunk: int) -> list[Chunk]:
    """Of all queues alike, so that each chunk has a share of every queue that is not at its end."""
    at = {queue: start for queue, (start, end) in ranges.items() if start < end}
    chunks = []
    while at:
        share = max(1, rows_per_chunk // len(at))
        to = {queue: min(start + share, ranges[queue][1]) for queue, start in at.items()}
        assign: dict[str, dict[str, list[int]]] = {}
        for queue in sorted(at):
            assign.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
        topics = tuple(sorted({queue.topic for queue in at}))
        chunks.append(Chunk(topics, (), json.dumps(assign), json.dumps(nested(at)), json.dumps(nested(to))))
        at = {queue: end for queue, end in to.items() if end < ranges[queue][1]}
    return chunks


def _bounds(options: Mapping[str, str]) -> dict[MessageQueue, tuple[int, int]]:
    """Where each queue begins and ends now, as the options say."""
    asked = read_options(options, reading="batch")
    view = ClusterView(asked)
    try:
        bounds = view.bounds(view.queues(asked.topics))
        starts = starting_positions(asked, bounds, view)
        ends = ending_positions(asked, bounds, view)
    finally:
        view.close()
    return {queue: (start, ends[queue]) for queue, start in starts.items()}


def _store_bounds(
    spark: SparkSession, source: Mapping[str, str], topics: Sequence[str]
) -> dict[MessageQueue, tuple[int, int]]:
    """The same for store directories, which are looked through."""
    from pyspark.sql import functions as f

    rows = live(spark, source, topics).groupBy("topic", "brokerName", "queueId")
    found = rows.agg(f.min("queueOffset"), f.max("queueOffset")).collect()
    return {MessageQueue(row[0], row[1], row[2]): (row[3], row[4] + 1) for row in found}


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
