"""A record before it has a place in the log."""

from __future__ import annotations

import msgspec


class NewRecord(msgspec.Struct, gc=False):
    """A record before it has a place: everything that the sender and the broker say of it, in wire form."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
