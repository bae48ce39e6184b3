"""A replay's plan: chunks that cover everything once, and a state file that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ConfigError, FuseeError
from fusee.message.model import MessageQueue
from fusee.pipeline.jobs.replay_plan import Block, Chunk, ReplayState, block_chunks, queue_chunks
from fusee.pipeline.positions import flat

QUEUES = st.dictionaries(
    st.builds(MessageQueue, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 3)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair))),
    max_size=8,
)


def ranges_of(chunk: Chunk) -> dict[MessageQueue, tuple[int, int]]:
    starting, ending = flat(json.loads(chunk.starting)), flat(json.loads(chunk.ending))
    assigned = {
        MessageQueue(topic, broker, queue_id)
        for topic, brokers in json.loads(chunk.assign).items()
        for broker, queue_ids in brokers.items()
        for queue_id in queue_ids
    }
    assert starting.keys() == ending.keys() == assigned
    return {queue: (start, ending[queue]) for queue, start in starting.items()}


@given(QUEUES, st.integers(1, 40))
def test_queue_chunks_cover_each_offset_once_in_order(ranges: dict[MessageQueue, tuple[int, int]], rows: int) -> None:
    seen: dict[MessageQueue, list[int]] = {queue: [] for queue in ranges}
    for chunk in queue_chunks(ranges, rows):
        covered = 0
        for queue, (start, end) in ranges_of(chunk).items():
            seen[queue] += range(start, end)
            covered += end - start
        assert 0 < covered <= rows
    assert seen == {queue: list(range(*bounds)) for queue, bounds in ranges.items()}


def test_queue_chunks_when_queues_are_more_than_rows_take_them_in_turn() -> None:
    ranges = {MessageQueue("a", "x", queue_id): (0, 2) for queue_id in range(3)}
    taken = [{queue.queue_id: found for queue, found in ranges_of(one).items()} for one in queue_chunks(ranges, 2)]
    assert taken == [{0: (0, 1), 1: (0, 1)}, {2: (0, 1), 0: (1, 2)}, {1: (1, 2), 2: (1, 2)}]


HELD = st.dictionaries(
    st.builds(MessageQueue, st.sampled_from(["a", "b"]), st.just("x"), st.integers(0, 2)),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 23)), max_size=8),
)


@given(HELD, st.integers(4, 20))
def test_block_chunks_have_every_block_once_oldest_first_and_queues_in_order(
    held: dict[MessageQueue, list[tuple[int, int, int]]], rows_per_chunk: int
) -> None:
    """Blocks with gaps between them, of hours that a clock may have set back."""
    blocks = []
    for queue, found in held.items():
        at = 0
        for gap, rows, hour in found:
            hours = (f"2026-01-01/{hour:02}",)
            blocks.append(Block(queue, at + gap, at + gap + rows - 1, rows, hours))
            at += gap + rows
    inside: list[Block] = []
    for chunk in block_chunks(blocks, rows_per_chunk):
        ranges = ranges_of(chunk)
        mine = [
            one for one in blocks if one.queue in ranges and ranges[one.queue][0] <= one.first < ranges[one.queue][1]
        ]
        assert 0 < sum(one.rows for one in mine) <= rows_per_chunk
        assert all(ranges[one.queue][0] <= one.first and one.last < ranges[one.queue][1] for one in mine)
        assert set(chunk.hours) == {hour for one in mine for hour in one.hours}
        inside += sorted(mine, key=lambda one: one.first)
    assert len(inside) == len(blocks)
    for queue, found in held.items():
        mine = [one for one in inside if one.queue == queue]
        assert mine == sorted(mine, key=lambda one: one.first)
        assert len(mine) == len(found)
    if all([hour for *_, hour in found] == sorted(hour for *_, hour in found) for found in held.values()):
        first_hours = [min(chunk.hours) for chunk in block_chunks(blocks, rows_per_chunk)]
        assert first_hours == sorted(first_hours)


CHUNKS = [Chunk("{}", "{}", "{}", (f"2026-01-0{number}/05",)) for number in range(1, 4)]


def test_state_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    first = ReplayState.opened(path, {"to": "x"}, lambda: CHUNKS)
    first.finished(0, (5, 1))
    again = ReplayState.opened(path, {"to": "x"}, lambda: pytest.fail("planned again"))
    assert again.name == first.name
    assert again.chunks == tuple(CHUNKS)
    assert (again.done, again.sent, again.held) == (1, 5, 1)


def test_state_whose_chunks_are_larger_than_the_rate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ReplayState.opened(path, {}, lambda: CHUNKS, rows_per_chunk=100)
    with pytest.raises(ConfigError, match="go on at 100 or more, or without a rate"):
        ReplayState.opened(path, {}, list, rows_per_chunk=20, rate=20)
    for rate in (None, 100.0, 2000.0):
        assert ReplayState.opened(path, {}, list, rate=rate).chunks == tuple(CHUNKS)


def test_state_of_another_replay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    ReplayState.opened(path, {"to": "x"}, list)
    with pytest.raises(ConfigError, match="another replay"):
        ReplayState.opened(path, {"to": "y"}, list)


def test_state_that_is_damaged_is_told(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"version": 1')
    with pytest.raises(FuseeError, match="not the state of a replay"):
        ReplayState.opened(path, {}, list)
