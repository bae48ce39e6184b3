"""Heartbeats as clients of several languages write them."""

from __future__ import annotations

import pytest

from fusee.errors import ProtocolError
from fusee.wire.bodies.heartbeat import decode_heartbeat

CPP = (
    b'{"clientID":"10.0.0.9@1@c2","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"G",'
    b'"messageModel":0,"subscriptionDataSet":[{"subString":"*","subVersion":"1794843438439","topic":"T"}]}]}\n'
)


def test_positions_of_the_cpp_client_are_read_as_names() -> None:
    [consumer] = decode_heartbeat(CPP).consumer_data_set
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "BROADCASTING"
    assert consumer.subscription_data_set[0].sub_version == 1794843438439


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", CPP.replace(b":4", b":6"), CPP.replace(b":4", b":-1"), CPP.replace(b"[{", b"[1,{")]
)
def test_what_is_no_heartbeat_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_heartbeat(body)
