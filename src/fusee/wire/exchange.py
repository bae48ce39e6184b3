"""Requests in flight on one connection: opaque ids given out, answers matched, deadlines as data.

No I/O and no timers: the owner asks `next_deadline` and calls `expire` when that time has come (Java: the response
table and its scan). An entry ends exactly once: answered, timed out, given up by its caller, or failed with the
connection. Each end calls the entry's sink with the response or the error, except giving up, which calls nothing.

`next_deadline` may be earlier than any live entry, because answered ones do not move it; a scan that finds
nothing due moves it on. With the usual equal time-outs that is one scan of the live entries per time-out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.errors import RequestTimeoutError, TooManyRequestsError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.wire.command import Command

    Sink = Callable[[Command | TransportError], object]

_OPAQUE_MASK: Final = 0x7FFFFFFF


class Exchange:
    """The in-flight table of one side of a connection."""

    __slots__ = ("_entries", "_in_flight_max", "_opaque", "next_deadline")

    def __init__(self, in_flight_max: int = 65_535, first_opaque: int = 0) -> None:
        self._entries: dict[int, tuple[float, int, float, Sink]] = {}
        self._in_flight_max = in_flight_max
        self._opaque = first_opaque & _OPAQUE_MASK
        self.next_deadline: float | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= self._in_flight_max

    def next_opaque(self) -> int:
        """An id that no request in flight has."""
        opaque = self._opaque
        while opaque in self._entries:
            opaque = (opaque + 1) & _OPAQUE_MASK
        self._opaque = (opaque + 1) & _OPAQUE_MASK
        return opaque

    def begin(self, code: int, now: float, timeout: float, sink: Sink) -> int:
        """Enter a request; its opaque. Raises TooManyRequestsError at the limit."""
        if len(self._entries) >= self._in_flight_max:
            raise TooManyRequestsError(
                f"{len(self._entries)} requests are in flight on this connection, the limit; "
                "await some of them, or raise in_flight_max"
            )
        opaque = self.next_opaque()
        deadline = now + timeout
        self._entries[opaque] = (deadline, code, timeout, sink)
        if self.next_deadline is None or deadline < self.next_deadline:
            self.next_deadline = deadline
        return opaque

    def resolve(self, response: Command) -> bool:
        """Hand the response to who waits for it; False when nobody does (late, given up, or never asked)."""
        entry = self._entries.pop(response.opaque, None)
        if entry is None:
            return False
        entry[3](response)
        return True

    def give_up(self, opaque: int) -> None:
        """The caller no longer waits; a late answer will be dropped."""
        self._entries.pop(opaque, None)

    def expire(self, now: float, address: str = "") -> int:
        """End every request whose deadline has passed with RequestTimeoutError; how many."""
        due = [opaque for opaque, entry in self._entries.items() if entry[0] <= now]
        for opaque in due:
            _, code, timeout, sink = self._entries.pop(opaque)
            sink(
                RequestTimeoutError(
                    f"no answer from {address or 'the peer'} to request code {code} within {timeout:g} s",
                    address=address,
                )
            )
        self.next_deadline = min((entry[0] for entry in self._entries.values()), default=None)
        return len(due)

    def fail_all(self, error: TransportError) -> int:
        """End every request with this error; how many."""
        entries, self._entries = self._entries, {}
        self.next_deadline = None
        for _, _, _, sink in entries.values():
            sink(error)
        return len(entries)
