"""Ports of this machine: which are free, and which are taken.

Ports that nobody chose are taken from below the range that the system gives to outgoing connections: a node that is
down for a while finds its port free when it comes back.

Between the choice of a port and the moment when a process listens on it, nothing holds it. Two clusters that start at
the same time would choose the same one now and then, so a chosen port is marked by an abstract socket of its number
until its owner lets go: all of these are in one place per network, as ports are, and end with their process.
"""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING, Final, Self

from fusee.cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

CHOSEN_FROM: Final = range(18_000, 32_000)
_TRIES_MAX: Final = 2_000


class FreePorts:
    """Ports that nobody listens on, and that no other cluster will choose while this is open."""

    def __init__(self, host: str, *, chooser: random.Random | None = None) -> None:
        self._host = host
        self._random = chooser or random.Random()
        self._marks: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._marks:
            self._marks.pop().close()

    def choose(self, count: int) -> list[int]:
        """So many more ports. Raises ClusterError."""
        found: list[int] = []
        for _ in range(_TRIES_MAX):
            if len(found) == count:
                return found
            port = self._random.choice(CHOSEN_FROM)
            mark = _mark(port)
            if mark is None:
                continue
            if taken_ports(self._host, [port]):
                mark.close()
                continue
            self._marks.append(mark)
            found.append(port)
        raise ClusterError(
            f"{count} free ports between {CHOSEN_FROM.start} and {CHOSEN_FROM.stop} were not found on {self._host}; is "
            "that an address of this machine?"
        )


def _mark(port: int) -> socket.socket | None:
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0fusee-cluster-port-{port}")
    except OSError:
        mark.close()
        return None
    return mark


def taken_ports(host: str, ports: Iterable[int]) -> list[int]:
    """Those of these ports that cannot be listened on."""
    taken: list[int] = []
    for port in ports:
        listening = _listen(host, port)
        if listening is None:
            taken.append(port)
        else:
            listening.close()
    return taken


def _listen(host: str, port: int) -> socket.socket | None:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # As the servers do: what is left of closed connections is no obstacle, somebody who listens is.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1)
    except OSError:
        listening.close()
        return None
    return listening
