"""Both ways to pack a batch say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.batch import BatchElement
from fusee.store.new_batch import pack_batch, pack_plain_batch
from fusee.store.new_record import NewRecord

ELEMENTS = st.builds(BatchElement, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=60), st.binary(max_size=60))


@given(st.lists(ELEMENTS, min_size=1, max_size=9), st.integers(0, 2**40), st.integers(0, 2**40))
def test_plain_way_gives_the_bytes_of_the_general_one(
    elements: list[BatchElement], queue_offset: int, log_offset: int
) -> None:
    record = NewRecord("orders", 3, b"", b"", 0, 1, 1_700_000_000_000, reconsume_times=2)
    parts, log_offsets = pack_batch(record, elements, queue_offset, log_offset, 17, seals=False)
    sizes = [len(part) for part in parts]
    plain = pack_plain_batch(record, elements, sizes, b"\x06orders", queue_offset, log_offset, 17)
    assert b"".join(plain[0]) == b"".join(parts)
    assert plain[1] == log_offsets


def test_number_that_does_not_fit_is_an_error() -> None:
    record = NewRecord("orders", 2**31, b"")
    with pytest.raises(MessageError, match="does not fit"):
        pack_plain_batch(record, [BatchElement(0, b"", b"")], [97], b"\x06orders", 0, 0, 17)
