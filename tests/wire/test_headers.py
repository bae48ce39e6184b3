"""Every declared header against the Java classes and against captured frames."""

from __future__ import annotations

import importlib
import pkgutil
import re
import types
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusee.wire.headers
from fusee.errors import FieldError
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.fields import Header, Int32, Int64, read_fields, wire_names, write_fields
from fusee.wire.headers.send import SendMessageV1, SendMessageV2
from fusee.wire.protocol_table import TABLE
from tests.golden import GoldenFrame, frames
from tests.golden.java import all_fields, java_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def declared() -> Iterator[type[Header]]:
    for module in pkgutil.iter_modules(fusee.wire.headers.__path__):
        members = vars(importlib.import_module(f"fusee.wire.headers.{module.name}")).values()
        for member in members:
            if isinstance(member, type) and issubclass(member, Header) and member.__module__.endswith(module.name):
                yield member


HEADERS = sorted(declared(), key=lambda header: header.__name__)

# Java types of fields, and ours.
TYPES: dict[str, Any] = {
    "String": str,
    "BoundaryType": str,
    "int": Int32,
    "Integer": Int32,
    "long": Int64,
    "Long": Int64,
    "boolean": bool,
    "Boolean": bool,
}

# Ours have no Java class: the reference handles these ext fields by hand.
OURS_ONLY = {"HeartbeatResponse", "SetCommitLogReadMode", "SwitchTimerEngine"} | {
    header.__name__
    for entry in TABLE.values()
    if entry.is_extension
    for header in (entry.request_header, entry.response_header)
    if header is not None
}

# No request of the protocol uses these, or they have no fields of their own.
JAVA_ONLY = {
    "CheckTransactionStateResponseHeader",
    "EndTransactionResponseHeader",
    "GetConsumerListByGroupResponseHeader",
    "InitConsumerOffsetRequestHeader",
    "RegisterOrderTopicRequestHeader",
    "RpcRequestHeader",
    "StatisticsMessagesRequestHeader",
    "TopicQueueRequestHeader",
    "TopicRequestHeader",
    "UnregisterClientResponseHeader",
    "UpdateConsumerOffsetResponseHeader",
    "ViewMessageResponseHeader",
}

# Ext fields that belong to no header class: set by hooks, or by hand around a header.
EXTRAS = {"ReqT", "MSG_REGION", "TRACE_ON", "_UNIQUE_KEY_QUERY"}

# With these codes the reference leaves the response header empty.
WITHOUT_HEADER = {
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.INVALID_PARAMETER,
}


def java_name(header: type[Header]) -> str | None:
    found = re.search(r"Java: (\w+)", header.__doc__ or "")
    return found[1] if found else None


def type_of(annotation: Any) -> Any:
    """Without the None of an optional field."""
    if get_origin(annotation) in (types.UnionType, None) or get_origin(annotation) is Annotated:
        inner = [a for a in get_args(annotation) if a is not type(None)]
        return inner[0] if get_origin(annotation) is types.UnionType else annotation
    return next(a for a in get_args(annotation) if a is not type(None))


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_header_has_the_fields_of_its_java_class(header: type[Header]) -> None:
    name = java_name(header)
    if name is None:
        assert header.__name__ in OURS_ONLY
        return
    expected = {field: TYPES[java_type] for field, (java_type, _) in all_fields(name).items()}
    if header is SendMessageV2:
        del expected["bname"]  # `n` says the same
    hints = get_type_hints(header, include_extras=True)
    assert {wire: type_of(hints[attribute]) for attribute, wire in wire_names(header)} == expected


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_header_requires_only_what_java_clients_always_send(header: type[Header]) -> None:
    required = {f.encode_name for f in msgspec.structs.fields(header) if f.required}
    if name := java_name(header):
        assert required <= {field for field, (_, not_null) in all_fields(name).items() if not_null}


def test_every_java_header_is_declared_once() -> None:
    names = [java_name(header) for header in HEADERS]
    known = [name for name in names if name is not None]
    assert sorted(known) == sorted(set(known))
    assert set(known) == set(java_headers()) - JAVA_ONLY


def test_short_and_long_send_headers_have_the_same_attributes() -> None:
    assert set(SendMessageV1.__struct_fields__) == set(SendMessageV2.__struct_fields__)
    short = get_type_hints(SendMessageV2, include_extras=True)
    long = get_type_hints(SendMessageV1, include_extras=True)
    assert short == long


def header_of(frame: GoldenFrame) -> type[Header] | None:
    code = frame.code if frame.request_code is None else frame.request_code
    if code not in RequestCode.__members__.values():
        return None
    entry = TABLE[RequestCode(code)]
    return entry.response_header if frame.role == "response" else entry.request_header


def test_golden_headers_read_and_write_back_to_the_same_text() -> None:
    checked = 0
    for frame in frames():
        header_type = header_of(frame)
        received: Mapping[str, str | None] = frame.header.ext_fields or {}
        sent = {name: text for name, text in received.items() if text is not None}
        if header_type is None:
            assert not sent or frame.code not in RequestCode.__members__.values(), frame.id
            continue
        try:
            header = read_fields(sent, header_type)
        except FieldError:
            if frame.role == "response":
                assert frame.code in WITHOUT_HEADER, frame.id
            else:
                assert frame.name == "raw.send_missing_header"
            continue
        written = write_fields(header)
        assert written == {name: text for name, text in sent.items() if name not in EXTRAS}, frame.id
        checked += 1
    assert checked > 1100


def test_golden_frames_show_every_hot_header() -> None:
    seen = {header_of(frame) for frame in frames()}
    hot = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT)
    for code in hot:
        assert TABLE[code].request_header in seen


WIRE_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, WIRE_TEXT),
    (bool, st.booleans()),
    (Int32, st.integers(-(2**31), 2**31 - 1)),
    (Int64, st.integers(-(2**63), 2**63 - 1)),
]


@st.composite
def any_header(draw: st.DrawFn) -> Header:
    header_type = draw(st.sampled_from(HEADERS))
    hints = get_type_hints(header_type, include_extras=True)
    values = {}
    for field in msgspec.structs.fields(header_type):
        if not field.required and draw(st.booleans()):
            continue
        strategy = next(s for t, s in VALUES if t == type_of(hints[field.name]))
        values[field.name] = draw(strategy)
    return header_type(**values)


@given(any_header())
def test_header_round_trips_through_text(header: Header) -> None:
    assert read_fields(write_fields(header), type(header)) == header


@given(any_header())
def test_header_is_decodable_by_msgspec_from_json_of_texts(header: Header) -> None:
    text = msgspec.json.encode(write_fields(header))
    assert msgspec.json.Decoder(type(header), strict=False).decode(text) == header


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"consumerGroup": "g", "topic": "t", "queueId": "x", "commitOffset": "1"}, "queueId"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "2147483648", "commitOffset": "1"}, "queueId"),
        ({"consumerGroup": "g", "topic": "t", "queueId": "1"}, "commitOffset"),
    ],
)
def test_read_fields_when_field_is_bad_names_it(fields: dict[str, str], named: str) -> None:
    header_type = TABLE[RequestCode.UPDATE_CONSUMER_OFFSET].request_header
    assert header_type is not None
    with pytest.raises(FieldError, match=named):
        read_fields(fields, header_type)
