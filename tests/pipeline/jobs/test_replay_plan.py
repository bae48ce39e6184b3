"""A replay's plan: chunks that cover everything once, and a state file that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ConfigError, FuseeError
from fusee.message.model import MessageQueue
from fusee.pipeline.jobs.catalog import ArchivedFile
from fusee.pipeline.jobs.replay_plan import Chunk, ReplayState, file_chunks, queue_chunks

QUEUES = st.dictionaries(
    st.builds(MessageQueue, st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"]), st.integers(0, 3)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair))),
    max_size=8,
)


@given(QUEUES, st.integers(1, 40))
def test_queue_chunks_cover_each_offset_once_in_order(ranges: dict[MessageQueue, tuple[int, int]], rows: int) -> None:
    seen: dict[MessageQueue, list[int]] = {queue: [] for queue in ranges}
    for chunk in queue_chunks(ranges, rows):
        starting, ending, assign = map(json.loads, (chunk.starting, chunk.ending, chunk.assign))
        covered = 0
        for topic, brokers in starting.items():
            for broker, queues in brokers.items():
                for queue_id, start in queues.items():
                    end = ending[topic][broker][queue_id]
                    assert int(queue_id) in assign[topic][broker]
                    seen[MessageQueue(topic, broker, int(queue_id))] += range(start, end)
                    covered += end - start
        assert 0 < covered <= max(rows, len(ranges))
    assert seen == {queue: list(range(*bounds)) for queue, bounds in ranges.items()}


@given(st.lists(st.tuples(st.integers(0, 23), st.integers(1, 30), st.sampled_from(["a", "b"])), max_size=20))
def test_file_chunks_have_every_file_of_the_topic_once_oldest_first(files: list[tuple[int, int, str]]) -> None:
    archived = [
        ArchivedFile(f"f{number}", rows, 1, topic, "2026-01-01", hour)
        for number, (hour, rows, topic) in enumerate(files)
    ]
    chunks = file_chunks(archived, ["a"], 40)
    hours = {one.path: one.hour for one in archived}
    found = [path for chunk in chunks for path in chunk.files]
    assert sorted(found) == sorted(one.path for one in archived if one.topic == "a")
    assert [hours[path] for path in found] == sorted(hours[path] for path in found)


def test_state_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    chunks = [Chunk(("a",), (f"f{number}",)) for number in range(3)]
    first = ReplayState.opened(path, {"to": "x"}, lambda: chunks)
    first.finished(0, (5, 1))
    again = ReplayState.opened(path, {"to": "x"}, lambda: pytest.fail("planned again"))
    assert again.name == first.name
    assert again.chunks == tuple(chunks)
    assert (again.done, again.sent, again.held) == (1, 5, 1)


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
