"""Which client of an orderly group owns which queue, for a minute at a time (Java: RebalanceLockManager).

    free     nobody has asked, or the owner has released it: whoever asks owns it
    held     by one client; it renews by asking again; others get nothing
    expired  not renewed for more than 60 s: as free, and forgotten by `expire`

A lock belongs to a client id, not to a connection: it outlives reconnection, and is not released by loss of it.
Time is monotonic, so that a clock set forward does not take queues from their owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.clock import Clock
    from fusee.wire.bodies.queue_ref import QueueRef

LOCK_LIFE_MS: Final = 60_000
LOCKS_MAX: Final = 1_000_000


class QueueLocks:
    """The locks of all groups; at most `locks_max`, beyond which free queues are not given out."""

    def __init__(self, clock: Clock, *, locks_max: int = LOCKS_MAX) -> None:
        self._clock = clock
        self._locks_max = locks_max
        # By group and queue: the owner, and when it was last renewed.
        self._groups: dict[str, dict[QueueRef, tuple[str, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[QueueRef]) -> list[QueueRef]:
        """Take or renew these queues for the client; those it owns now, in the order asked, each once."""
        now_ms = self._now_ms()
        locks = self._groups.get(group, {})
        owned: dict[QueueRef, None] = {}
        for queue in queues:
            held = locks.get(queue)
            if held is None:
                if self._count >= self._locks_max:
                    continue
                self._count += 1
            elif held[0] != client_id and now_ms - held[1] <= LOCK_LIFE_MS:
                continue
            locks[queue] = (client_id, now_ms)
            owned[queue] = None
        if locks:
            self._groups[group] = locks
        return list(owned)

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueRef]) -> None:
        """Release those of the queues that the client owns."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held[0] == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._groups[group]

    def holds_live_locks(self, group: str) -> bool:
        """Whether some client owns a queue for this group now: it consumes in order."""
        locks = self._groups.get(group)
        if locks is None:
            return False
        oldest_ms = self._now_ms() - LOCK_LIFE_MS
        return any(renewed_ms >= oldest_ms for _, renewed_ms in locks.values())

    def expire(self) -> None:
        """Forget the locks that have expired."""
        oldest_ms = self._now_ms() - LOCK_LIFE_MS
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, held in locks.items() if held[1] < oldest_ms]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)
