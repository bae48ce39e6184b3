"""Headers of the bulk read, Fusee's own request."""

from __future__ import annotations

from fusee.wire.fields import Header, Int32, RpcHeader


class BulkReadRequest(RpcHeader, kw_only=True):
    """Code 60011: the next messages of these ranges of a topic's queues, which are the body."""

    consumer_group: str
    topic: str
    max_bytes: Int32
    """Bytes of records that are wanted at most; the broker has a limit of its own."""
    subscription: str | None = None
    """Tags, as in a pull; none means all messages."""


class BulkReadResponse(Header, kw_only=True):
    """How many ranges and records the body has."""

    range_count: Int32
    record_count: Int32
