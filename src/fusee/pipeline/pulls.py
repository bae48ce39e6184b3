"""Ranges of queues by ordinary pulls: what every RocketMQ broker serves.

Several pulls are in flight, so that the broker finds the next messages while the last ones are decoded. Of a queue
without a filter the offset of the next pull can be guessed: a pull brings as many messages as the one before it. A
guess that was too far leaves a gap, and what was asked for behind it is asked for again. With a filter nobody can know,
and each queue has one pull in flight, but several queues are read at a time.

Only a master knows what is lost: a slave that lacks something may be behind. What cannot be had is told by exceptions,
and the ranges remember how far they were read, so that the caller goes on with another connection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fusee.message.flags import PullSysFlag
from fusee.pipeline.batches import cut_records
from fusee.pipeline.progress import OffsetsGoneError
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.pull import PullMessage, PullMessageResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fusee.message.record_layout import Buffer
    from fusee.pipeline.blocking_link import Answer, BlockingLink
    from fusee.pipeline.progress import RangeProgress

IN_FLIGHT: Final = 8
_BROKER_SUSPEND_MS: Final = 0
_REMOVING: Final = "MESSAGE_WAS_REMOVING"


@dataclass(frozen=True, slots=True)
class PullTerms:
    """What every pull of a task says."""

    group: str
    expression: str
    expression_type: str
    count: int

    @property
    def is_by_tag(self) -> bool:
        return self.expression_type == "TAG"

    @property
    def is_filtered(self) -> bool:
        return self.expression_type != "TAG" or self.expression != "*"


class _Lane:
    """One range that is being read."""

    def __init__(self, progress: RangeProgress, terms: PullTerms, depth: int) -> None:
        self.progress = progress
        self._terms = terms
        self._depth = depth
        self._step = terms.count
        self._asked_to = progress.position
        self._in_flight: deque[tuple[int, int]] = deque()

    @property
    def is_done(self) -> bool:
        """Whether all is read and no answer is outstanding."""
        return self.progress.is_done and not self._in_flight

    def ask(self, link: BlockingLink) -> None:
        """Keep as many pulls in flight as there may be."""
        end = self.progress.range.end_offset
        while len(self._in_flight) < self._depth and self._asked_to < end and not self.progress.is_done:
            count = min(self._terms.count, end - self._asked_to)
            self._in_flight.append((link.send(self._pull(self._asked_to, count)), self._asked_to))
            self._asked_to += min(self._step, count)

    def take(self, link: BlockingLink) -> Buffer:
        """The records of the next answer, cut to what the range still lacks."""
        opaque, asked_offset = self._in_flight.popleft()
        answer = link.receive(opaque)
        progress = self.progress
        position = progress.position
        if progress.is_done or asked_offset > position:
            return b""  # asked for on a wrong guess
        command, body = answer
        if command.code != ResponseCode.SUCCESS:
            self._asked_to = progress.position = self._after_nothing(link, answer, position)
            return b""
        next_offset = command.read(PullMessageResponse).next_offset
        end = progress.range.end_offset
        records: Buffer = body
        if asked_offset < position or next_offset > end:
            records = cut_records(body, position, end)
        if next_offset <= position:
            return b""  # an answer from before a guess that fell short
        progress.position = next_offset
        self._step = max(min(next_offset - asked_offset, self._terms.count), 1)
        following = self._in_flight[0][1] if self._in_flight else self._asked_to
        if following > next_offset or not self._in_flight:
            self._asked_to = next_offset
        return records

    def _after_nothing(self, link: BlockingLink, answer: Answer, position: int) -> int:
        """Where to go on from an answer without messages."""
        command = answer.command
        code = command.code
        if code not in _NOTHING_THERE:
            error = error_for(code, command.remark, link.address, RequestCode.PULL_MESSAGE)
            error.topic = self.progress.range.topic
            raise error
        header = command.read(PullMessageResponse)
        remark = command.remark or ""
        if code == ResponseCode.PULL_RETRY_IMMEDIATELY and header.next_offset > position and remark != _REMOVING:
            return header.next_offset  # the filter wants none of them
        raise OffsetsGoneError(
            self.progress,
            header.min_offset,
            header.max_offset,
            skip_to=max(header.next_offset, header.min_offset),
            remark=remark,
        )

    def _pull(self, queue_offset: int, count: int) -> Command:
        asked = self.progress.range
        terms = self._terms
        return Command.request(
            RequestCode.PULL_MESSAGE,
            PullMessage(
                consumer_group=terms.group,
                topic=asked.topic,
                queue_id=asked.queue_id,
                queue_offset=queue_offset,
                max_messages=count,
                sys_flag=PullSysFlag.SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_ms=_BROKER_SUSPEND_MS,
                subscription=terms.expression,
                sub_version=0,
                expression_type=terms.expression_type,
            ),
        )


_NOTHING_THERE: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def pull_ranges(link: BlockingLink, ranges: Sequence[RangeProgress], terms: PullTerms) -> Iterator[Buffer]:
    """The records of these ranges, those of each in order, until all are read.

    Raises TransportError or RemoteError when the broker cannot give them, OffsetsGoneError when nobody can; the ranges
    say how far they are.
    """
    waiting = deque(each for each in ranges if not each.is_done)
    lanes: deque[_Lane] = deque()
    width = IN_FLIGHT if terms.is_filtered else 2
    while waiting or lanes:
        while waiting and len(lanes) < width:
            depth = 1 if terms.is_filtered else max(IN_FLIGHT // min(width, len(lanes) + len(waiting)), 1)
            lanes.append(_Lane(waiting.popleft(), terms, depth))
        for lane in lanes:
            lane.ask(link)
        lane = lanes.popleft()
        records = lane.take(link)
        if not lane.is_done:
            lanes.append(lane)
        if len(records):
            yield records
