"""The answers of a broker to sends, which are half of all frames: what is the same in all of them is formatted once.

They are the bytes that the general encoder gives (tests hold them to it). The compiled form is `send_answers.pyx`, a
twin of this module written for C.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from fusee.wire.hot_encode import TAIL, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORDS: Final = Struct(">iI")
_OFFSET: Final = Struct(">q")


class SendAnswers:
    """The answers of one broker to sends: what is the same in all of them is formatted once."""

    __slots__ = ("_format", "_host", "_packed_host")

    def __init__(self, store_host: bytes, region_id: str, trace_on: bool) -> None:
        """`store_host` is the packed address that offset ids begin with."""
        self._packed_host = store_host
        self._host = store_host.hex().upper().encode()
        self._format = (
            b'{"code":0,"extFields":{"queueId":"%%d","transactionId":%%b,"msgId":"%%b","TRACE_ON":"%b","MSG_REGION":%b,'
            b'"queueOffset":"%%d"},"flag":1,"language":"PYTHON","opaque":%%d%b'
            % (b"true" if trace_on else b"false", quote(region_id).replace(b"%", b"%%"), TAIL)
        )

    def frame(self, opaque: int, log_offset: int, queue_id: int, queue_offset: int, unique_id: bytes) -> bytes:
        """The answer to one message."""
        header = self._format % (
            queue_id,
            b'"%b"' % unique_id if unique_id.isalnum() else quote(unique_id.decode("utf-8", "replace")),
            b"%b%016X" % (self._host, log_offset),
            queue_offset,
            opaque,
        )
        size = len(header)
        return _WORDS.pack(4 + size, size) + header

    def batch_frame(
        self, opaque: int, log_offsets: Sequence[int], queue_id: int, queue_offset: int, unique_id: bytes
    ) -> bytes:
        """The answer to a batch: the ids of all, joined; without a unique id of the batch it tells none."""
        host, pack = self._packed_host, _OFFSET.pack
        layout = self._format if unique_id else self._format.replace(b'"transactionId":%b,', b"%b")
        header = layout % (
            queue_id,
            quote(unique_id.decode("utf-8", "replace")) if unique_id else b"",
            b"".join([host + pack(log_offset) for log_offset in log_offsets]).hex(",", len(host) + 8).upper().encode(),
            queue_offset,
            opaque,
        )
        size = len(header)
        return _WORDS.pack(4 + size, size) + header
