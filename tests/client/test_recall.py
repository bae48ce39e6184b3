"""Handles by which delayed messages are taken back."""

from __future__ import annotations

import base64

import pytest

from fusee.client.recall import RecallHandle, decode_recall_handle
from fusee.errors import MessageError
from tests.golden import frames


def test_handle_says_where_the_message_waits() -> None:
    text = base64.urlsafe_b64encode(b"v1 orders broker-a 1893456000000 ID1").decode()
    assert decode_recall_handle(text) == RecallHandle("orders", "broker-a", "1893456000000", "ID1")


def test_handles_of_java_are_read() -> None:
    handles = {
        (frame.header.ext_fields or {})["recallHandle"]
        for frame in frames("recall")
        if "recallHandle" in (frame.header.ext_fields or {})
    }
    read = [decode_recall_handle(handle) for handle in handles if handle.startswith("djE")]
    assert read
    assert all(handle.topic and handle.broker_name and handle.deliver_at_ms.isdigit() for handle in read)


@pytest.mark.parametrize(
    "text", ["", "%%%", "AAAA", base64.urlsafe_b64encode(b"v2 a b c d").decode(), base64.b64encode(b"v1 a b").decode()]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(MessageError, match="is no recall handle"):
        decode_recall_handle(text)
