"""A namespace of the name server's key/value configuration, as a body."""

from __future__ import annotations

import msgspec

from fusee.wire.lenient_json import decode_json, dumps_fastjson


class KvTable(msgspec.Struct):
    """Keys and values of one namespace (Java: KVTable)."""

    table: dict[str, str] = {}


def decode_kv_table(body: bytes) -> KvTable:
    """The namespace in this body."""
    return decode_json(body, KvTable)


def encode_kv_table(table: dict[str, str]) -> bytes:
    """The bytes Java writes for this namespace, in the order given."""
    return dumps_fastjson(KvTable(table))
