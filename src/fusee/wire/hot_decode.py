"""Dedicated decoders for the headers that decide throughput: send and its answer, pull, offsets, route queries.

A JSON header whose code is in the table is decoded by one msgspec call straight into the typed header, about
three times as fast as text by name followed by conversion. Anything unusual (a response with the same number, a
field of the wrong form, a dialect) makes the decoder step aside with None, and the general path decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from fusee.wire.codes import LanguageCode, RequestCode
from fusee.wire.command import RESPONSE_FLAG, Command
from fusee.wire.fields import Header, Int32, Int64
from fusee.wire.header_json import LANGUAGES
from fusee.wire.headers.namesrv import GetKeyValue, GetRouteInfo
from fusee.wire.headers.offset import QueryConsumerOffset, UpdateConsumerOffset
from fusee.wire.headers.pull import PullMessage
from fusee.wire.headers.send import SendMessageV1, SendMessageV2

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class _Envelope(msgspec.Struct, Generic[T], gc=False):
    code: Int32
    extFields: T  # noqa: N815 - the wire's own spelling
    opaque: Int32 = 0
    flag: Int32 = 0
    language: str = "OTHER"
    version: Int32 = 0
    remark: str | None = None


class SendAnswer(Header):
    """The answer to a send with all that may be in it: its header, and what the broker says about itself.

    Every field has a default, because an answer without a message id is of another request, and to find that out by an
    exception would cost more than all the rest.
    """

    msg_id: str = ""
    queue_id: Int32 = 0
    queue_offset: Int64 = 0
    transaction_id: str = ""
    batch_uniq_id: str = ""
    recall_handle: str = ""
    region_id: str = msgspec.field(default="", name="MSG_REGION")
    trace_on: str = msgspec.field(default="", name="TRACE_ON")


def _decoder(header_type: type[Header]) -> Callable[[bytes], Command | None]:
    envelope: Any = _Envelope[header_type]  # type: ignore[valid-type]
    decode = msgspec.json.Decoder(envelope, strict=False).decode
    language_of = LANGUAGES.get
    other = LanguageCode.OTHER

    def decode_command(header: bytes) -> Command | None:
        try:
            if not header.isascii():
                header.decode()  # text in fields that are passed over is not looked at otherwise
            h = decode(header)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return None
        if h.flag & RESPONSE_FLAG:
            return None
        language = language_of(h.language, other)
        return Command(h.code, h.opaque, h.flag, language, h.version, h.remark, None, b"", h.extFields, header)

    return decode_command


def _decode_send_answer() -> Callable[[bytes], Command | None]:
    decode = msgspec.json.Decoder(_Envelope[SendAnswer], strict=False).decode
    language_of = LANGUAGES.get
    other = LanguageCode.OTHER

    def decode_command(header: bytes) -> Command | None:
        try:
            if not header.isascii():
                header.decode()
            h = decode(header)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return None
        if not h.extFields.msg_id:
            return None
        language = language_of(h.language, other)
        return Command(h.code, h.opaque, h.flag, language, h.version, h.remark, None, b"", h.extFields, header)

    return decode_command


HOT_HEADERS: Final[dict[RequestCode, type[Header]]] = {
    RequestCode.SEND_MESSAGE: SendMessageV1,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageV2,
    RequestCode.PULL_MESSAGE: PullMessage,
    RequestCode.LITE_PULL_MESSAGE: PullMessage,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffset,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffset,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: GetRouteInfo,
    RequestCode.GET_KV_CONFIG: GetKeyValue,
}

HOT_PREFIX_SIZE: Final = 12

# By the first bytes of the header, `{"code":310,` or `{"code":10,"`: every known client puts the code first.
HOT_DECODERS: Final = {
    b'{"code":%d,"' % code: _decoder(header) for code, header in HOT_HEADERS.items() if code < 100
} | {b'{"code":%d,' % code: _decoder(header) for code, header in HOT_HEADERS.items() if code >= 100}

# The answer to a send that succeeded, `{"code":0,"extFields":{`, is the other half of the traffic of a client.
SEND_ANSWER_PREFIX: Final = b'{"code":0,"e'
HOT_DECODERS[SEND_ANSWER_PREFIX] = _decode_send_answer()
