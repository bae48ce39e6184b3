"""The one judge of when a producer may be answered: written, flushed, timed out, or void (Java: GroupCommitService).

Every record that is put waits here until what its answer promises is true:

    written      in the file: survives the process          ASYNC_FLUSH, or a message that does not WAIT
    flushed      on the disk: survives the machine          SYNC_FLUSH and WAIT

States of one promise: unwritten -> (answered | unflushed -> answered). Those put in one turn of the loop are settled
together, and answers for one connection leave in one write. A write that fails makes every promise behind the written
offset void: its sender is told that nothing was stored, and its place goes to the next record. A disk that takes too
long answers FLUSH_DISK_TIMEOUT: stored, but not known to be on disk.

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
        self, *, waits_for_flush: bool, timeout: float, lane: Lane, amend: Callable[[bytes, PutStatus], bytes]
    ) -> None:
        """`amend` turns the answer of a success into that of another outcome; `lane` counts who waits."""
        self._waits_for_flush = waits_for_flush
        self._amend = amend
        self._timeout = timeout
        self._lane = lane
        # (end offset, whether it waits for the disk, link and answer, or None and a function to call)
        self._unwritten: list[tuple[int, bool, Link | None, Any]] = []
        self._unflushed: deque[tuple[int, float, Link | None, Any]] = deque()

    @property
    def waiting(self) -> int:
        """Promises that are not kept yet."""
        return len(self._unwritten) + len(self._unflushed)

    @property
    def waits_for_disk(self) -> bool:
        """Whether somebody waits for a flush."""
        return bool(self._unflushed)

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
        if not unwritten:
            return
        self._unwritten = []
        waits_for_flush = self._waits_for_flush
        if not waits_for_flush and unwritten[-1][0] <= written_offset:
            self._settle([(link, answer) for _, _, link, answer in unwritten], PutStatus.PUT_OK)
            return
        deadline = now + self._timeout
        safe: list[tuple[Link | None, Any]] = []
        void: list[tuple[Link | None, Any]] = []
        for end_offset, wait, link, answer in unwritten:
            if end_offset > written_offset:
                void.append((link, answer))
            elif wait and waits_for_flush:
                self._unflushed.append((end_offset, deadline, link, answer))
            else:
                safe.append((link, answer))
        self._settle(safe, PutStatus.PUT_OK)
        self._settle(void, PutStatus.NOT_STORED)

    def flushed(self, flushed_offset: int) -> None:
        """Everything up to here is on the disk."""
        unflushed = self._unflushed
        safe: list[tuple[Link | None, Any]] = []
        while unflushed and unflushed[0][0] <= flushed_offset:
            safe.append(unflushed.popleft()[2:])
        self._settle(safe, PutStatus.PUT_OK)

    def expire(self, now: float) -> None:
        """Give up on the disk for those that have waited long enough."""
        unflushed = self._unflushed
        late: list[tuple[Link | None, Any]] = []
        while unflushed and unflushed[0][1] <= now:
            late.append(unflushed.popleft()[2:])
        self._settle(late, PutStatus.FLUSH_DISK_TIMEOUT)

    def fail_all(self) -> None:
        """Tell everybody who waits that the disk did not answer: the store has failed or stops."""
        late = [(link, answer) for _, _, link, answer in self._unflushed]
        void = [(link, answer) for _, _, link, answer in self._unwritten]
        self._unflushed.clear()
        self._unwritten = []
        self._settle(late, PutStatus.FLUSH_DISK_TIMEOUT)
        self._settle(void, PutStatus.NOT_STORED)

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
