"""Remoting frames for load: built by hand, because a load that uses our codec could share its mistakes."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# Ten digits: the load generator writes its own value over this one without changing the length.
OPAQUE: Final = 1_000_000_000
JAVA_VERSION: Final = 513


def json_header(code: int, fields: Mapping[str, str] | None = None, *, opaque: int = OPAQUE) -> bytes:
    """A request header as the Java client writes it."""
    header: dict[str, object] = {"code": code}
    if fields is not None:
        header["extFields"] = dict(fields)
    header |= {
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": JAVA_VERSION,
    }
    return json.dumps(header, separators=(",", ":")).encode()


def binary_header(code: int, fields: Mapping[str, str] | None = None, *, opaque: int = OPAQUE) -> bytes:
    """The same request in RocketMQ's binary form."""
    entries = b""
    for key, value in (fields or {}).items():
        key_bytes, value_bytes = key.encode(), value.encode()
        entries += struct.pack(">h", len(key_bytes)) + key_bytes
        entries += struct.pack(">i", len(value_bytes)) + value_bytes
    fixed = struct.pack(">hBhiiii", code, 0, JAVA_VERSION, opaque, 0, 0, len(entries))
    return fixed + entries


def frame(header: bytes, body: bytes = b"", *, binary: bool = False) -> bytes:
    """The frame of this header and body."""
    return struct.pack(">II", 4 + len(header) + len(body), binary << 24 | len(header)) + header + body


def write_frame_file(path: Path, frames: Iterable[bytes]) -> None:
    """Writes what the load generator replays: each frame behind its length."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(struct.pack(">I", len(one)) + one for one in frames))
