"""Spark pipelines: streams found by their checkpoints, and how far each is behind the queues it reads.

Spark writes `offsets/N` before it runs batch N, and `commits/N` when the batch is done. So the newest of the two tell
which batch is at work, and since when; the offset in it tells where the stream is in every queue, as Fusee's source
writes it: {"version": 1, "from": ..., "to": {topic: {broker: {queue: offset}}}}.

A stream with the option `group` also commits to a consumer group, which it marks (`fusee.admin.stream_groups`), so its
lag is known without its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusee.console.known import Known, known
from fusee.message.model import MessageQueue

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.admin.views import TopicState
    from fusee.console.context import Asked, Context

_DEPTH_MAX: Final = 4
_FOLDERS_MAX: Final = 2_000
_STREAMS_MAX: Final = 100
_FILE_MAX: Final = 4 * 1024 * 1024


class StreamLine(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, by its checkpoint."""

    name: str
    path: str
    planned_batch: int
    done_batch: int | None
    """None before the first one is done."""
    batch_lag: int
    """Batches planned and not done."""
    planned_ms: int
    done_ms: int | None
    topics: tuple[str, ...]
    queues: int
    lag: Known[int]
    """Messages after the newest planned batch."""


class StreamGroupLine(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group that a stream commits to."""

    group: str
    engine: str
    since_ms: int
    """When the stream last began."""
    topics: tuple[str, ...]
    lag: Known[int]


class PipelinesPage(msgspec.Struct, frozen=True, kw_only=True):
    """Streams found, and where they were looked for."""

    folder: str
    streams: Known[tuple[StreamLine, ...]]
    groups: Known[tuple[StreamGroupLine, ...]]
    """Groups that streams commit to."""


async def pipelines(context: Context, asked: Asked) -> PipelinesPage:
    """Spark streams: the batch at work, the last one done, and messages still to come."""
    folder = context.pipelines
    groups = await _groups(context)
    if folder is None:
        return PipelinesPage(folder="", streams=known(()), groups=groups)
    try:
        found = _checkpoints(folder)
    except OSError as error:
        return PipelinesPage(
            folder=str(folder),
            streams=Known(cause=f"{folder} cannot be read: {error.strerror or error}"),
            groups=groups,
        )
    lines = []
    for path in found[:_STREAMS_MAX]:
        line = await _stream(context, folder, path)
        if line is not None:
            lines.append(line)
    return PipelinesPage(folder=str(folder), streams=known(tuple(lines)), groups=groups)


async def _groups(context: Context) -> Known[tuple[StreamGroupLine, ...]]:
    """The marked groups that there still are; all of them while it is not known which there are."""
    marks = await context.link.ask("stream groups", lambda admin: admin.stream_groups(), fresh_seconds=3)
    if marks.value is None:
        return Known(cause=marks.cause)
    figures = context.history.figures
    lines = []
    for group, mark in list(marks.value.items())[:_STREAMS_MAX]:
        figure = None if figures is None else figures.get(group)
        if figures is not None and figure is None:
            continue
        lag: Known[int] = Known(cause=context.history.cause)
        if figure is not None:
            lag = known(figure.lag) if figure.is_whole else Known(cause="a broker did not tell its part")
        lines.append(
            StreamGroupLine(
                group=group,
                engine=mark.engine,
                since_ms=mark.since_ms,
                topics=() if figure is None else figure.topics,
                lag=lag,
            )
        )
    return known(tuple(lines))


def _checkpoints(folder: Path) -> list[Path]:
    """Folders that have what Spark writes for a stream."""
    found: list[Path] = []
    level, looked = [folder], 0
    for _ in range(_DEPTH_MAX + 1):
        deeper: list[Path] = []
        for path in level:
            looked += 1
            if looked > _FOLDERS_MAX:
                return found
            if (path / "offsets").is_dir() and (path / "metadata").exists():
                found.append(path)
            else:
                deeper += sorted(child for child in path.iterdir() if child.is_dir())
        level = deeper
    return found


def _newest(folder: Path) -> tuple[int, int] | None:
    """Number and time of the newest batch written here."""
    if not folder.is_dir():
        return None
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    if not numbers:
        return None
    newest = max(numbers)
    return newest, int((folder / str(newest)).stat().st_mtime * 1000)


async def _stream(context: Context, root: Path, path: Path) -> StreamLine | None:
    try:
        planned = _newest(path / "offsets")
        done = _newest(path / "commits")
        if planned is None:
            return None
        content = (path / "offsets" / str(planned[0])).read_bytes()[:_FILE_MAX]
    except OSError:
        return None  # it is being written, or cleaned up, this very moment
    positions = _positions(content)
    lag: Known[int] = Known(cause="the checkpoint is not of Fusee's source") if positions is None else known(0)
    if positions:
        lag = await _lag(context, positions)
    topics = sorted({queue.topic for queue in positions or {}})
    return StreamLine(
        name=str(path.relative_to(root)) if path != root else path.name,
        path=str(path),
        planned_batch=planned[0],
        done_batch=None if done is None else done[0],
        batch_lag=planned[0] - (-1 if done is None else done[0]),
        planned_ms=planned[1],
        done_ms=None if done is None else done[1],
        topics=tuple(topics),
        queues=len(positions or {}),
        lag=lag,
    )


def _positions(content: bytes) -> dict[MessageQueue, int] | None:
    """Where the stream is after its newest batch; None when no line of the file is an offset of Fusee's source."""
    for line in content.splitlines():
        try:
            offset: Any = msgspec.json.decode(line)
            return {
                MessageQueue(topic, broker, int(queue_id)): int(position)
                for topic, brokers in offset["to"].items()
                for broker, queues in brokers.items()
                for queue_id, position in queues.items()
            }
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            continue
    return None


async def _topic_state(context: Context, topic: str) -> Known[TopicState]:
    return await context.link.ask(("topic state", topic), lambda admin: admin.topic_stats(topic), fresh_seconds=3)


async def _lag(context: Context, positions: dict[MessageQueue, int]) -> Known[int]:
    total = 0
    for topic in sorted({queue.topic for queue in positions}):
        state = await _topic_state(context, topic)
        if state.value is None or state.value.failures:
            return Known(cause=state.cause or "a broker did not tell how far its queues are written")
        ends = {each.queue: each.max_offset for each in state.value.queues}
        total += sum(
            max(ends.get(queue, position) - position, 0)
            for queue, position in positions.items()
            if queue.topic == topic
        )
    return known(total)
