"""Recall handles: what a broker gives for a delayed message, so that it can be taken back.

The handle is the URL form of base64 over `v1 topic broker-name deliver-time unique-id`, separated by spaces (Java:
RecallMessageHandle).
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from fusee.errors import MessageError

_VERSION: Final = "v1"


class RecallHandle(msgspec.Struct, frozen=True, gc=False):
    """What a handle says."""

    topic: str
    broker_name: str
    deliver_at_ms: str
    unique_id: str


def decode_recall_handle(text: str) -> RecallHandle:
    """The parts of a handle. Raises MessageError when it is none."""
    try:
        parts = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeError):
        parts = []
    if len(parts) < 5 or parts[0] != _VERSION:
        raise MessageError(f"{text[:80]!r} is no recall handle; take the one of the send result of a delayed message")
    return RecallHandle(*parts[1:5])
