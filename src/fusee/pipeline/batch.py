"""A batch read of topics: from the beginning, or from somewhere, to the end as it is when the query is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader

from fusee.pipeline.pushed_filters import PushedFilters, in_word
from fusee.pipeline.ranges import QueueRange
from fusee.pipeline.reading import open_view, read_task, tasks_of
from fusee.pipeline.start_and_end import ending_positions, starting_positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter, InputPartition

    from fusee.pipeline.options import ReadOptions


class PushFilters:
    """Takes the filters of a query; all are given back, for Spark to evaluate too.

    Spark refuses a reader that overrides `pushFilters` unless a setting is on that is off by default, so the reader
    carries this as an attribute, and looks to Spark as if it did not override it: filters are pushed where the setting
    is on, and reading works where it is not.
    """

    def __init__(self, pushed: PushedFilters) -> None:
        self._pushed = pushed
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            condition = in_word(each)
            if condition is not None:
                self._pushed.accept(*condition)
            yield each


class BatchReader(DataSourceReader):
    """Plans in one process, reads in others; it holds no connection and pickles."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._pushed = PushedFilters()
        self.__dict__["pushFilters"] = PushFilters(self._pushed)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, each with the ranges that it reads."""
        return [] if self._tags is None else tasks_of(self._options, self._ranges())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On a worker: the rows of one task."""
        return read_task(self._options, partition, self._columns, tags=self._tags)

    @property
    def _tags(self) -> str | None:
        """The tags that the broker lets through; None when no message can match."""
        return self._options.tags if self._options.sql is not None else self._pushed.tags(self._options.tags)

    def _ranges(self) -> list[QueueRange]:
        options, pushed = self._options, self._pushed
        view = open_view(options)
        try:
            there = view.queues(options.topics)
            queues = [queue for queue in there if pushed.allow(queue)]
            bounds = view.bounds(queues)
            starts = starting_positions(options, bounds, view, there=there)
            ends = ending_positions(options, bounds, view, there=there)
            if (times := pushed.times_ms) is not None:
                first = view.offsets_at(dict.fromkeys(queues, times[0]))
                after = view.offsets_at(dict.fromkeys(queues, times[1]))
                starts = {queue: max(starts[queue], first[queue]) for queue in queues}
                ends = {queue: min(ends[queue], after[queue]) for queue in queues}
        finally:
            view.close()
        least, most = pushed.offsets
        found = (
            QueueRange(
                queue.topic, queue.broker_name, queue.queue_id, max(starts[queue], least), min(ends[queue], most)
            )
            for queue in queues
        )
        return sorted(
            (each for each in found if each.count), key=lambda each: (each.broker_name, each.topic, each.queue_id)
        )
