"""A streaming read of topics: what Spark asks of its driver, and what workers do.

Spark keeps one process for each stream, which answers where the stream begins, how far it may go, and how a batch is
divided; workers read. Nothing here may rely on being stopped: Spark kills that process. `positions` says why an offset
holds both ends of a batch.

A consumer group is told how far the stream is when Spark asks for the next end, because the batch before is then in its
commit log; `commit`, which Spark calls one batch late and not at all for the last one, does nothing.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from fusee.clock import SystemClock
from fusee.errors import DataLossError, FuseeError, TransportError
from fusee.pipeline.admission import Patience, advance, backlog, places_for, share
from fusee.pipeline.positions import StreamOffset
from fusee.pipeline.reading import open_view, read_task, tasks_of
from fusee.pipeline.start_and_end import starting_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from fusee.clock import Clock
    from fusee.message.model import MessageQueue
    from fusee.pipeline.admission import Backlog, Bounds
    from fusee.pipeline.options import ReadOptions
    from fusee.pipeline.positions import Positions
    from fusee.pipeline.reading import View

_log = logging.getLogger(__name__)

_SMALL_BATCH: Final = 10_000
_AT_ONCE_S: Final = 1.0
_GATHER_SHARE: Final = 1 / 2
"""Of the time that the batch before took."""


class StreamDriver:
    """Where a stream is and how far it may go; one for each query, in the process that Spark keeps for it."""

    def __init__(
        self, options: ReadOptions, view: View, clock: Clock, wait: Callable[[float], object] | None = None
    ) -> None:
        """`wait` lets so many seconds pass, in place of a real wait."""
        self._wait = wait or threading.Event().wait
        self._options = options
        self._view = view
        self._clock = clock
        self._patience = Patience(
            options.min_offsets_per_trigger, options.max_trigger_delay_ms, -options.max_trigger_delay_ms / 1000
        )
        self._initial: StreamOffset | None = None
        self._queues: tuple[MessageQueue, ...] = ()
        self._queues_at: float | None = None
        self._bounds: dict[MessageQueue, Bounds] = {}
        self._until: Positions | None = None
        self._published: dict[MessageQueue, int] = {}
        self._is_marked = False
        self._idle_at: float | None = None
        self._small_at: float | None = None
        """When the end of a batch with few messages was given; None when the last answer was another."""

    def initial(self) -> StreamOffset:
        """Where a new query begins; the same however often it is asked."""
        if self._initial is None:
            self._queues = self._view.queues(self._options.topics)
            self._queues_at = self._clock.monotonic()
            bounds = self._view.bounds(self._queues)
            self._initial = StreamOffset(None, starting_positions(self._options, bounds, self._view))
        return self._initial

    def freeze(self) -> None:
        """Read what there is now, and nothing that comes later (Trigger.AvailableNow)."""
        queues = self._view.queues(self._options.topics)
        self._until = {queue: bound.max_offset for queue, bound in self._view.bounds(queues).items()}

    def next(self, current: StreamOffset, *, is_limited: bool) -> StreamOffset:
        """The end of the next batch; `current` itself when there is nothing to read, or not enough yet."""
        self._publish(current.to)
        self._wait_while_idle()
        self._gather()
        self._bounds = self._view.bounds(self._known_queues(), all_needed=False)
        ready = backlog(current.to, self._bounds, self._until)
        self._judge(ready)
        now = self._clock.monotonic()
        if not ready.total and ready.start == dict(current.to):
            self._idle_at = now
            return current
        is_all = not is_limited or self._until is not None
        if ready.total and not is_all and not self._patience.is_enough(ready.total, now):
            self._idle_at = now
            return current
        if ready.total < _SMALL_BATCH and self._until is None:
            self._small_at = now
        return advance(ready, self._admitted(ready) if is_limited else ready.counts)

    def latest(self) -> StreamOffset:
        """The ends of the queues, as they were when last asked for."""
        return StreamOffset(None, {queue: bound.max_offset for queue, bound in self._bounds.items()})

    def close(self) -> None:
        self._view.close()

    def _admitted(self, ready: Backlog) -> Mapping[MessageQueue, int]:
        options, counts = self._options, ready.counts
        most = options.max_offsets_per_trigger
        if options.max_bytes_per_trigger is not None and counts and not options.store:
            longest = sorted(counts, key=lambda queue: -counts[queue])
            sizes = self._view.record_sizes({queue: ready.start[queue] for queue in longest})
            fitting = places_for(options.max_bytes_per_trigger, counts, sizes)
            most = fitting if most is None else min(most, fitting)
        return counts if most is None else share(counts, most)

    def _judge(self, ready: Backlog) -> None:
        if not ready.losses:
            return
        told = "; ".join(map(str, ready.losses))
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"messages that were to be read are gone: {told}. Keep messages longer than the stream may be away, or "
                "set option failOnDataLoss = false to go on without them"
            )
        _log.warning("messages are left out, because failOnDataLoss is false: %s", told)

    def _known_queues(self) -> Sequence[MessageQueue]:
        now = self._clock.monotonic()
        if self._queues_at is None or now - self._queues_at >= self._options.metadata_ttl_ms / 1000:
            try:
                self._queues = self._view.queues(self._options.topics, missing_ok=True)
            except TransportError as error:
                if not self._queues:
                    raise
                _log.warning("topics and queues are taken as they were known: %s", error)
            self._queues_at = now
        return self._queues

    def _wait_while_idle(self) -> None:
        """Spark asks some hundred times a second while nothing is new; brokers need not hear each of them."""
        if self._idle_at is None:
            return
        rest = self._options.poll_interval_ms / 1000 - (self._clock.monotonic() - self._idle_at)
        self._idle_at = None
        if rest > 0:
            self._wait(rest)

    def _gather(self) -> None:
        """Let a little more arrive before a batch that follows a small one at once.

        What a micro-batch costs Spark hardly depends on its size, so a stream whose batches follow each other uses a
        core whatever its rate; the fewer they are, the less it costs. Rows get older by a share of what they took
        anyway.
        """
        small_at, self._small_at = self._small_at, None
        if small_at is None:
            return
        took = self._clock.monotonic() - small_at
        if took < _AT_ONCE_S:
            self._wait(min(self._options.gather_ms / 1000, took * _GATHER_SHARE))

    def _publish(self, to: Positions) -> None:
        news = {queue: place for queue, place in to.items() if self._published.get(queue) != place}
        if not self._options.group or not news or self._options.store:
            return
        try:
            self._view.commit(self._options.group, news)
        except FuseeError as error:
            # The stream's own place is in its checkpoint; the group's is for those who watch, and is told again.
            _log.warning("group %s does not hear how far the stream is: %s", self._options.group, error)
        else:
            self._published.update(news)
            self._mark(self._options.group)

    def _mark(self, group: str) -> None:
        if self._is_marked:
            return
        self._is_marked = True
        try:
            self._view.mark(group, self._clock.time_ms())
        except FuseeError as error:
            _log.warning(
                "group %s is not marked as one of a stream, and the console does not show it: %s", group, error
            )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls. It connects when it is first asked something, so that it pickles on its way to workers."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._made: StreamDriver | None = None

    def __reduce__(self) -> tuple[type[StreamReader], tuple[ReadOptions, tuple[str, ...]]]:
        """Without the connections of the driver."""
        return StreamReader, (self._options, self._columns)

    @property
    def _driver(self) -> StreamDriver:
        if self._made is None:
            self._made = StreamDriver(self._options, open_view(self._options), SystemClock())
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        return self._driver.initial().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._driver.freeze()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A limit other than "everything" wherever an option limits; `latestOffset` applies the options themselves."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        current = StreamOffset.from_json(start)
        end = self._driver.next(current, is_limited=not isinstance(limit, ReadAllAvailable))
        return start if end is current else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._driver.latest().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, by its end alone."""
        return [] if start == end else tasks_of(self._options, StreamOffset.from_json(end).ranges())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On a worker: the rows of one task."""
        return read_task(self._options, partition, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: see the module."""

    def stop(self) -> None:
        """Let go of the connections, where Spark says so."""
        if self._made is not None:
            self._made.close()
