"""Headers of the handover, which is Fusee's own: memory by which a sender on the broker's machine hands it messages."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32
from fusee.wire.headers.send import SendMessageV2


class OpenHandover(Header, kw_only=True):
    """Code 60021: share memory of this size with me, as long as this connection is open."""

    size: Int32


class OpenHandoverResponse(Header, kw_only=True):
    """Where the memory is, for who is on the same machine: a file of this size that begins with `mark`."""

    path: str
    size: Int32
    mark: str


class SendHandedBatch(SendMessageV2, kw_only=True):
    """Code 60022: a batch send whose body lies in the memory of this connection's handover.

    Answered as a send of one message: the first of the batch, which the others follow.
    """

    handed_at: Int32 = msgspec.field(name="handedAt")
    handed_size: Int32 = msgspec.field(name="handedSize")
