"""Names of files: exactly RocketMQ's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.store import layout
from fusee.store.layout import StorePaths, base_offset_of, segment_name


@pytest.mark.parametrize(
    ("base_offset", "name"),
    [
        (0, "00000000000000000000"),
        (1073741824, "00000000001073741824"),
        (6000000, "00000000000006000000"),
        (2**63 - 1, "09223372036854775807"),
    ],
)
def test_segment_name_is_the_first_offset_in_twenty_digits(base_offset: int, name: str) -> None:
    assert segment_name(base_offset) == name


@given(st.integers(0, 2**63 - 1))
def test_base_offset_of_is_the_inverse_of_segment_name(base_offset: int) -> None:
    assert base_offset_of(segment_name(base_offset)) == base_offset


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_names_sort_as_their_offsets(offsets: list[int]) -> None:
    assert [base_offset_of(name) for name in sorted(map(segment_name, offsets))] == sorted(offsets)


@pytest.mark.parametrize(
    "name",
    ["", "0", "0000000000000000000", "000000000000000000000", "0000000000000000000a", "-0000000000000000001",
     "٠" * 20, "²" * 20, "00000000000000000000.bak", "+0000000000000000000", "0000000000_000000000"],
)  # fmt: skip
def test_base_offset_of_what_is_no_segment_is_none(name: str) -> None:
    assert base_offset_of(name) is None


def test_paths_are_those_of_the_reference() -> None:
    paths = StorePaths(Path("/s"))
    assert paths.commit_log == Path("/s/commitlog")
    assert paths.consume_queue("orders", 3) == Path("/s/consumequeue/orders/3")
    assert paths.batch_consume_queues == Path("/s/batchconsumequeue")
    assert paths.index == Path("/s/index")
    assert paths.config == Path("/s/config")
    assert (paths.checkpoint, paths.abort, paths.lock) == (Path("/s/checkpoint"), Path("/s/abort"), Path("/s/lock"))
    assert paths.transaction_states == Path("/s/transaction/states")
    assert paths.transaction_redo == Path("/s/transaction/redo")


def test_commit_log_may_lie_elsewhere() -> None:
    paths = StorePaths(Path("/s"), Path("/fast/log"))
    assert paths.commit_log == Path("/fast/log")
    assert paths.index == Path("/s/index")


def test_sizes_are_those_of_the_reference() -> None:
    assert (layout.CONSUME_ENTRY_SIZE, layout.BATCH_CONSUME_ENTRY_SIZE, layout.CHECKPOINT_SIZE) == (20, 46, 4096)
    assert (layout.INDEX_HEADER_SIZE, layout.INDEX_SLOT_SIZE, layout.INDEX_ENTRY_SIZE) == (40, 4, 20)
