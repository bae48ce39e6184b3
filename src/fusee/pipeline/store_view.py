"""What the driver asks of store directories in place of a cluster: the same questions, answered from files.

Each answer is of the moment: a batch is planned from one look, a stream over a store at work looks again for each of
its batches.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fusee.errors import TopicNotFoundError
from fusee.message.model import MessageQueue
from fusee.pipeline.admission import Bounds
from fusee.pipeline.options import chosen_queues
from fusee.pipeline.store_dir import StoreQueue, offset_by_time, plan_store, store_queues
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fusee.pipeline.options import ReadOptions, Topics
    from fusee.pipeline.ranges import QueueRange, StoreRange


class StoreView:
    """Store directories as the driver of a query sees them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def close(self) -> None:
        """Nothing is kept open."""

    def queues(self, topics: Topics, *, missing_ok: bool = False) -> tuple[MessageQueue, ...]:
        """Every queue of these topics, sorted.

        Raises TopicNotFoundError for a topic that is named and not there, OptionError for a queue that is assigned and
        not there, unless `missing_ok`.
        """
        found = self._look(None if topics.pattern else topics.names)
        if topics.pattern:
            pattern = re.compile(topics.pattern)
            found = {queue: seen for queue, seen in found.items() if pattern.fullmatch(queue.topic)}
        if not missing_ok and (missing := sorted(set(topics.names) - {queue.topic for queue in found})):
            raise TopicNotFoundError(
                f"topic {missing[0]!r} has no queue in {', '.join(self._options.store)}",
                code=ResponseCode.TOPIC_NOT_EXIST,
                topic=missing[0],
            )
        return chosen_queues(found, topics, missing_ok=missing_ok)

    def bounds(self, queues: Iterable[MessageQueue], *, all_needed: bool = True) -> dict[MessageQueue, Bounds]:
        """First and next offset of each queue, up to the last message that is whole."""
        wanted = set(queues)
        found = self._look({queue.topic for queue in wanted})
        return {queue: Bounds(seen.min_offset, seen.max_offset) for queue, seen in found.items() if queue in wanted}

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The first offset that was stored at this time (ms) or later, of each queue; its end when there is none."""
        found = self._look({queue.topic for queue in times})
        return {queue: offset_by_time(found[queue], time) for queue, time in times.items()}

    def record_sizes(self, starts: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Nothing: the sizes of what lies in files are not sampled."""
        return {}

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Nothing: groups are a broker's."""

    def mark(self, group: str, since_ms: int) -> None:
        """Nothing, as well."""

    def pieces(self, ranges: Sequence[QueueRange], tasks: int) -> list[StoreRange]:
        """The work on these ranges, by stretches of the log, for at least this many tasks where there is as much."""
        return plan_store(
            self._options.store, ranges, min_partitions=tasks, fail_on_data_loss=self._options.fail_on_data_loss
        )

    def _look(self, topics: Iterable[str] | None) -> dict[MessageQueue, StoreQueue]:
        some = None if topics is None else frozenset(topics)
        return {
            MessageQueue(seen.topic, seen.broker_name, seen.queue_id): seen
            for seen in store_queues(self._options.store, topics=some)
        }
