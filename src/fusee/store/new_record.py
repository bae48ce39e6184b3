"""A record before it has a place in the log."""

from __future__ import annotations

import msgspec

from fusee.errors import MessageError
from fusee.message import properties as names


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


def with_inner_base(properties: bytes, queue_offset: int) -> tuple[int, bytes]:
    """How many messages an inner batch has, and its properties with the first's queue offset. Raises MessageError."""
    number = names.find_property(properties, names.INNER_NUM.encode())
    if number is None or not number.isdigit() or int(number) < 1:
        raise MessageError("an inner batch needs the property INNER_NUM with the number of its messages")
    base = b"%b\x01%d\x02" % (names.INNER_BASE.encode(), queue_offset)
    without = names.remove_property(properties, names.INNER_BASE.encode())
    return int(number), names.join_properties(without, base)
