"""Memory that a connection from this machine shares with the broker, so that what it sends need not travel.

A sender that has megabytes to send asks for a handover, writes messages into it, and sends only where they lie. The
memory has no name in any folder: it is a file of this process (`/proc/<pid>/fd/<n>`), which nobody but its own user
can open, that is, nobody who could not change the store itself. It is sealed, so that its size stays what it is, and
begins with a random mark: who finds the mark at that path has the right file. It goes with its connection.

The sender could write to it at any time, so whatever is taken from it is copied before anything is made of it, and
nothing that was looked at before is looked at again (`store.batch_body`).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fusee.errors import InvalidRequestError
from fusee.transport.link import parse_address
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from fusee.transport.link import Link

HANDOVER_SIZE_MAX: Final = 64 * 1024 * 1024
HANDOVERS_SIZE_MAX: Final = 2 * 1024**3
HANDOVERS_MAX: Final = 64
MARK_SIZE: Final = 32
_SEALS: Final = 0 if not hasattr(os, "memfd_create") else fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Handover:
    """The memory of one connection."""

    def __init__(self, size: int) -> None:
        """Raises OSError when there is none."""
        self.size = size
        self.mark = secrets.token_hex(MARK_SIZE // 2)
        self._descriptor = os.memfd_create("fusee-handover", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._descriptor, size)
            os.pwrite(self._descriptor, self.mark.encode(), 0)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALS)
            self._memory = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ)
        except OSError:
            os.close(self._descriptor)
            raise
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def view(self, at: int, size: int) -> memoryview:
        """What lies there. Raises InvalidRequestError when that is outside."""
        if not (at >= MARK_SIZE and 0 < size <= self.size - at):
            raise InvalidRequestError(
                f"{size} bytes at {at} are not in a handover of {self.size}, whose first {MARK_SIZE} are its mark",
                code=ResponseCode.INVALID_PARAMETER,
            )
        return memoryview(self._memory)[at : at + size]

    def close(self) -> None:
        with suppress(BufferError):  # somebody still looks at it: then it goes with the last look
            self._memory.close()
        os.close(self._descriptor)


class Handovers:
    """All that are open."""

    def __init__(self) -> None:
        self._open: dict[Link, Handover] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, link: Link, size: int) -> Handover | None:
        """A handover of this size, or the largest there is; None for a connection that gets none."""
        size = min(size, HANDOVER_SIZE_MAX, HANDOVERS_SIZE_MAX - sum(each.size for each in self._open.values()))
        if (
            not hasattr(os, "memfd_create")
            or link in self._open
            or len(self._open) >= HANDOVERS_MAX
            or size <= MARK_SIZE
            or not is_of_this_machine(link)
        ):
            return None
        try:
            handover = Handover(size)
        except OSError:
            return None
        self._open[link] = handover
        return handover

    def view(self, link: Link, at: int, size: int) -> memoryview:
        """What a connection has handed over, where it lies. Raises InvalidRequestError."""
        handover = self._open.get(link)
        if handover is None:
            raise InvalidRequestError(
                "this connection has no handover; open one first", code=ResponseCode.INVALID_PARAMETER
            )
        return handover.view(at, size)

    def link_lost(self, link: Link) -> None:
        handover = self._open.pop(link, None)
        if handover is not None:
            handover.close()


def is_of_this_machine(link: Link) -> bool:
    """Whether both ends of a connection have the same address."""
    if not link.remote_address or not link.local_address:
        return False
    return parse_address(link.remote_address)[0] == parse_address(link.local_address)[0]
