"""Batches on their way."""

from __future__ import annotations

import asyncio

from fusee.client.gathered_entries import Entry
from fusee.client.outgoing_batch import GatheredBatch, batch_properties
from fusee.message.batch import BatchElement, split_batch


def test_batch_carries_what_was_gathered_and_names_all_of_it() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        entries: list[Entry] = [(loop.create_future(), f"ID{place}", place, b"x", "p") for place in range(3)]
        batch = GatheredBatch.joined(entries, loop=loop)
        assert batch.unique_ids == ["ID0", "ID1", "ID2"]
        assert split_batch(batch.body) == [BatchElement(place, b"x", b"p") for place in range(3)]

    asyncio.run(scene())


def test_properties_of_a_batch_are_its_own_id_and_what_all_share() -> None:
    assert batch_properties("ID") == "UNIQ_KEY\x01ID\x02WAIT\x01true\x02"
    assert batch_properties("ID", wait_stored=False, tag="t", keys=["a", "b"]) == (
        "UNIQ_KEY\x01ID\x02WAIT\x01false\x02TAGS\x01t\x02KEYS\x01a b\x02"
    )


def test_very_many_keys_are_left_to_the_messages() -> None:
    assert "KEYS" not in batch_properties("ID", keys=[f"key-{number}" for number in range(2_000)])
