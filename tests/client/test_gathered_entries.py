"""Gathered messages as one body, and the result of all as one for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.gathered_entries import deliver_each, join_entries, without_cancelled
from fusee.client.results import Durability, SendResult, SendStatus
from fusee.message.batch import BatchElement, split_batch
from fusee.message.model import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 2)
FLAGS = st.sampled_from((0, 1)) | st.integers(-(2**31), 2**31 - 1)
ELEMENTS = st.lists(
    st.tuples(FLAGS, st.binary(max_size=40), st.text(max_size=20)) | st.tuples(FLAGS, st.just(b"same"), st.just("size"))
)


def with_entries(count: int, scene: Callable[[list[Any]], object]) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        scene([(loop.create_future(), f"ID{place}", 0, b"%d" % place, "a\x01b\x02") for place in range(count)])

    asyncio.run(play())


def result_of(offset_ids: str) -> SendResult:
    return SendResult(
        SendStatus.FLUSH_DISK_TIMEOUT, "ID0,ID1,ID2", offset_ids, QUEUE, 7, "t", "r", False, Durability.DISK
    )


@given(ELEMENTS)
def test_body_is_that_of_any_batch(elements: list[tuple[int, bytes, str]]) -> None:
    entries: list[Any] = [(None, "", *element) for element in elements]
    assert split_batch(join_entries(entries)) == [
        BatchElement(flag, body, properties.encode()) for flag, body, properties in elements
    ]


@pytest.mark.parametrize("flag", [2**31, -(2**31) - 1])
def test_flag_that_is_no_32_bit_number_is_refused(flag: int) -> None:
    entries: list[Any] = [(None, "", flag, b"x", "")]
    with pytest.raises(Exception, match=r"format|too large|convert"):
        join_entries(entries)


def test_properties_over_their_field_are_refused() -> None:
    entries: list[Any] = [(None, "", 0, b"x", "a" * 65_536)]
    with pytest.raises(OverflowError):
        join_entries(entries)
    entries = [(None, "", 0, b"x", "a" * 65_535)]
    assert len(join_entries(entries)) == 22 + 1 + 65_535


@pytest.mark.parametrize("entry", [(None, "", 0, None, ""), (None, "", 0, b"x", None), (None, "", 0, "x", "")])
def test_what_is_no_entry_is_refused(entry: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        join_entries([entry])


def test_everybody_who_waits_gets_his_own_part() -> None:
    def scene(entries: list[Any]) -> None:
        entries[1][0].cancel()
        deliver_each(entries, result_of("A,B,C"))
        assert [entry[0].result() for entry in entries if not entry[0].cancelled()] == [
            SendResult(
                SendStatus.FLUSH_DISK_TIMEOUT, f"ID{place}", offset_id, QUEUE, 7 + place, "t", "r", False,
                Durability.DISK,
            )
            for place, offset_id in ((0, "A"), (2, "C"))
        ]  # fmt: skip

    with_entries(3, scene)


def test_result_without_parts_is_that_of_each() -> None:
    def scene(entries: list[Any]) -> None:
        whole = result_of("ONE")
        entries[2][0].cancel()
        deliver_each(entries, whole)
        assert entries[0][0].result() is entries[1][0].result() is whole

    with_entries(3, scene)


def test_cancelled_messages_stay_behind() -> None:
    def scene(entries: list[Any]) -> None:
        assert without_cancelled(entries) is entries
        entries[1][0].cancel()
        assert without_cancelled(entries) == [entries[0], entries[2]]

    with_entries(3, scene)
