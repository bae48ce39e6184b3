"""Codec: microseconds per command of the hot requests, decoded and encoded, in JSON and in binary headers.

`fusee` is the way a server or client of ours really goes: the dedicated decoder or encoder where there is
one, a connection's remembered layout for binary headers. `general` is the declarative codec that serves all
other requests; for binary headers it is the first one of its layout, taken apart field by field and then
remembered. `json module` is the standard library between the same header and a dict, without typed fields.
Every call handles a batch of headers that differ in ids, keys and offsets, as traffic does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.frames import OPAQUE, binary_header, frame, json_header
from benchmarks.interleaving import interleaved
from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from benchmarks.stopwatch import calibrated_rounds, us_per_item
from fusee.wire import hot_encode
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.fields import Header, read_fields
from fusee.wire.framing import FrameDecoder, HeaderForm, encode_head
from fusee.wire.header_binary import LayoutMemory, decode_binary_header
from fusee.wire.header_json import decode_json_header
from fusee.wire.headers.client import Heartbeat
from fusee.wire.headers.namesrv import GetRouteInfo
from fusee.wire.headers.offset import (
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffset,
)
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from fusee.wire.headers.send import SendMessageResponse, SendMessageV1, SendMessageV2
from fusee.wire.hot_decode import HOT_DECODERS, HOT_HEADERS, HOT_PREFIX_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.plan import Plan

TITLE: Final = "Codec"
COMMAND: Final = "python -m benchmarks --only codec"

GENERAL: Final = "general"
JSON_MODULE: Final = "json module"
BATCH: Final = 64

# A dedicated path that is no faster than the general one has no reason to exist.
DEDICATED_TARGETS: Final = [Target(GENERAL, 1.0)]


@dataclass(frozen=True, slots=True)
class Hot:
    """One hot request: its code, its header, the fields of the n-th of a batch, its dedicated encoder."""

    name: str
    code: RequestCode
    header_type: type[Header]
    fields: Callable[[int], dict[str, str]]
    encode: Callable[[int, Any], bytes] | None = None
    body: bytes = b""


def _properties(number: int) -> str:
    unique_key = f"7F0000010A2C18B4AAC2{number:012X}"
    return f"UNIQ_KEY\x01{unique_key}\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01order-{number:06}\x02"


def _send_long(number: int) -> dict[str, str]:
    return {
        "producerGroup": "payment_producer",
        "topic": "OrderEvents",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(number % 8),
        "sysFlag": "0",
        "bornTimestamp": str(1_700_000_000_000 + number),
        "flag": "0",
        "properties": _properties(number),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
        "bname": "broker-a",
    }


def _send_short(number: int, *, batch: bool = False) -> dict[str, str]:
    letters = dict(zip("abcdefghijkmn", _send_long(number).values(), strict=True))
    return letters | {"m": "true"} if batch else letters


def _pull(number: int) -> dict[str, str]:
    return {
        "bname": "broker-a",
        "consumerGroup": "payment_consumer",
        "topic": "OrderEvents",
        "queueId": str(number % 8),
        "queueOffset": str(4_000_000 + 32 * number),
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": str(4_000_000 + 32 * number),
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
    }


def _query_offset(number: int) -> dict[str, str]:
    return {"consumerGroup": "payment_consumer", "topic": "OrderEvents", "queueId": str(number % 8)}


def _update_offset(number: int) -> dict[str, str]:
    return _query_offset(number) | {"commitOffset": str(4_000_000 + number)}


HOT: Final = (
    Hot("send, long names", RequestCode.SEND_MESSAGE, SendMessageV1, _send_long, None, bytes(1024)),
    Hot(
        "send, short names",
        RequestCode.SEND_MESSAGE_V2,
        SendMessageV2,
        _send_short,
        lambda opaque, header: hot_encode.send_request(opaque, header, 1024),
        bytes(1024),
    ),
    Hot(
        "send batch",
        RequestCode.SEND_BATCH_MESSAGE,
        SendMessageV2,
        partial(_send_short, batch=True),
        lambda opaque, header: hot_encode.send_request(opaque, header, 1024, batch=True),
        bytes(1024),
    ),
    Hot("pull", RequestCode.PULL_MESSAGE, PullMessage, _pull, hot_encode.pull_request),
    Hot(
        "update offset",
        RequestCode.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffset,
        _update_offset,
        hot_encode.update_offset_request,
    ),
    Hot(
        "query offset",
        RequestCode.QUERY_CONSUMER_OFFSET,
        QueryConsumerOffset,
        _query_offset,
        hot_encode.query_offset_request,
    ),
    Hot(
        "heartbeat",
        RequestCode.HEART_BEAT,
        Heartbeat,
        lambda number: {},
        lambda opaque, header: hot_encode.heartbeat_request(opaque, 180),
        bytes(180),
    ),
    Hot(
        "route",
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        GetRouteInfo,
        lambda number: {"topic": f"OrderEvents-{number % 8}"},
    ),
)


def run(plan: Plan) -> Findings:
    """Measures every hot command in both directions and both forms."""
    rows = [_row(f"decode JSON, {hot.name}", _decode_json(hot), plan) for hot in HOT]
    rows += [_row(f"decode binary, {hot.name}", _decode_binary(hot), plan) for hot in HOT]
    rows += [_row(f"decode {BATCH} frames at once, {hot.name}", _decode_frames(hot), plan) for hot in HOT]
    rows += [_row(f"encode JSON, {hot.name}", _encode_json(hot), plan) for hot in HOT]
    rows += [_row(f"encode binary, {hot.name}", _encode_binary(hot), plan) for hot in HOT]
    rows += [_row(f"encode JSON, {name}", works, plan) for name, works in _encode_responses().items()]
    note = f"per command, of batches of {BATCH}; 'general' is what a request without a dedicated path costs"
    return Findings(rows, [note])


def _row(name: str, works: Mapping[str, Callable[[], object]], plan: Plan) -> Row:
    rounds = {contender: calibrated_rounds(work, plan.micro_s) for contender, work in works.items()}
    turns = {contender: partial(us_per_item, work, rounds[contender], BATCH) for contender, work in works.items()}
    figures = {contender: figure(values) for contender, values in interleaved(turns, plan.repetitions).items()}
    row = Row(
        name=name,
        unit="us/command",
        higher_is_better=False,
        figures=figures,
        targets=DEDICATED_TARGETS if GENERAL in works else [],
        command=COMMAND,
    )
    return judged(row)


def _headers(hot: Hot, build: Callable[..., bytes]) -> list[bytes]:
    return [build(hot.code, hot.fields(number), opaque=OPAQUE + number) for number in range(BATCH)]


def _decode_json(hot: Hot) -> dict[str, Callable[[], object]]:
    headers = _headers(hot, json_header)
    header_type = hot.header_type
    dedicated = HOT_DECODERS[headers[0][:HOT_PREFIX_SIZE]] if hot.code in HOT_HEADERS else None

    def general() -> None:
        for header in headers:
            decode_json_header(header).read(header_type)

    def with_json_module() -> None:
        for header in headers:
            json.loads(header)

    def fusee() -> None:
        decode = cast("Callable[[bytes], Command]", dedicated)
        for header in headers:
            decode(header).read(header_type)

    if dedicated is None:
        return {OURS: general, JSON_MODULE: with_json_module}
    return {OURS: fusee, GENERAL: general, JSON_MODULE: with_json_module}


def _decode_binary(hot: Hot) -> dict[str, Callable[[], object]]:
    headers = _headers(hot, binary_header)
    header_type = hot.header_type
    layouts = LayoutMemory()

    def fusee() -> None:
        for header in headers:
            decode_binary_header(header, layouts).read(header_type)

    def general() -> None:
        for header in headers:
            decode_binary_header(header).read(header_type)

    return {OURS: fusee, GENERAL: general} if hot.fields(0) else {OURS: fusee}


def _decode_frames(hot: Hot) -> dict[str, Callable[[], object]]:
    data = b"".join(frame(header, hot.body) for header in _headers(hot, json_header))
    header_type = hot.header_type
    decoder = FrameDecoder()

    def fusee() -> None:
        for command in decoder.feed(data):
            command.read(header_type)

    return {OURS: fusee}


def _encode_json(hot: Hot) -> dict[str, Callable[[], object]]:
    headers = [read_fields(hot.fields(number), hot.header_type) for number in range(BATCH)]
    dedicated = hot.encode

    def general() -> None:
        for header in headers:
            command = Command.request(hot.code, header, body=hot.body)
            command.opaque = OPAQUE
            encode_head(command)

    def with_json_module() -> None:
        for number in range(BATCH):
            json_header(hot.code, fields[number])

    def fusee() -> None:
        encode = cast("Callable[[int, Header], bytes]", dedicated)
        for header in headers:
            encode(OPAQUE, header)

    fields = [hot.fields(number) for number in range(BATCH)]
    if dedicated is None:
        return {OURS: general, JSON_MODULE: with_json_module}
    return {OURS: fusee, GENERAL: general, JSON_MODULE: with_json_module}


def _encode_binary(hot: Hot) -> dict[str, Callable[[], object]]:
    headers = [read_fields(hot.fields(number), hot.header_type) for number in range(BATCH)]

    def fusee() -> None:
        for header in headers:
            encode_head(Command.request(hot.code, header, body=hot.body), HeaderForm.BINARY)

    return {OURS: fusee}


def _encode_responses() -> dict[str, dict[str, Callable[[], object]]]:
    request = Command(0, opaque=OPAQUE)
    message_id = "7F000001000051AF00000000000000EF"
    unique_key = "7F0000010A2C18B4AAC200000000002A"

    def sent() -> None:
        for number in range(BATCH):
            hot_encode.send_response(OPAQUE, 0, message_id, 3, number, unique_key)

    def sent_generally() -> None:
        for number in range(BATCH):
            header = SendMessageResponse(msg_id=message_id, queue_id=3, queue_offset=number, transaction_id=unique_key)
            encode_head(request.reply(header=header))

    def pulled() -> None:
        for number in range(BATCH):
            hot_encode.pull_response(
                OPAQUE, 0, 32768, suggested_broker_id=0, next_offset=number, min_offset=0, max_offset=number
            )

    def pulled_generally() -> None:
        for number in range(BATCH):
            header = PullMessageResponse(suggested_broker_id=0, next_offset=number, min_offset=0, max_offset=number)
            encode_head(request.reply(header=header))

    def found() -> None:
        for number in range(BATCH):
            hot_encode.offset_response(OPAQUE, number)

    def found_generally() -> None:
        for number in range(BATCH):
            encode_head(request.reply(header=QueryConsumerOffsetResponse(committed_offset=number)))

    def plain() -> None:
        for _ in range(BATCH):
            hot_encode.response(OPAQUE)

    def plain_generally() -> None:
        for _ in range(BATCH):
            encode_head(request.reply())

    return {
        "send response": {OURS: sent, GENERAL: sent_generally},
        "pull response": {OURS: pulled, GENERAL: pulled_generally},
        "offset response": {OURS: found, GENERAL: found_generally},
        "plain response": {OURS: plain, GENERAL: plain_generally},
    }
