"""Ranges of queues by bulk reads, which a Fusee broker serves: all queues of a topic at once, in log order.

One request names every range of a topic that is not read to its end, and its answer says for each how far it came. The
next request leaves before the answer is decoded, so that the broker reads while this side decodes. A broker that does
not know the request, has it switched off, or cannot serve it for a topic (queues of batches) says so once: such ranges
are pulled instead.

Where the broker is on this machine, its answers say where records lie, and their bytes are read from its files
(`local_logs`); a reader that cannot do so asks for the same once more, and then for bytes only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fusee.errors import FuseeError, ProtocolError
from fusee.pipeline.local_logs import NotLocalError
from fusee.pipeline.progress import OffsetsGoneError
from fusee.pipeline.spare_memory import SpareMemory
from fusee.wire.bodies.bulk_read import RANGES_MAX, decode_answer, encode_ranges
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.bulk_read import BulkReadRequest, BulkReadResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from fusee.pipeline.blocking_link import Answer, BlockingLink
    from fusee.pipeline.local_logs import LocalLogs
    from fusee.pipeline.progress import RangeProgress
    from fusee.pipeline.pulls import PullTerms
    from fusee.store.record_scan import RecordParts

logger = logging.getLogger(__name__)

ANSWER_SIZE: Final = 4 << 20


class Records(NamedTuple):
    """Records, and where each begins. The memory is used again for the next ones."""

    data: memoryview
    positions: NDArray[np.int64]
    parts: RecordParts | None = None
    """Those of the records, when they are known already."""


class BulkReadRefusedError(Exception):
    """The broker does not serve bulk reads, or not of this topic. Not for users: the ranges are pulled instead."""


def read_in_bulk(
    link: BlockingLink,
    topic: str,
    ranges: Sequence[RangeProgress],
    terms: PullTerms,
    *,
    answer_size: int = ANSWER_SIZE,
    local: LocalLogs | None = None,
    local_refused: Callable[[str], object] = lambda address: None,
) -> Iterator[Records]:
    """The records of these ranges of one topic, those of each in order, until all are read.

    With `local` the broker is asked where records lie; when they cannot be read there, `local_refused` hears the
    broker's address, and bytes are asked for. Raises BulkReadRefusedError; and what `pull_ranges` raises. The ranges
    say how far they are.
    """
    reading = _BulkReading(link, topic, ranges, terms, answer_size, local)
    opaque = reading.ask()
    while opaque is not None:
        try:
            records = reading.take(link.receive(opaque, reuse=True))
        except NotLocalError as error:
            logger.info("%s is read over the network: %s", link.address, error)
            reading.local = None
            local_refused(link.address)
            opaque = reading.ask()
            continue
        trouble: Exception | None = None
        try:
            opaque = reading.ask()
        except (FuseeError, OffsetsGoneError) as error:
            # what has arrived counts as read, and must be handed on first
            trouble = error
        if len(records.positions):
            yield records
        if trouble is not None:
            raise trouble


class _BulkReading:
    """The conversation about the ranges of one topic."""

    def __init__(
        self,
        link: BlockingLink,
        topic: str,
        ranges: Sequence[RangeProgress],
        terms: PullTerms,
        answer_size: int,
        local: LocalLogs | None,
    ) -> None:
        self._link = link
        self.local = local
        self._spare = SpareMemory()
        self._topic = topic
        self._ranges = ranges
        self._terms = terms
        self._answer_size = answer_size
        self._asked: list[RangeProgress] = []
        self._gone: OffsetsGoneError | None = None

    def ask(self) -> int | None:
        """Ask for what is next; None when all is read."""
        if self._gone is not None:
            raise self._gone
        chosen: dict[int, RangeProgress] = {}
        for each in self._ranges:
            if not each.is_done and len(chosen) < RANGES_MAX:
                chosen.setdefault(each.range.queue_id, each)
        self._asked = list(chosen.values())
        if not self._asked:
            return None
        ranges = [(each.range.queue_id, each.position, each.range.end_offset) for each in self._asked]
        header = BulkReadRequest(
            consumer_group=self._terms.group,
            topic=self._topic,
            max_bytes=self._answer_size,
            subscription=self._terms.expression,
            local=self.local is not None,
        )
        return self._link.send(Command.request(RequestCode.BULK_READ, header, body=encode_ranges(ranges)))

    def take(self, answer: Answer) -> Records:
        """The records of an answer; the ranges are as far as it says. Raises NotLocalError, and then they are not."""
        command, body = answer
        if command.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise BulkReadRefusedError(command.remark)
        if command.code != ResponseCode.SUCCESS:
            error = error_for(command.code, command.remark, self._link.address, RequestCode.BULK_READ)
            error.topic = self._topic
            raise error
        header = command.read(BulkReadResponse)
        reads, raw_sizes, records = decode_answer(body, header.range_count, header.record_count)
        sizes = np.frombuffer(raw_sizes, ">i4").astype(np.int64)
        if [read.queue_id for read in reads] != [each.range.queue_id for each in self._asked]:
            raise BulkReadRefusedError(f"{self._link.address} answered for other queues than it was asked for")
        found: Records | None = None
        if header.log_file is not None and len(sizes):
            if self.local is None:
                raise ProtocolError(f"{self._link.address} says where records lie, and was not asked")
            places = np.frombuffer(records, ">i8").astype(np.int64)
            found = Records(*self.local.records(header, sizes, places, self._spare))
        is_further = False
        for each, read in zip(self._asked, reads, strict=True):
            if read.next_offset > each.position:
                each.position = read.next_offset
                is_further = True
            elif not read.min_offset <= each.position < read.max_offset:
                self._gone = OffsetsGoneError(
                    each, read.min_offset, read.max_offset, skip_to=read.min_offset, remark="bulk read"
                )
        if not is_further and self._gone is None:
            raise BulkReadRefusedError(f"{self._link.address} did not get any further")
        if found is not None:
            return found
        positions = np.zeros(len(sizes), np.int64)
        np.cumsum(sizes[:-1], out=positions[1:])
        return Records(records, positions)
