"""Ranges of several queues at once, in the order of the log: what whoever reads whole topics asks for.

Theory of operation
-------------------
A get serves a consumer: a few messages of one queue, each looked at. Who reads a topic from end to end wants its bytes,
and wants them in the order in which they lie: the queues of a topic take turns in the log, so reading them one after
the other goes over the same pages as often as there are queues.

Here the entries of all ranges are arrays (at most `ENTRIES_MAX` of them, and about twice as many as should fit), put in
log order, filtered by tag, and cut where the limit of bytes is reached, or where the next entries of some queue are not
known yet. Per queue the answer says where to go on; how large each record is comes along, so that its reader need not
walk from record to record.

Records that touch in the log are one slice of it. When the ranges are all queues of a topic that has the log for
itself, everything is one slice, and nothing is done per message. Where slices would be many and small they are copied
into one piece: never is a byte handed out that was not asked for, since it may be of another topic.

An answer stays within one segment. What is visible to a get is visible here: queues have only what is confirmed.

Who can read the files of the log himself needs no bytes, only places. He is given them where the records lie close
together (`DENSE`); what is thinly spread is better gathered here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from fusee.store.consume_queue import BLANK_SIZE, ConsumeQueue, matches_tags
from fusee.store.record_scan import windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fusee.store.queue_table import QueueTable

ENTRIES_MAX: Final = 16_384
"""Entries that are looked at for one answer, wanted or not."""
FILTERED_ENTRIES_MAX: Final = 65_536
"""The same when a filter may leave out most of them."""
SLICES_MAX: Final = 8
DENSE: Final = 0.5
"""So much of what lies between the first and the last record must be wanted for places to be given, not bytes."""
_SAMPLE: Final = 16
_NOWHERE: Final = np.iinfo(np.int64).max


class Log(Protocol):
    """What a bulk read asks of the log."""

    @property
    def end_offset(self) -> int: ...

    @property
    def segment_size(self) -> int: ...

    def slice(self, log_offset: int, size: int) -> memoryview | None: ...


class QueueSpan(NamedTuple):
    """The messages of a queue from one offset up to, and without, another."""

    queue_id: int
    start_offset: int
    end_offset: int


class QueueRead(NamedTuple):
    """How far a span was read, and what its queue has."""

    queue_id: int
    next_offset: int
    """Everything before it was looked at; the start of the span when nothing was."""
    min_offset: int
    max_offset: int
    record_count: int
    """Records of this queue in the answer."""
    size: int
    """Their bytes."""


class BulkRead(NamedTuple):
    """Records in log order, end to end, and how far each queue is."""

    queues: list[QueueRead]
    sizes: NDArray[np.int32]
    """The size of each record."""
    parts: list[memoryview]
    """None when places are given in place of bytes."""
    first_log_offset: int
    log_offsets: NDArray[np.int64] | None = None
    """The places, when they are given."""

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


class _Looked(NamedTuple):
    """The entries of a span that were looked at."""

    start_offset: int
    log_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    wanted: NDArray[np.bool_]


def is_bulk_readable(queues: QueueTable, topic: str, spans: Sequence[QueueSpan]) -> bool:
    """Whether these queues have an entry for each message; those of batches have not."""
    return all(isinstance(queues.get(topic, span.queue_id), (ConsumeQueue, type(None))) for span in spans)


def read_bulk(
    log: Log,
    queues: QueueTable,
    topic: str,
    spans: Sequence[QueueSpan],
    *,
    bytes_max: int,
    tags_codes: frozenset[int] | None = None,
    places: bool = False,
) -> BulkRead:
    """The next records of these spans, up to this many bytes; the first one whatever its size.

    `tags_codes` says which are wanted; None means all. With `places` the answer says where records lie, if they lie
    close together. A span that begins outside of its queue is left as it is.
    """
    entries_max = ENTRIES_MAX if tags_codes is None else FILTERED_ENTRIES_MAX
    if tags_codes is None:
        entries_max = min(entries_max, _fitting(queues, topic, spans, bytes_max))
    share = max(entries_max // max(len(spans), 1), 1)
    found = [_look(queues, topic, span, share, tags_codes) for span in spans]
    looked = [each for each in found if each is not None and len(each.log_offsets)]
    end = _NOWHERE
    for span, each in zip(spans, found, strict=True):
        queue = queues.get(topic, span.queue_id)
        if each is None or queue is None or not len(each.log_offsets):
            continue
        looked_to = each.start_offset + len(each.log_offsets)
        if looked_to < min(span.end_offset, queue.next_offset):
            # the next entry of this queue, which was not looked at, lies behind this
            end = min(end, int(each.log_offsets[-1]) + 1)
    sizes, log_offsets, end = _choose(looked, end, bytes_max, log.segment_size)
    if places and _is_dense(log, log_offsets, sizes):
        reads = [_read_to(queues, topic, span, each, end) for span, each in zip(spans, found, strict=True)]
        return BulkRead(reads, sizes.astype(np.int32), [], int(log_offsets[0]), log_offsets)
    parts = _gather(log, log_offsets, sizes)
    if parts is None:
        return BulkRead([_unread(queues, topic, span) for span in spans], np.empty(0, np.int32), [], 0)
    reads = [_read_to(queues, topic, span, each, end) for span, each in zip(spans, found, strict=True)]
    return BulkRead(reads, sizes.astype(np.int32), parts, int(log_offsets[0]) if len(log_offsets) else log.end_offset)


def _fitting(queues: QueueTable, topic: str, spans: Sequence[QueueSpan], bytes_max: int) -> int:
    """About twice as many entries as have records of this many bytes, by the first ones of a span.

    Twice, because queues take turns in the log, but not to the letter.
    """
    for span in spans:
        first = _look(queues, topic, span, _SAMPLE, None)
        if first is not None and first.wanted.any():
            return 2 * bytes_max // max(int(first.sizes[first.wanted].mean()), 1) + _SAMPLE * len(spans)
    return ENTRIES_MAX


def _look(
    queues: QueueTable, topic: str, span: QueueSpan, count_max: int, tags_codes: frozenset[int] | None
) -> _Looked | None:
    queue = queues.get(topic, span.queue_id)
    if not isinstance(queue, ConsumeQueue) or not queue.min_offset <= span.start_offset < queue.next_offset:
        return None
    count = min(min(span.end_offset, queue.next_offset) - span.start_offset, count_max)
    entries = queue.entries(span.start_offset, count) if count > 0 else np.empty(0, _ENTRIES)
    sizes = entries["size"].astype(np.int64)
    wanted = sizes != BLANK_SIZE
    if tags_codes is not None:
        wanted &= matches_tags(entries["tags_code"], tags_codes)
    return _Looked(span.start_offset, entries["log_offset"].astype(np.int64), sizes, wanted)


_ENTRIES: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


def _choose(
    looked: list[_Looked], end: int, bytes_max: int, segment_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Sizes and places of the records that are given, and the log offset before which all was looked at."""
    log_offsets = np.concatenate([np.empty(0, np.int64), *(each.log_offsets[each.wanted] for each in looked)])
    sizes = np.concatenate([np.empty(0, np.int64), *(each.sizes[each.wanted] for each in looked)])
    if len(looked) > 1:
        order = np.argsort(log_offsets, kind="stable")
        log_offsets, sizes = log_offsets[order], sizes[order]
    if not len(log_offsets):
        return sizes, log_offsets, end
    first = int(log_offsets[0])
    end = min(end, first - first % segment_size + segment_size)
    count = int(np.searchsorted(log_offsets, end))
    fits = int(np.searchsorted(np.cumsum(sizes[:count]), bytes_max, side="right"))
    if fits < count:
        count = max(fits, 1)
        if count < len(log_offsets):
            end = min(end, int(log_offsets[count]))
    return sizes[:count], log_offsets[:count], end


