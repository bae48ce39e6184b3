from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ConfigError
from fusee.message.model import MessageQueue
from fusee.pipeline.positions import StreamOffset
from fusee.pipeline.ranges import QueueRange

queues = st.builds(
    MessageQueue, st.sampled_from(["a", "b-c", "%RETRY%g"]), st.sampled_from(["x", "y"]), st.integers(0, 12)
)
positions = st.dictionaries(queues, st.integers(0, 1 << 62), max_size=12)


@given(st.one_of(st.none(), positions), positions)
def test_offset_survives_the_checkpoint(start: dict[MessageQueue, int] | None, to: dict[MessageQueue, int]) -> None:
    offset = StreamOffset(start, to)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(positions, st.randoms())
def test_equal_offsets_are_equal_text(to: dict[MessageQueue, int], chooser: object) -> None:
    shuffled = dict(sorted(to.items(), reverse=True))
    assert json.dumps(StreamOffset(to, to).to_json()) == json.dumps(StreamOffset(shuffled, shuffled).to_json())


def test_ranges_leave_out_what_is_empty() -> None:
    one, two, three = (MessageQueue("t", "b", number) for number in range(3))
    offset = StreamOffset({one: 5, two: 7}, {one: 9, two: 7, three: 4})
    assert offset.ranges() == [QueueRange("t", "b", 0, 5, 9)]
    assert StreamOffset(None, {one: 9}).ranges() == []


def test_offset_of_a_later_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="version 2, and this Fusee reads version 1"):
        StreamOffset.from_json({"version": 2, "from": None, "to": {}})
