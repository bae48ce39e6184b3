"""Memory shared with a broker on this machine, so that messages need not travel (`fusee.broker.handovers`).

Nothing but an answer of the broker says where it is, and the random mark at its beginning that it is the right one. It
belongs to the connection: after that, what was under way may not be written over any more, because a broker that has
not heard of the end may still read it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fusee.errors import ProtocolError
from fusee.pipeline.send_memory import SendMemory
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.handover import OpenHandover, OpenHandoverResponse

if TYPE_CHECKING:
    from fusee.pipeline.blocking_link import BlockingLink


def open_handover(link: BlockingLink, size: int) -> SendMemory | None:
    """Memory that is shared by this connection; None when the broker gives none, or it is not here.

    Raises TransportError when the broker does not answer.
    """
    if not link.is_of_this_machine:
        return None
    answer = link.request(Command.request(RequestCode.OPEN_HANDOVER, OpenHandover(size=size))).command
    if answer.code != ResponseCode.SUCCESS:
        return None
    header = answer.read(OpenHandoverResponse)
    mark = header.mark.encode()
    if not mark or header.size <= len(mark):
        raise ProtocolError(f"{link.address} shares {header.size} bytes with a mark of {len(mark)}")
    try:
        memory = _mapped(header.path, header.size)
    except OSError:
        return None
    if memory is None or memory[: len(mark)] != mark:
        return None
    # places are on whole lines of the processor's cache
    return SendMemory(memoryview(memory), first=-(-len(mark) // 64) * 64, is_shared=True)


def _mapped(path: str, size: int) -> mmap.mmap | None:
    """The file of this size; None when that is something else."""
    # not opened before it is looked at: on another machine this may be anything
    if not Path(path).is_file():
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return mmap.mmap(descriptor, size) if os.fstat(descriptor).st_size == size else None
    finally:
        os.close(descriptor)
