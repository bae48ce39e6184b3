"""A broker's place in its group: master, slave beside its master, or slave whose master is away.

    master                  serves everything
    slave, master there     serves reads where slaveReadEnable allows it, and sends readers on to the master as soon as
                            what they read is in its memory
    slave, master away      serves reads, whatever slaveReadEnable says, and holds pulls as a master does
    acting for its master   the same, and delivers delayed messages (see `acting`)

The master is there while the log stream from it is: what a name server says is older. (Java's slave refuses pulls
without slaveReadEnable also when its master is away. With it, and without slave acting master, it believes that its
master is there for ever, and answers each pull that finds nothing at once, so that consumers ask in a whirl.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.config import BrokerConfig


class Standing:
    """Whether this broker is a slave, and where its master is."""

    def __init__(self, *, config: BrokerConfig, is_connected: Callable[[], bool] = lambda: False) -> None:
        """`is_connected` says whether the log stream from the master is open; `config` may be replaced."""
        self.config = config
        self._is_connected = is_connected
        self.is_slave = not config.is_master

    @property
    def has_master(self) -> bool:
        """Whether this is a slave whose master is there."""
        return self.is_slave and self._is_connected()

    @property
    def refuses_reads(self) -> bool:
        """Whether consumers must ask the master."""
        return self.is_slave and not self.config.slave_read_enable and self._is_connected()
