"""Batches on their way."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from fusee.client.outgoing_batch import GatheredBatch, batch_properties
from fusee.message.batch import BatchElement, split_batch

FLAGS = st.sampled_from((0, 1)) | st.integers(-(2**31), 2**31 - 1)
ELEMENTS = st.lists(
    st.tuples(FLAGS, st.binary(max_size=40), st.text(max_size=20)) | st.tuples(FLAGS, st.just(b"same"), st.just("size"))
)


@given(ELEMENTS)
def test_gathered_messages_are_joined_as_any_batch_is(elements: list[tuple[int, bytes, str]]) -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        entries = [(loop.create_future(), str(place), *element) for place, element in enumerate(elements)]
        batch = GatheredBatch.joined(entries, loop=loop)
        assert batch.unique_ids == [entry[1] for entry in entries]
        assert batch.futures == [entry[0] for entry in entries]
        assert split_batch(batch.body) == [
            BatchElement(flag, body, properties.encode()) for flag, body, properties in elements
        ]

    asyncio.run(scene())


def test_properties_of_a_batch_are_its_own_id_and_what_all_share() -> None:
    assert batch_properties("ID") == "UNIQ_KEY\x01ID\x02WAIT\x01true\x02"
    assert batch_properties("ID", wait_stored=False, tag="t", keys=["a", "b"]) == (
        "UNIQ_KEY\x01ID\x02WAIT\x01false\x02TAGS\x01t\x02KEYS\x01a b\x02"
    )


def test_very_many_keys_are_left_to_the_messages() -> None:
    assert "KEYS" not in batch_properties("ID", keys=[f"key-{number}" for number in range(2_000)])
