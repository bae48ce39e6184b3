"""How far a stream is behind the ends of its queues, from the progress that Spark reports.

    spark.streams.addListener(LagListener(lambda query, behind: print(query, sum(behind.values()))))

A source in Python cannot add numbers to Spark's progress; but it reports the ends of the queues beside the end of the
batch, and the difference is the lag.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from fusee.pipeline.positions import StreamOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_log = logging.getLogger(__name__)


def offsets_behind(progress: StreamingQueryProgress | Mapping[str, Any]) -> dict[str, int]:
    """Messages that are in the queues and not yet in a batch, by topic; sources of other kinds are left out."""
    read: Mapping[str, Any] = progress if isinstance(progress, dict) else json.loads(progress.json)  # type: ignore[union-attr]
    behind: Counter[str] = Counter()
    for source in read.get("sources", ()):
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        for queue, place in latest.to.items():
            behind[queue.topic] += max(0, place - end.to.get(queue, place))
    return dict(behind)


def _offset(written: object) -> StreamOffset | None:
    """An offset of ours, which progress has as an object in one place and as text in another."""
    value = json.loads(written) if isinstance(written, str) and written.startswith("{") else written
    if not isinstance(value, dict) or not {"from", "to", "version"} <= value.keys():
        return None
    return StreamOffset.from_json(value)


class LagListener(StreamingQueryListener):
    """Tells how far each query is behind, after every batch: the name or id of the query, and messages by topic."""

    def __init__(self, tell: Callable[[str, dict[str, int]], object] | None = None) -> None:
        self._tell = tell or _write_down

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's names
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if behind := offsets_behind(event.progress):
            self._tell(event.progress.name or str(event.progress.id), behind)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing is known any more."""


def _write_down(query: str, behind: dict[str, int]) -> None:
    _log.info("query %s is %d messages behind: %s", query, sum(behind.values()), behind)
