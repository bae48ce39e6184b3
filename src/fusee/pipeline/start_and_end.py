"""Where a read begins and ends in each queue: what the options say, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fusee.errors import DataLossError
from fusee.pipeline.option_table import OptionError
from fusee.pipeline.options import EARLIEST, LATEST, listed_queues, on_broker

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fusee.message.model import MessageQueue
    from fusee.pipeline.admission import Bounds
    from fusee.pipeline.options import ReadOptions, Where


class TimeIndex(Protocol):
    """Knows at which offset a time begins."""

    def offsets_at(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]: ...


def starting_positions(
    options: ReadOptions,
    bounds: Mapping[MessageQueue, Bounds],
    times: TimeIndex,
    *,
    there: Collection[MessageQueue] | None = None,
) -> dict[MessageQueue, int]:
    """Where a new query begins in the queues of `bounds`; `there` are all that options may name, if those are more.

    Raises OptionError when a queue that is named does not exist, or has no message as late as asked for and the
    options do not say what to do; DataLossError when it no longer has the offset asked for.
    """
    where = options.starting
    named = _by_queue(where, bounds if there is None else there, "starting")
    if where.is_time:
        wanted = {queue: time for queue in bounds if (time := named.get(queue, where.default)) >= 0}
        found = times.offsets_at(wanted)
        late = sorted(queue for queue, queue_offset in found.items() if queue_offset >= bounds[queue].max_offset)
        if late and options.starting_no_match == "error":
            raise OptionError(
                f"queue {late[0].queue_id} of {late[0].topic!r} on {late[0].broker_name} has no message stored at "
                f"{wanted[late[0]]} ms or later; give an earlier time, or option startingOffsetsByTimestampStrategy "
                "= latest to begin at the end of such queues"
            )
        rest = {queue: bound.min_offset for queue, bound in bounds.items() if queue not in found}
        return rest | {queue: max(place, bounds[queue].min_offset) for queue, place in found.items()}
    return {queue: _start(options, queue, bound, named.get(queue, where.default)) for queue, bound in bounds.items()}


def ending_positions(
    options: ReadOptions,
    bounds: Mapping[MessageQueue, Bounds],
    times: TimeIndex,
    *,
    there: Collection[MessageQueue] | None = None,
) -> dict[MessageQueue, int]:
    """Where a batch ends, exclusive; at the end of the queue where the place asked for is beyond it.

    `there` is as for `starting_positions`.
    """
    where = options.ending
    named = _by_queue(where, bounds if there is None else there, "ending")
    asked = {queue: named.get(queue, where.default) for queue in bounds}
    if where.is_time:
        asked |= times.offsets_at({queue: time for queue, time in asked.items() if time >= 0})
    return {
        queue: bounds[queue].max_offset if place < 0 else min(place, bounds[queue].max_offset)
        for queue, place in asked.items()
    }


def _start(options: ReadOptions, queue: MessageQueue, bound: Bounds, place: int) -> int:
    if place == EARLIEST:
        return bound.min_offset
    if place == LATEST:
        return bound.max_offset
    if bound.min_offset <= place <= bound.max_offset:
        return place
    if options.fail_on_data_loss:
        raise DataLossError(
            f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} has the offsets {bound.min_offset} to "
            f"{bound.max_offset}, and startingOffsets says {place}; give one of those, or failOnDataLoss = false to "
            "begin at the nearest"
        )
    return min(max(place, bound.min_offset), bound.max_offset)


def _by_queue(where: Where, there: Collection[MessageQueue], side: str) -> dict[MessageQueue, int]:
    """The places of queues that are named, by queue. A name without a broker stands where one broker has the topic."""
    name = f"{side}OffsetsByTimestamp" if where.is_time else f"{side}Offsets"
    found: dict[MessageQueue, int] = {}
    for (topic, broker_name, queue_id), place in where.by_queue.items():
        queues = [
            queue
            for queue in there
            if queue.topic == topic and queue.queue_id == queue_id and broker_name in (None, queue.broker_name)
        ]
        if not queues:
            raise OptionError(
                f"option {name!r} names queue {queue_id} of {topic!r}{on_broker(broker_name)}, which is not read; "
                f"there are: {listed_queues(there, topic)}"
            )
        if len(queues) > 1:
            raise OptionError(
                f"option {name!r} names queue {queue_id} of {topic!r}, which {len(queues)} brokers have; say which: "
                f'{{"{topic}": {{"{queues[0].broker_name}": {{"{queue_id}": {place}}}}}}}'
            )
        found[queues[0]] = place
    return found
