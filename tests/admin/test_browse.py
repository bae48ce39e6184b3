from __future__ import annotations

import asyncio
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from fusee.admin.browse import merged
from fusee.client.received import ReceivedMessage
from fusee.message.model import StoredMessage

HOST = bytes(8)


class Pile:
    """Messages of one queue, given one by one."""

    def __init__(self, messages: list[ReceivedMessage]) -> None:
        self._messages = deque(messages)

    async def next(self) -> ReceivedMessage | None:
        return self._messages.popleft() if self._messages else None


def message(broker: str, queue_id: int, queue_offset: int, log_offset: int, store_ms: int) -> ReceivedMessage:
    stored = StoredMessage(
        topic="orders",
        queue_id=queue_id,
        queue_offset=queue_offset,
        log_offset=log_offset,
        body=b"",
        properties_bytes=b"",
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host_bytes=HOST,
        store_timestamp_ms=store_ms,
        store_host_bytes=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
    )
    return ReceivedMessage.of(stored, broker)


async def collected(piles: list[Pile], limit: int | None = None) -> list[ReceivedMessage]:
    return [each async for each in merged(piles, limit)]


writes = st.lists(
    st.tuples(st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 2), st.integers(0, 1)), max_size=30
)


@given(writes)
def test_merged_gives_every_broker_in_the_order_of_its_log(stored: list[tuple[str, int, int]]) -> None:
    """Each write goes to a queue of a broker, in the millisecond of the one before or later."""
    now_ms, by_queue, every = 1_000, dict[tuple[str, int], list[ReceivedMessage]](), list[ReceivedMessage]()
    for log_offset, (broker, queue_id, step_ms) in enumerate(stored):
        now_ms += step_ms
        pile = by_queue.setdefault((broker, queue_id), [])
        pile.append(message(broker, queue_id, len(pile), log_offset, now_ms))
        every.append(pile[-1])
    found = asyncio.run(collected([Pile(pile) for pile in by_queue.values()]))
    assert [each.store_timestamp_ms for each in found] == [each.store_timestamp_ms for each in every]
    for name in ("broker-a", "broker-b"):
        assert [each for each in found if each.broker_name == name] == [
            each for each in every if each.broker_name == name
        ]


def test_merged_stops_at_the_limit() -> None:
    piles = [Pile([message("broker-a", 0, number, number, number + 1) for number in range(5)])]
    assert len(asyncio.run(collected(piles, 3))) == 3
    assert asyncio.run(collected([])) == []
