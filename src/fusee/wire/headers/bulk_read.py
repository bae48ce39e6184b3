"""Headers of the bulk read, Fusee's own request."""

from __future__ import annotations

from fusee.wire.fields import Header, Int32, Int64, RpcHeader


class BulkReadRequest(RpcHeader, kw_only=True):
    """Code 60011: the next messages of these ranges of a topic's queues, which are the body."""

    consumer_group: str
    topic: str
    max_bytes: Int32
    """Bytes of records that are wanted at most; the broker has a limit of its own."""
    subscription: str | None = None
    """Tags, as in a pull; none means all messages."""
    local: bool = False
    """Whether the answer may say where the records lie in a file, for a reader on the broker's machine."""


class BulkReadResponse(Header, kw_only=True):
    """How many ranges and records the body has; and where the records lie, when they are not in it."""

    range_count: Int32
    record_count: Int32
    log_file: str | None = None
    """The file of the log that has the records, on the broker's machine."""
    log_file_offset: Int64 | None = None
    """The log offset of its first byte."""
    mark_file: str | None = None
    """A file beside it, by which a reader sees that it is on that machine: it holds `mark`."""
    mark: str | None = None