def _is_dense(log: Log, log_offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> bool:
    """Whether there are records, in a file that is there, with little between them."""
    if not len(log_offsets):
        return False
    first = int(log_offsets[0])
    span = int(log_offsets[-1] + sizes[-1]) - first
    return int(sizes.sum()) >= DENSE * span and log.slice(first, span) is not None


def _gather(log: Log, log_offsets: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[memoryview] | None:
    """The records, in as few pieces as may be; None when one is not there any more."""
    if not len(log_offsets):
        return []
    ends = log_offsets + sizes
    first = int(log_offsets[0])
    whole = log.slice(first, int(ends[-1]) - first)
    if whole is None:
        return None
    breaks = np.flatnonzero(log_offsets[1:] != ends[:-1])
    run_starts = np.concatenate(([0], breaks + 1))
    starts: list[int] = (log_offsets[run_starts] - first).tolist()
    stops: list[int] = (ends[np.append(breaks, len(ends) - 1)] - first).tolist()
    if len(starts) <= SLICES_MAX:
        return [whole[start:stop] for start, stop in zip(starts, stops, strict=True)]
    size = int(sizes[0])
    if (sizes == size).all():
        # one copy in C; a slice for each would cost as much as the bytes themselves
        cells: NDArray[Any] = windows(np.frombuffer(whole, np.uint8), f"V{size}")[log_offsets - first]
        return [memoryview(cells.view(np.uint8))]  # type: ignore[arg-type]
    return [memoryview(b"".join([whole[start:stop] for start, stop in zip(starts, stops, strict=True)]))]


def _read_to(queues: QueueTable, topic: str, span: QueueSpan, each: _Looked | None, end: int) -> QueueRead:
    if each is None:
        return _unread(queues, topic, span)
    looked_at = int(np.searchsorted(each.log_offsets, end))
    wanted = each.wanted[:looked_at]
    return QueueRead(
        span.queue_id,
        each.start_offset + looked_at,
        queues.min_offset(topic, span.queue_id),
        queues.next_offset(topic, span.queue_id),
        int(np.count_nonzero(wanted)),
        int(each.sizes[:looked_at][wanted].sum()),
    )


def _unread(queues: QueueTable, topic: str, span: QueueSpan) -> QueueRead:
    queue_id = span.queue_id
    min_offset, max_offset = queues.min_offset(topic, queue_id), queues.next_offset(topic, queue_id)
    return QueueRead(queue_id, span.start_offset, min_offset, max_offset, 0, 0)
