"""The one judge of when a producer may be answered and a reader may see (Java: GroupCommit- and GroupTransferService).

Every record that is put waits here until what its answer promises is true:

    written      in the file: survives the process              always
    flushed      on the disk: survives the machine              SYNC_FLUSH and WAIT
    replicated   on enough slaves: survives this disk           SYNC_MASTER and WAIT

States of one promise: unwritten -> (answered | waiting -> answered). Those put in one turn of the loop are settled
together, and answers for one connection leave in one write. A write that fails makes every promise behind the written
offset void: its sender is told that nothing was stored, and its place goes to the next record.

What waits is stored, and the answer says how safe it has become. A disk that takes too long: FLUSH_DISK_TIMEOUT, not
known to be on disk. Too few slaves in sync (`slaves_changed`): SLAVE_NOT_AVAILABLE, at once. Slaves that take too
long: FLUSH_SLAVE_TIMEOUT, not known to be on enough of them. (The reference waits for slaves that have gone until time
is up.)

`confirmed_offset` is the limit of readers. What a SYNC_MASTER alone has goes with its disk, and a consumer that had
seen it would stand behind the end of its queue on the slave. So nothing is read before enough slaves have it; but they
hold readers back no longer than senders: when they are not there or time is up, what is written is read.

What is unanswered is bounded by the lane of the sends; the router refuses more with SYSTEM_BUSY.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.transport.link import Link
    from fusee.transport.router import Lane

UNAVAILABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full, messages "
    "are put to the slave, message store has been shut down, etc."
)


_NO_LIMIT: Final = 1 << 63


class PutStatus(Enum):
    """What became of a record (Java: PutMessageStatus). All but NOT_STORED mean that it is stored."""

    PUT_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    NOT_STORED = ResponseCode.SERVICE_NOT_AVAILABLE

    @property
    def code(self) -> ResponseCode:
        return self.value

    @property
    def is_stored(self) -> bool:
        return self is not PutStatus.NOT_STORED


class AckGate:
    """Promises, in the order of the log."""

    def __init__(
        self,
        *,
        waits_for_flush: bool,
        timeout: float,
        lane: Lane,
        amend: Callable[[bytes, PutStatus], bytes],
        waits_for_slaves: bool = False,
        slave_timeout: float = 3.0,
    ) -> None:
        """`amend` turns the answer of a success into that of another outcome; `lane` counts who waits."""
        self._waits_for_flush = waits_for_flush
        self._waits_for_slaves = waits_for_slaves
        self._amend = amend
        self._timeout = timeout
        self.slave_timeout = slave_timeout
        """Seconds that slaves may take; may be replaced at any time."""
        self._lane = lane
        self._is_strict = waits_for_flush or waits_for_slaves
        self.limits_readers = waits_for_slaves
        """Whether `confirmed_offset` counts; else everything that is written may be read."""
        # (end offset, whether it waits for more than the write, link and answer, or None and a function to call)
        self._unwritten: list[tuple[int, bool, Link | None, Any]] = []
        # (end offset, when it was written, link and answer)
        self._waiting: deque[tuple[int, float, Link | None, Any]] = deque()
        self._written_offset = 0
        self._flushed_offset = _NO_LIMIT if not waits_for_flush else 0
        self._replicated_offset = 0
        self._has_slaves = False
        # How far slaves are no longer waited for, and (when, written offset) of the moments that are yet to pass.
        self._given_up_offset = 0
        self._moments: deque[tuple[float, int]] = deque()
        self.confirmed_offset = 0
        """How far readers may see. Never falls."""

    def start_at(self, log_offset: int) -> None:
        """Everything before this is as safe as it will ever be."""
        self._written_offset = self._given_up_offset = self.confirmed_offset = log_offset
        if self._waits_for_flush:
            self._flushed_offset = log_offset

    @property
    def waiting(self) -> int:
        """Promises that are not kept yet."""
        return len(self._unwritten) + len(self._waiting)

    @property
    def waits_for_disk(self) -> bool:
        """Whether somebody waits for a flush."""
        return bool(self._waiting) and self._waiting[-1][0] > self._flushed_offset

    def add_answer(self, end_offset: int, wait: bool, link: Link, frame: bytes) -> None:
        """Send this answer when what ends at this log offset is safe."""
        self._lane.in_flight += 1
        self._unwritten.append((end_offset, wait, link, frame))

    def add(self, end_offset: int, wait: bool, done: Callable[[PutStatus], object]) -> None:
        """Call back when what ends at this log offset is safe, or void."""
        self._unwritten.append((end_offset, wait, None, done))

    def written(self, written_offset: int, now: float) -> None:
        """Everything up to here is in the file; what was put behind it is void."""
        unwritten = self._unwritten
        self._written_offset = written_offset
        is_strict = self._is_strict
        if unwritten:
            self._unwritten = []
            if not is_strict and unwritten[-1][0] <= written_offset:
                self._settle([(link, answer) for _, _, link, answer in unwritten], PutStatus.PUT_OK)
                return
            safe: list[tuple[Link | None, Any]] = []
            void: list[tuple[Link | None, Any]] = []
            for end_offset, wait, link, answer in unwritten:
                if end_offset > written_offset:
                    void.append((link, answer))
                elif wait and is_strict:
                    self._waiting.append((end_offset, now, link, answer))
                else:
                    safe.append((link, answer))
            self._settle(safe, PutStatus.PUT_OK)
            self._settle(void, PutStatus.NOT_STORED)
        if is_strict:
            self._advance(now)

    def flushed(self, flushed_offset: int) -> None:
        """Everything up to here is on the disk."""
        if self._waits_for_flush:
            self._flushed_offset = flushed_offset
            self._advance()

    def replicated(self, log_offset: int) -> None:
        """Everything up to here is on as many slaves as are required."""
        if log_offset > self._replicated_offset:
            self._replicated_offset = log_offset
            self._advance()

    def slaves_changed(self, has_slaves: bool) -> None:
        """Whether as many slaves as are required are in sync, so that it makes sense to wait for them."""
        if has_slaves != self._has_slaves:
            self._has_slaves = has_slaves
            self._advance()

    def expire(self, now: float) -> None:
        """Give up on disk and slaves for those that have waited long enough."""
        if not self._is_strict:
            return
        if self._waits_for_slaves:
            moments = self._moments
            moments.append((now, self._written_offset))
            while moments and moments[0][0] + self.slave_timeout <= now:
                self._given_up_offset = max(self._given_up_offset, moments.popleft()[1])
        self._advance(now)

    def fail_all(self) -> None:
        """Tell everybody who waits that the disk did not answer: the store has failed or stops."""
        late = [(link, answer) for _, _, link, answer in self._waiting]
        void = [(link, answer) for _, _, link, answer in self._unwritten]
        self._waiting.clear()
        self._unwritten = []
        self._settle(late, PutStatus.FLUSH_DISK_TIMEOUT)
        self._settle(void, PutStatus.NOT_STORED)

    def _advance(self, now: float = float("-inf")) -> None:
        """Answer everybody at the head of the line whose fate is known, and let readers go on."""
        waiting = self._waiting
        flushed_offset = self._flushed_offset
        # Without slaves to wait for, having none is no failure.
        replicated_offset = self._replicated_offset if self._waits_for_slaves else _NO_LIMIT
        settled: dict[PutStatus, list[tuple[Link | None, Any]]] = {}
        while waiting:
            end_offset, since, link, answer = waiting[0]
            if end_offset > flushed_offset:
                if since + self._timeout > now:
                    break
                status = PutStatus.FLUSH_DISK_TIMEOUT
            elif end_offset <= replicated_offset:
                status = PutStatus.PUT_OK
            elif not self._has_slaves:
                status = PutStatus.SLAVE_NOT_AVAILABLE
            elif since + self.slave_timeout > now:
                break
            else:
                status = PutStatus.FLUSH_SLAVE_TIMEOUT
            waiting.popleft()
            settled.setdefault(status, []).append((link, answer))
        confirmed_offset = self._written_offset
        if self._waits_for_slaves and self._has_slaves:
            confirmed_offset = min(confirmed_offset, max(replicated_offset, self._given_up_offset))
        self.confirmed_offset = max(self.confirmed_offset, confirmed_offset)
        for status, promises in settled.items():
            self._settle(promises, status)

    def _settle(self, promises: list[tuple[Link | None, Any]], status: PutStatus) -> None:
        """Answer these; what goes to one connection leaves in one write."""
        frames: dict[Link, list[bytes]] = {}
        answers = 0
        for link, answer in promises:
            if link is None:
                answer(status)
                continue
            answers += 1
            frame = answer if status is PutStatus.PUT_OK else self._amend(answer, status)
            batch = frames.get(link)
            if batch is None:
                frames[link] = [frame]
            else:
                batch.append(frame)
        self._lane.in_flight -= answers
        for link, batch in frames.items():
            link.send_frames(batch)
