"""How many batches and rows streaming queries took, counted as Spark tells of each; its own list keeps the last 100."""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

END_TIMEOUT: Final = 30.0
"""Seconds in which Spark's event of a query's end has come, and those of its batches before it."""


class SinkCounts(StreamingQueryListener):
    """Counts for every query of a session; told by a thread of Spark's."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = Condition()
        self._counts: dict[str, tuple[int, int]] = {}
        self._ended: set[str] = set()

    def of(self, query: StreamingQuery) -> tuple[int, int]:
        """Batches and rows of this run of a query, which has ended."""
        run = str(query.runId)
        with self._changed:
            self._changed.wait_for(lambda: run in self._ended, END_TIMEOUT)
            return self._counts.get(run, (0, 0))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """A batch is done."""
        run = str(event.progress.runId)
        with self._changed:
            batches, rows = self._counts.get(run, (0, 0))
            self._counts[run] = (batches + 1, rows + event.progress.numInputRows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """No more will be told of this one."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()
