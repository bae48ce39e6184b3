"""How far each slave of a master has the log, who is in sync, and how fast the bytes go: numbers without I/O.

A slave is known by the address of its connection from its first report to the end of the connection. What it has
reported is what it has. It is in sync while it is less than `gap_max` bytes behind the end of the master's log
(haMaxGapNotInSync).

`confirmed(required)` is what a promise rests on: the log offset that so many brokers have, the master among them. A
broker counts once: one that comes again while its old connection has not ended yet replaces it, when it has said who
it is (`identify`; slaves of the reference do not).

Flow (Java: FlowMonitor): bytes are counted in seconds that `sample` ends. With `bytes_per_second_max` a slave gets no
more than that in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class SlaveProgress:
    """One slave as its master sees it."""

    __slots__ = ("acknowledged_offset", "address", "broker_id", "bytes_per_second", "bytes_sent", "next_offset")

    def __init__(self, address: str, log_offset: int) -> None:
        self.address = address
        self.broker_id: int | None = None
        """Its number in the group, when it has said so."""
        self.acknowledged_offset = log_offset
        """It has the log up to here."""
        self.next_offset = log_offset
        """It was sent the log up to here."""
        self.bytes_per_second = 0
        """Bytes of the log that it was sent in the last whole second."""
        self.bytes_sent = 0
        """The same in this second."""

    def __repr__(self) -> str:
        return f"<SlaveProgress {self.address} {self.acknowledged_offset}>"


class ReplicaProgress:
    """The slaves of one master."""

    def __init__(self, *, gap_max: int, bytes_per_second_max: int | None = None) -> None:
        """`bytes_per_second_max` is for each slave."""
        self.gap_max = gap_max
        self.bytes_per_second_max = bytes_per_second_max
        self._slaves: dict[str, SlaveProgress] = {}
        self._ids: dict[str, int] = {}

    @property
    def slaves(self) -> Mapping[str, SlaveProgress]:
        """Those that have reported, by address."""
        return self._slaves

    # Events

    def identify(self, address: str, broker_id: int) -> str | None:
        """A connection says which broker it is of; the address of an older one of the same broker, to be ended."""
        older = next((known for known, number in self._ids.items() if number == broker_id and known != address), None)
        if older is not None:
            self.leave(older)
        self._ids[address] = broker_id
        if address in self._slaves:
            self._slaves[address].broker_id = broker_id
        return older

    def report(self, address: str, log_offset: int) -> SlaveProgress:
        """A slave says that it has the log up to here."""
        slave = self._slaves.get(address)
        if slave is None:
            slave = self._slaves[address] = SlaveProgress(address, log_offset)
            slave.broker_id = self._ids.get(address)
        slave.acknowledged_offset = log_offset
        return slave

    def sent(self, slave: SlaveProgress, next_offset: int) -> None:
        """A slave was sent the log up to here."""
        slave.bytes_sent += next_offset - slave.next_offset
        slave.next_offset = next_offset

    def leave(self, address: str) -> None:
        """A connection has ended."""
        self._slaves.pop(address, None)
        self._ids.pop(address, None)

    def sample(self) -> None:
        """A second is over."""
        for slave in self._slaves.values():
            slave.bytes_per_second, slave.bytes_sent = slave.bytes_sent, 0

    # Questions

    def allowance(self, slave: SlaveProgress) -> int | None:
        """Bytes of the log that a slave may still get in this second; None when there is no limit."""
        if self.bytes_per_second_max is None:
            return None
        return max(self.bytes_per_second_max - slave.bytes_sent, 0)

    def in_sync(self, end_offset: int) -> list[SlaveProgress]:
        """The slaves that are in sync with a log that ends here."""
        least = end_offset - self.gap_max
        return [slave for slave in self._slaves.values() if slave.acknowledged_offset > least]

    def confirmed(self, required: int) -> int:
        """The log offset that so many brokers have, the master among them; 0 while there are fewer.

        With no slave required, what the master has itself is enough, and no number says more: `1 << 63`.
        """
        if required <= 1:
            return 1 << 63
        reported = sorted((slave.acknowledged_offset for slave in self._slaves.values()), reverse=True)
        return reported[required - 2] if len(reported) >= required - 1 else 0
