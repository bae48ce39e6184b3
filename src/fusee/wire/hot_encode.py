"""Dedicated encoders: frames whose shape is known are written by one formatting call.

Every function gives the same bytes as the general encoder for the same values (tests hold them to it), in the
JSON form, which every client reads. Each returns the head of the frame; the body is sent behind it from where it
lies, so only its size is asked for.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.wire.codes import RequestCode
from fusee.wire.command import PROTOCOL_VERSION
from fusee.wire.header_json import encode_json_header

if TYPE_CHECKING:
    from fusee.wire.command import Command
    from fusee.wire.headers.offset import QueryConsumerOffset, UpdateConsumerOffset
    from fusee.wire.headers.pull import PullMessage
    from fusee.wire.headers.send import SendMessageV2

_WORDS: Final = Struct(">iI")
quote = msgspec.json.Encoder().encode

TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % PROTOCOL_VERSION


@lru_cache(maxsize=4096)  # the few topics, groups and brokers of a process come back with every request
def _name(text: str) -> bytes:
    return quote(text)


def _head(header: bytes, body_size: int) -> bytes:
    return _WORDS.pack(4 + len(header) + body_size, len(header)) + header


def _request(code: int, opaque: int, flag: int, fields: bytes, body_size: int) -> bytes:
    return _head(
        b'{"code":%d,"extFields":{%b},"flag":%d,"language":"PYTHON","opaque":%d%b' % (code, fields, flag, opaque, TAIL),
        body_size,
    )


def _flag(name: bytes, value: bool | None) -> bytes:
    if value is None:
        return b""
    return b',"%b":"true"' % name if value else b',"%b":"false"' % name


def _number(name: bytes, value: int | None) -> bytes:
    return b"" if value is None else b',"%b":"%d"' % (name, value)


def _text(name: bytes, value: str | None) -> bytes:
    return b"" if value is None else b',"%b":%b' % (name, quote(value))


def send_request(opaque: int, header: SendMessageV2, body_size: int, *, batch: bool = False, flag: int = 0) -> bytes:
    """Head of a send in the short form, of one message or of a batch."""
    fields = b'"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"%d","g":"%d","h":"%d"' % (
        _name(header.producer_group),
        _name(header.topic),
        _name(header.default_topic),
        header.default_topic_queue_nums,
        header.queue_id,
        header.sys_flag,
        header.born_timestamp_ms,
        header.flag,
    )
    fields += _text(b"i", header.properties) + _number(b"j", header.reconsume_times)
    fields += _flag(b"k", header.unit_mode) + _number(b"l", header.max_reconsume_times)
    fields += _flag(b"m", header.batch)
    if header.broker_name is not None:
        fields = b'"n":%b,%b' % (_name(header.broker_name), fields)
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return _request(code, opaque, flag, fields, body_size)


class SendRequests:
    """Sends of one producer to one queue: what is the same in all of them is formatted once."""

    __slots__ = ("_format",)

    def __init__(
        self,
        *,
        producer_group: str,
        topic: str,
        default_topic: str,
        default_topic_queue_nums: int,
        queue_id: int,
        broker_name: str,
        batch: bool = False,
    ) -> None:
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        self._format = (
            b'{"code":%d,"extFields":{"n":%b,"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"%%d","g":"%%d","h":"%%d",'
            b'"i":%%b,"j":"0","k":"false","m":"%b"},"flag":0,"language":"PYTHON","opaque":%%d%b'
            % (
                code,
                quote(broker_name).replace(b"%", b"%%"),
                quote(producer_group).replace(b"%", b"%%"),
                quote(topic).replace(b"%", b"%%"),
                quote(default_topic).replace(b"%", b"%%"),
                default_topic_queue_nums,
                queue_id,
                b"true" if batch else b"false",
                TAIL,
            )
        )

    def head(
        self, opaque: int, sys_flag: int, born_timestamp_ms: int, flag: int, properties: str, body_size: int
    ) -> bytes:
        """Head of a send that is neither a retry of a consumer nor of a unit."""
        header = self._format % (sys_flag, born_timestamp_ms, flag, quote(properties), opaque)
        size = len(header)
        return _WORDS.pack(4 + size + body_size, size) + header


def pull_request(opaque: int, header: PullMessage, *, lite: bool = False) -> bytes:
    """Head of a pull."""
    fields = (
        b'"consumerGroup":%b,"topic":%b,"queueId":"%d","queueOffset":"%d","maxMsgNums":"%d","sysFlag":"%d",'
        b'"commitOffset":"%d","suspendTimeoutMillis":"%d"'
        % (
            _name(header.consumer_group),
            _name(header.topic),
            header.queue_id,
            header.queue_offset,
            header.max_messages,
            header.sys_flag,
            header.commit_offset,
            header.suspend_timeout_ms,
        )
    )
    fields += _text(b"subscription", header.subscription) + b',"subVersion":"%d"' % header.sub_version
    fields += _text(b"expressionType", header.expression_type) + _number(b"maxMsgBytes", header.max_bytes)
    fields += _number(b"requestSource", header.request_source)
    if header.broker_name is not None:
        fields = b'"bname":%b,%b' % (_name(header.broker_name), fields)
    code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
    return _request(code, opaque, 0, fields, 0)


def update_offset_request(opaque: int, header: UpdateConsumerOffset, *, flag: int = 0) -> bytes:
    """Head of an offset commit."""
    fields = b'"consumerGroup":%b,"topic":%b,"queueId":"%d","commitOffset":"%d"' % (
        _name(header.consumer_group),
        _name(header.topic),
        header.queue_id,
        header.commit_offset,
    )
    return _request(RequestCode.UPDATE_CONSUMER_OFFSET, opaque, flag, fields, 0)


def query_offset_request(opaque: int, header: QueryConsumerOffset) -> bytes:
    """Head of an offset query."""
    fields = b'"consumerGroup":%b,"topic":%b,"queueId":"%d"' % (
        _name(header.consumer_group),
        _name(header.topic),
        header.queue_id,
    )
    fields += _flag(b"setZeroIfNotFound", header.set_zero_if_not_found)
    return _request(RequestCode.QUERY_CONSUMER_OFFSET, opaque, 0, fields, 0)


def heartbeat_request(opaque: int, body_size: int) -> bytes:
    """Head of a heartbeat, which has no fields of its own."""
    return _request(RequestCode.HEART_BEAT, opaque, 0, b"", body_size)


def response(opaque: int, code: int = 0, body_size: int = 0) -> bytes:
    """Head of a response without fields and remark."""
    return _head(b'{"code":%d,"flag":1,"language":"PYTHON","opaque":%d%b' % (code, opaque, TAIL), body_size)


class PreparedAnswer:
    """A response that is sent again and again: everything but the opaque is formatted once."""

    __slots__ = ("body", "heads", "rest")

    def __init__(self, response: Command) -> None:
        self.body = body = response.body
        response.opaque = 0
        header = encode_json_header(response)
        at = header.rindex(b'"opaque":0') + 9
        start, tail = header[:at], header[at + 1 :]
        self.rest = tail + body
        """What stands behind the digits of the opaque."""
        # By the number of digits of the opaque, which the lengths in the frame's first words depend on.
        self.heads = [
            _WORDS.pack(4 + size + len(body), size) + start
            for size in (len(start) + digits + len(tail) for digits in range(12))
        ]
        """What stands before them, by their number."""

    def frame(self, opaque: int) -> bytes:
        """The whole frame of the answer to the request with this opaque."""
        return self.frame_of(b"%d" % opaque)

    def frame_of(self, digits: bytes) -> bytes:
        """The same, the opaque given as its digits, of which there are at most 11."""
        return self.heads[len(digits)] + digits + self.rest


def _response(opaque: int, code: int, fields: bytes, body_size: int) -> bytes:
    return _head(
        b'{"code":%d,"extFields":{%b},"flag":1,"language":"PYTHON","opaque":%d%b' % (code, fields, opaque, TAIL),
        body_size,
    )


def send_response(
    opaque: int, code: int, message_id: str, queue_id: int, queue_offset: int, transaction_id: str
) -> bytes:
    """Head of the answer to a send."""
    fields = b'"msgId":"%b","queueId":"%d","queueOffset":"%d","transactionId":%b' % (
        message_id.encode(),
        queue_id,
        queue_offset,
        quote(transaction_id),
    )
    return _response(opaque, code, fields, 0)


def found_response(
    opaque: int,
    body_size: int,
    suggested_broker_id: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    group_sys_flag: int,
    topic_sys_flag: int,
) -> bytes:
    """Head of the answer to a pull that found messages."""
    header = (
        b'{"code":0,"extFields":{"suggestWhichBrokerId":"%d","groupSysFlag":"%d","nextBeginOffset":"%d",'
        b'"maxOffset":"%d","minOffset":"%d","topicSysFlag":"%d"},"flag":1,"language":"PYTHON","opaque":%d,'
        b'"remark":"FOUND"%b'
        % (
            suggested_broker_id,
            group_sys_flag,
            next_offset,
            max_offset,
            min_offset,
            topic_sys_flag,
            opaque,
            TAIL,
        )
    )
    size = len(header)
    return _WORDS.pack(4 + size + body_size, size) + header


def pull_response(
    opaque: int,
    code: int,
    body_size: int,
    *,
    suggested_broker_id: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
) -> bytes:
    """Head of the answer to a pull."""
    fields = b'"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"' % (
        suggested_broker_id,
        next_offset,
        min_offset,
        max_offset,
    )
    return _response(opaque, code, fields, body_size)


def offset_response(opaque: int, queue_offset: int) -> bytes:
    """Head of the answer to any question for one offset."""
    return _response(opaque, 0, b'"offset":"%d"' % queue_offset, 0)
