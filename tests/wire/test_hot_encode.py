"""The broker's prepared answers: the same bytes as the general encoder gives for the same values."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fusee.message.hosts import pack_host
from fusee.message.ids import decode_offset_id, encode_offset_id
from fusee.wire.command import Command
from fusee.wire.fields import read_fields
from fusee.wire.framing import FrameDecoder, encode_frame, encode_head
from fusee.wire.headers.pull import PullMessageResponse
from fusee.wire.headers.send import SendMessageResponse
from fusee.wire.hot_encode import found_response
from fusee.wire.send_answers import SendAnswers
from tests.golden import frames

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PLACE = st.integers(0, 2**63 - 1)
HOSTS = st.sampled_from([pack_host("10.0.0.1", 10911), pack_host("fd00::1", 10911)])
REGIONS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(["DefaultRegion", "100%", '"%d"'])
IDS = st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | st.just(b"7F0000010001ABCDEF")


def expected(
    opaque: int,
    message_id: str,
    queue_id: int,
    queue_offset: int,
    unique_id: bytes,
    region: str,
    trace_on: bool,
    *,
    is_batch: bool = False,
) -> bytes:
    fields = {
        "queueId": str(queue_id),
        **({} if is_batch and not unique_id else {"transactionId": unique_id.decode("utf-8", "replace")}),
        "msgId": message_id,
        "TRACE_ON": "true" if trace_on else "false",
        "MSG_REGION": region,
        "queueOffset": str(queue_offset),
    }
    return encode_frame(Command(0, opaque, 1, ext_fields=fields))


@given(INT32, HOSTS, PLACE, INT32, INT64, IDS, REGIONS, st.booleans())
@example(0, pack_host("10.0.0.1", 1), 0, 0, 0, b"", "", True)
def test_answer_to_a_send_equals_general_encoding(
    opaque: int,
    host: bytes,
    log_offset: int,
    queue_id: int,
    queue_offset: int,
    unique_id: bytes,
    region: str,
    trace_on: bool,
) -> None:
    frame = SendAnswers(host, region, trace_on).frame(opaque, log_offset, queue_id, queue_offset, unique_id)
    message_id = encode_offset_id(host, log_offset)
    assert frame == expected(opaque, message_id, queue_id, queue_offset, unique_id, region, trace_on)


@given(INT32, HOSTS, st.lists(PLACE, max_size=5), INT32, INT64, IDS, REGIONS, st.booleans())
def test_answer_to_a_batch_equals_general_encoding(
    opaque: int,
    host: bytes,
    log_offsets: list[int],
    queue_id: int,
    queue_offset: int,
    unique_id: bytes,
    region: str,
    trace_on: bool,
) -> None:
    answers = SendAnswers(host, region, trace_on)
    frame = answers.batch_frame(opaque, log_offsets, queue_id, queue_offset, unique_id)
    message_id = ",".join(encode_offset_id(host, log_offset) for log_offset in log_offsets)
    if unique_id:
        assert frame == expected(opaque, message_id, queue_id, queue_offset, unique_id, region, trace_on)
    else:
        [answer] = FrameDecoder().feed(expected(opaque, message_id, queue_id, queue_offset, b"", region, trace_on))
        fields = {name: value for name, value in answer.all_fields().items() if name != "transactionId"}
        assert frame == encode_frame(Command(0, opaque, 1, ext_fields=fields))


@given(INT32, st.integers(0, 50), INT64, INT64, INT64, INT64, INT32, INT32)
def test_head_of_found_messages_equals_general_encoding(
    opaque: int,
    body_size: int,
    suggested: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    group_sys_flag: int,
    topic_sys_flag: int,
) -> None:
    head = found_response(
        opaque, body_size, suggested, next_offset, min_offset, max_offset, group_sys_flag, topic_sys_flag
    )
    fields = {
        "suggestWhichBrokerId": str(suggested),
        "groupSysFlag": str(group_sys_flag),
        "nextBeginOffset": str(next_offset),
        "maxOffset": str(max_offset),
        "minOffset": str(min_offset),
        "topicSysFlag": str(topic_sys_flag),
    }
    command = Command(0, opaque, 1, remark="FOUND", ext_fields=fields, body=bytes(body_size))
    assert head == encode_head(command)
    [decoded] = FrameDecoder().feed(head + bytes(body_size))
    header = decoded.read(PullMessageResponse)
    assert (header.next_offset, header.suggested_broker_id) == (next_offset, suggested)


def test_answers_of_the_reference_read_as_ours_do() -> None:
    """The fields that Java puts into these answers are the ones that ours have, and no other."""
    answers = SendAnswers(pack_host("127.0.0.2", 20911), "DefaultRegion", True)
    sends = pulls = 0
    for golden in frames():
        fields = golden.header.ext_fields or {}
        if golden.role != "response" or golden.header.code != 0:
            continue
        if golden.request_code in (10, 310, 320) and "recallHandle" not in fields:
            theirs = read_fields(dict(fields), SendMessageResponse)
            ids = [decode_offset_id(text).log_offset for text in theirs.msg_id.split(",")]
            unique_id = (theirs.transaction_id or "").encode()
            place = (theirs.queue_id, theirs.queue_offset, unique_id)
            whole = answers.frame(golden.header.opaque, ids[0], *place)
            if len(ids) > 1:
                whole = answers.batch_frame(golden.header.opaque, ids, *place)
            [ours] = FrameDecoder().feed(whole)
            assert ours.all_fields().keys() == fields.keys() | {"transactionId"}, golden.id
            sends += 1
        elif golden.request_code in (11, 361):
            assert golden.header.remark == "FOUND"
            [ours] = FrameDecoder().feed(found_response(1, 0, 0, 1, 2, 3, 4, 5))
            assert ours.all_fields().keys() == fields.keys(), golden.id
            pulls += 1
    assert sends > 20
    assert pulls > 20
