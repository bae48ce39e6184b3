"""What a send came to."""

from __future__ import annotations

import pytest

from fusee.client.results import STATUS_OF_CODE, Durability, SendResult, SendStatus
from fusee.message.model import MessageQueue
from fusee.wire.codes import ResponseCode

QUEUE = MessageQueue("orders", "broker-a", 1)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, SendStatus.SEND_OK),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_every_code_of_a_stored_message_has_its_status(code: int, status: SendStatus) -> None:
    assert STATUS_OF_CODE[code] is status
    assert status.value == status.name


def test_codes_of_failures_have_no_status() -> None:
    assert set(STATUS_OF_CODE) == {0, 10, 11, 12}


def test_result_of_one_message_has_one_id() -> None:
    result = SendResult(SendStatus.SEND_OK, "U1", "O1", QUEUE, 7, durability=Durability.DISK)
    assert (result.topic, result.message_ids, result.offset_ids) == ("orders", ("U1",), ("O1",))
    assert (result.queue_offset, result.durability.value) == (7, "disk")


def test_result_of_a_batch_gives_the_parts_of_the_joined_ids() -> None:
    result = SendResult(SendStatus.SEND_OK, "U1,U2", "O1,O2", QUEUE, 7)
    assert (result.message_ids, result.offset_ids) == (("U1", "U2"), ("O1", "O2"))


def test_result_cannot_be_changed() -> None:
    result = SendResult(SendStatus.SEND_OK, "U1", "O1", QUEUE, 7)
    with pytest.raises(AttributeError):
        result.queue_offset = 8  # type: ignore[misc]
