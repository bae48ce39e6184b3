"""The client's own fast paths: sends whose head is mostly ready, and their answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.fields import write_fields
from fusee.wire.framing import FrameDecoder, encode_frame, encode_head
from fusee.wire.headers.send import SendMessageResponse, SendMessageV2
from fusee.wire.hot_decode import SendAnswer
from fusee.wire.hot_encode import SendRequests, send_request
from tests.golden import frames

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(["100%", '"%d"', "%%b"])


@given(
    names=st.tuples(TEXT, TEXT, TEXT, TEXT),
    numbers=st.tuples(INT32, INT32, INT32, INT64, INT32),
    properties=TEXT,
    opaque=st.integers(0, 2**31 - 1),
    body_size=st.integers(0, 2**20),
    batch=st.booleans(),
)
def test_head_of_a_send_equals_the_general_one(
    names: tuple[str, str, str, str],
    numbers: tuple[int, int, int, int, int],
    properties: str,
    opaque: int,
    body_size: int,
    batch: bool,
) -> None:
    group, topic, default_topic, broker_name = names
    queue_nums, queue_id, sys_flag, born_ms, flag = numbers
    header = SendMessageV2(
        producer_group=group,
        topic=topic,
        default_topic=default_topic,
        default_topic_queue_nums=queue_nums,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        flag=flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
        broker_name=broker_name,
    )
    requests = SendRequests(
        producer_group=group,
        topic=topic,
        default_topic=default_topic,
        default_topic_queue_nums=queue_nums,
        queue_id=queue_id,
        broker_name=broker_name,
        batch=batch,
    )
    head = requests.head(opaque, sys_flag, born_ms, flag, properties, body_size)
    assert head == send_request(opaque, header, body_size, batch=batch)
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    command = FrameDecoder().feed(head + bytes(body_size))[0]
    assert (command.code, command.opaque, command.read(SendMessageV2)) == (code, opaque, header)


@given(msg_id=TEXT.filter(bool), queue_id=INT32, queue_offset=INT64, transaction_id=TEXT, region=TEXT, opaque=INT32)
def test_answer_to_a_send_is_read_as_what_it_says(
    msg_id: str, queue_id: int, queue_offset: int, transaction_id: str, region: str, opaque: int
) -> None:
    header = SendMessageResponse(
        msg_id=msg_id, queue_id=queue_id, queue_offset=queue_offset, transaction_id=transaction_id
    )
    fields = {**write_fields(header), "MSG_REGION": region, "TRACE_ON": "false"}
    (command,) = FrameDecoder().feed(encode_frame(Command(0, opaque, 1, ext_fields=fields)))
    answer = command.read(SendAnswer)
    assert answer == SendAnswer(
        msg_id=msg_id,
        queue_id=queue_id,
        queue_offset=queue_offset,
        transaction_id=transaction_id,
        region_id=region,
        trace_on="false",
    )
    assert command.fields is answer
    assert (command.opaque, command.flag, command.all_fields()) == (opaque, 1, fields)
    assert command.read(SendMessageResponse) == header


def test_answers_of_java_are_read_the_same_by_both_paths() -> None:
    count = 0
    for frame in frames():
        if frame.role != "response" or frame.form != "json" or frame.header.code != 0:
            continue
        (command,) = FrameDecoder().feed(frame.frame)
        assert command.all_fields() == (frame.header.ext_fields or {})
        if type(command.fields) is SendAnswer:
            count += 1
            assert command.fields.msg_id == (frame.header.ext_fields or {})["msgId"]
    assert count > 20


def test_answer_to_another_request_takes_the_general_path() -> None:
    for fields in ({"offset": "7"}, {"msgId": "only"}, {"msgId": "x", "queueId": "one", "queueOffset": "0"}, {}):
        (command,) = FrameDecoder().feed(encode_head(Command(0, 5, 1, ext_fields=dict(fields))))
        if "queueId" in fields or "msgId" not in fields:
            assert command.fields is None
            assert command.ext_fields == fields
        else:
            assert command.all_fields() == fields
