"""What a replay sends, cut into chunks that can be counted off, and the file that remembers how far it is."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from fusee.errors import ConfigError, FuseeError
from fusee.message.model import MessageQueue
from fusee.pipeline.jobs.archive import read_archive
from fusee.pipeline.jobs.catalog import HOUR, Catalog
from fusee.pipeline.jobs.folders import Folder
from fusee.pipeline.jobs.tables import beyond_archive
from fusee.pipeline.options import read_options
from fusee.pipeline.positions import nested
from fusee.pipeline.start_and_end import ending_positions, starting_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from fusee.pipeline.jobs.selection import Selection
    from fusee.pipeline.jobs.tables import Place

VERSION: Final = 2
CHUNK_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of offsets in each of some queues (as JSON of the source's options).

    Of an archive also the hours that have them, and not the files: those may be put together while a replay goes on.
    """

    assign: str
    starting: str
    ending: str
    hours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Messages of a queue that follow each other in an archive: the first and last, how many, their hours, sorted."""

    queue: MessageQueue
    first: int
    last: int
    rows: int
    hours: tuple[str, ...]


class ReplayState:
    """The plan of a replay and how much of it is done; kept in a file if there is a path."""

    def __init__(
        self, path: Path | None, asked: Mapping[str, Any], name: str, chunks: Sequence[Chunk], rows_per_chunk: int
    ) -> None:
        self.name = name
        self.chunks = tuple(chunks)
        self._path = path
        self._asked = dict(asked)
        self._rows_per_chunk = rows_per_chunk
        self._counts: list[tuple[int, int]] = []
        self.sent_before = 0

    @classmethod
    def opened(
        cls,
        path: Path | None,
        asked: Mapping[str, Any],
        plan: Callable[[], list[Chunk]],
        *,
        rows_per_chunk: int = CHUNK_ROWS,
        rate: float | None = None,
    ) -> Self:
        """The state in the file; a new one, with a new plan of chunks of at most so many messages, when there is none.

        Raises ConfigError when the file is of another replay, or its chunks are too large for the rate.
        """
        if path is None or not path.exists():
            state = cls(path, asked, uuid4().hex, plan(), rows_per_chunk)
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
            state = cls(path, asked, value["name"], chunks, int(value["rowsPerChunk"]))
            state._counts = [(int(sent), int(held)) for sent, held in value["counts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise FuseeError(f"{path} is not the state of a replay: {error}; give another state file") from error
        if rate is not None and state._rows_per_chunk > max(1, rate):
            raise ConfigError(
                f"{path} was planned in chunks of up to {state._rows_per_chunk} messages, which are sent at once: more "
                f"than {rate:g} a second; go on at {state._rows_per_chunk} or more, or without a rate, or give another "
                "state file to begin anew"
            )
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
            "rowsPerChunk": self._rows_per_chunk,
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
    """Chunks of at most so many messages. Those of one queue are in their order, and what is archived goes by hours."""
    chunks: list[Chunk] = []
    source: Mapping[str, str] | None = place.source if place.is_live else None
    if place.archive is not None:
        positions = Catalog(Folder(spark, place.archive)).positions()
        queues = sum(queue.topic in topics for queue in positions)
        rows = selection.applied(read_archive(spark, place.archive, topics=topics))
        chunks += block_chunks(_blocks(rows, max(1, rows_per_chunk // max(1, queues))), rows_per_chunk)
        if source is not None:
            source = beyond_archive(source, positions, topics)
    if source is not None:
        options = {"subscribe": ",".join(topics), **source}
        if "startingOffsets" not in options:
            options |= selection.starting_options()
        chunks += queue_chunks(_bounds(options), rows_per_chunk)
    return chunks


def block_chunks(blocks: Sequence[Block], rows_per_chunk: int) -> list[Chunk]:
    """As many blocks as fit, oldest hours first, all queues alike; blocks of a queue in the order of their offsets."""
    latest: dict[MessageQueue, str] = {}
    turns: Counter[tuple[str, MessageQueue]] = Counter()
    ranked: list[tuple[str, int, MessageQueue, Block]] = []
    for block in sorted(blocks, key=lambda one: one.first):
        # A clock that was set back does not bring a queue's later messages before its earlier ones.
        hour = latest[block.queue] = max(latest.get(block.queue, ""), block.hours[0])
        ranked.append((hour, turns[hour, block.queue], block.queue, block))
        turns[hour, block.queue] += 1
    chunks = []
    held: list[Block] = []
    for *_, block in sorted(ranked, key=lambda one: one[:3]):
        if held and sum(one.rows for one in held) + block.rows > rows_per_chunk:
            chunks.append(_chunk_of(held))
            held = []
        held.append(block)
    return [*chunks, _chunk_of(held)] if held else []


def queue_chunks(ranges: Mapping[MessageQueue, tuple[int, int]], rows_per_chunk: int) -> list[Chunk]:
    """Of all queues alike, so that each chunk has a share of every queue that is not at its end."""
    at = {queue: start for queue, (start, end) in sorted(ranges.items()) if start < end}
    chunks = []
    while at:
        # Those that had no place in this chunk are first in the next one.
        some = list(at)[:rows_per_chunk]
        taken = {}
        for queue in some:
            start, last = at.pop(queue), ranges[queue][1]
            end = min(start + rows_per_chunk // len(some), last)
            taken[queue] = (start, end)
            if end < last:
                at[queue] = end
        chunks.append(_chunk(taken))
    return chunks


def _chunk(ranges: Mapping[MessageQueue, tuple[int, int]], hours: tuple[str, ...] = ()) -> Chunk:
    assign: dict[str, dict[str, list[int]]] = {}
    for queue in sorted(ranges):
        assign.setdefault(queue.topic, {}).setdefault(queue.broker_name, []).append(queue.queue_id)
    starting = nested({queue: start for queue, (start, _) in ranges.items()})
    ending = nested({queue: end for queue, (_, end) in ranges.items()})
    return Chunk(json.dumps(assign), json.dumps(starting), json.dumps(ending), hours)


def _chunk_of(blocks: Sequence[Block]) -> Chunk:
    """Blocks of a queue follow each other."""
    ranges: dict[MessageQueue, tuple[int, int]] = {}
    for block in blocks:
        start, _ = ranges.get(block.queue, (block.first, 0))
        ranges[block.queue] = (start, block.last + 1)
    return _chunk(ranges, tuple(sorted({hour for block in blocks for hour in block.hours})))


def _blocks(rows: DataFrame, rows_per_block: int) -> list[Block]:
    """The rows of an archive, so many of a queue each, counted by Spark."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    queue = ("topic", "brokerName", "queueId")
    place = f.dense_rank().over(Window.partitionBy(*queue).orderBy("queueOffset"))
    numbered = rows.select(
        *queue,
        "queueOffset",
        f.format_string(HOUR, "date", "hour").alias("hour"),
        f.floor((place - 1) / rows_per_block).alias("block"),
    )
    found = numbered.groupBy(*queue, "block").agg(
        f.min("queueOffset"), f.max("queueOffset"), f.count(f.lit(1)), f.sort_array(f.collect_set("hour"))
    )
    return [
        Block(MessageQueue(row[0], row[1], row[2]), row[4], row[5], row[6], tuple(row[7])) for row in found.collect()
    ]


def _bounds(options: Mapping[str, str]) -> dict[MessageQueue, tuple[int, int]]:
    """Where each queue begins and ends now, as the options say."""
    from fusee.pipeline.reading import open_view

    asked = read_options(options, reading="batch")
    view = open_view(asked)
    try:
        bounds = view.bounds(view.queues(asked.topics))
        starts = starting_positions(asked, bounds, view)
        ends = ending_positions(asked, bounds, view)
    finally:
        view.close()
    return {queue: (start, ends[queue]) for queue, start in starts.items()}


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
