"""The dedicated paths say the same as the general one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.wire import hot_encode
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.fields import read_fields, write_fields
from fusee.wire.framing import FrameDecoder, encode_frame, encode_head
from fusee.wire.header_json import decode_json_header
from fusee.wire.headers.offset import (
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffset,
)
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from fusee.wire.headers.send import SendMessageResponse, SendMessageV2
from fusee.wire.hot_decode import HOT_DECODERS, HOT_HEADERS, HOT_PREFIX_SIZE, SEND_ANSWER_PREFIX
from tests.golden import frames

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
MAYBE_BOOL = st.none() | st.booleans()

sends = st.builds(
    SendMessageV2,
    producer_group=TEXT,
    topic=TEXT,
    default_topic=TEXT,
    default_topic_queue_nums=INT32,
    queue_id=INT32,
    sys_flag=INT32,
    born_timestamp_ms=INT64,
    flag=INT32,
    properties=st.none() | TEXT,
    reconsume_times=st.none() | INT32,
    unit_mode=MAYBE_BOOL,
    max_reconsume_times=st.none() | INT32,
    batch=MAYBE_BOOL,
    broker_name=st.none() | TEXT,
)
pulls = st.builds(
    PullMessage,
    consumer_group=TEXT,
    topic=TEXT,
    queue_id=INT32,
    queue_offset=INT64,
    max_messages=INT32,
    sys_flag=INT32,
    commit_offset=INT64,
    suspend_timeout_ms=INT64,
    subscription=st.none() | TEXT,
    sub_version=INT64,
    expression_type=st.none() | TEXT,
    max_bytes=st.none() | INT32,
    request_source=st.none() | INT32,
    broker_name=st.none() | TEXT,
)


def test_hot_requests_of_the_capture_are_decoded_by_the_dedicated_path() -> None:
    seen: set[int] = set()
    for golden in frames():
        if golden.form == "json" and golden.role != "response" and golden.code in HOT_HEADERS:
            (command,) = FrameDecoder().feed(golden.frame)
            if golden.name == "raw.send_missing_header":
                assert command.fields is None
                continue
            assert command.fields is not None, golden.id
            general = decode_json_header(command.raw_header or b"")
            header_type = HOT_HEADERS[RequestCode(golden.code)]
            assert command.fields == read_fields(general.ext_fields, header_type), golden.id
            assert command.all_fields() == general.ext_fields, golden.id
            seen.add(golden.code)
    assert seen == set(HOT_HEADERS)


def test_response_whose_code_is_a_hot_request_code_takes_the_general_path() -> None:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "1", "commitOffset": "2"}
    frame = encode_frame(Command(15, opaque=9, flag=1, ext_fields=fields))
    (command,) = FrameDecoder().feed(frame)
    assert command.fields is None
    assert command.ext_fields == fields


def test_hot_request_with_a_bad_field_takes_the_general_path() -> None:
    fields = {"consumerGroup": "g", "topic": "t", "queueId": "one", "commitOffset": "2"}
    (command,) = FrameDecoder().feed(encode_frame(Command(15, ext_fields=fields)))
    assert command.fields is None
    assert command.ext_fields == fields


@given(st.sampled_from(sorted(HOT_DECODERS)), st.binary(max_size=80))
def test_hot_decoder_of_garbage_steps_aside(prefix: bytes, garbage: bytes) -> None:
    assert HOT_DECODERS[prefix](prefix + garbage) is None


def test_every_hot_code_is_recognised_by_its_first_bytes() -> None:
    assert {len(prefix) for prefix in HOT_DECODERS} == {HOT_PREFIX_SIZE}
    assert {int(prefix[8:].strip(b',"')) for prefix in HOT_DECODERS if prefix != SEND_ANSWER_PREFIX} == set(HOT_HEADERS)


def general(code: int, header: object, opaque: int, flag: int, body_size: int) -> bytes:
    command = Command(code, opaque, flag, ext_fields=write_fields(header), body=b"x" * body_size)  # type: ignore[arg-type]
    return encode_head(command)


@given(sends, INT32, st.integers(0, 50), st.booleans(), st.sampled_from([0, 2]))
def test_send_request_equals_general_encoding(
    header: SendMessageV2, opaque: int, body_size: int, batch: bool, flag: int
) -> None:
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    head = hot_encode.send_request(opaque, header, body_size, batch=batch, flag=flag)
    assert head == general(code, header, opaque, flag, body_size)


@given(pulls, INT32, st.booleans())
def test_pull_request_equals_general_encoding(header: PullMessage, opaque: int, lite: bool) -> None:
    code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
    assert hot_encode.pull_request(opaque, header, lite=lite) == general(code, header, opaque, 0, 0)


@given(TEXT, TEXT, INT32, INT64, INT32)
def test_offset_requests_equal_general_encoding(
    group: str, topic: str, queue_id: int, commit_offset: int, opaque: int
) -> None:
    update = UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=commit_offset)
    assert hot_encode.update_offset_request(opaque, update, flag=2) == general(15, update, opaque, 2, 0)
    query = QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=True)
    assert hot_encode.query_offset_request(opaque, query) == general(14, query, opaque, 0, 0)


@given(TEXT, INT32, INT64, INT32, st.sampled_from([0, 10, 11, 12]))
def test_responses_equal_general_encoding(
    transaction_id: str, queue_id: int, queue_offset: int, opaque: int, code: int
) -> None:
    sent = SendMessageResponse(
        msg_id="0A" * 16, queue_id=queue_id, queue_offset=queue_offset, transaction_id=transaction_id
    )
    head = hot_encode.send_response(opaque, code, "0A" * 16, queue_id, queue_offset, transaction_id)
    assert head == general(code, sent, opaque, 1, 0)
    pulled = PullMessageResponse(suggested_broker_id=1, next_offset=queue_offset, min_offset=0, max_offset=9)
    head = hot_encode.pull_response(
        opaque, 0, 33, suggested_broker_id=1, next_offset=queue_offset, min_offset=0, max_offset=9
    )
    assert head == general(0, pulled, opaque, 1, 33)
    offset = QueryConsumerOffsetResponse(committed_offset=queue_offset)
    assert hot_encode.offset_response(opaque, queue_offset) == general(0, offset, opaque, 1, 0)


@pytest.mark.parametrize("code", [0, 17])
def test_plain_heads_equal_general_encoding(code: int) -> None:
    assert hot_encode.response(5, code, 12) == encode_head(Command(code, 5, 1, body=b"x" * 12))
    heartbeat = Command(RequestCode.HEART_BEAT, 5, ext_fields={}, body=b"x" * 7)
    assert hot_encode.heartbeat_request(5, 7) == encode_head(heartbeat)


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=50),
    st.sampled_from([0, 17]),
    st.none() | TEXT,
    st.none() | st.dictionaries(TEXT | st.just("opaque"), TEXT | st.just('"opaque":0'), max_size=3),
)
def test_prepared_answer_equals_general_encoding(
    opaque: int, body: bytes, code: int, remark: str | None, fields: dict[str, str] | None
) -> None:
    prepared = hot_encode.PreparedAnswer(Command(code, 5, 1, remark=remark, ext_fields=fields, body=body))
    expected = encode_frame(Command(code, opaque, 1, remark=remark, ext_fields=fields, body=body))
    assert prepared.frame(opaque) == expected
