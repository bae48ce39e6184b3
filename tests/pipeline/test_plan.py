from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from fusee.pipeline.plan import TASK_COUNT_LEAST, TASK_COUNT_MOST, pack, plan, tasks_for
from fusee.pipeline.ranges import QueueRange

ranges_of = st.lists(
    st.builds(
        lambda queue_id, start, count: QueueRange("t", "b", queue_id, start, start + count),
        st.integers(0, 9),
        st.integers(0, 1000),
        st.integers(0, 200_000),
    ),
    max_size=8,
)


def places(ranges: Iterable[QueueRange]) -> dict[tuple[int, int], int]:
    """How many ranges more, or less, there are from each place of a queue on."""
    steps: Counter[tuple[int, int]] = Counter()
    for each in ranges:
        steps[each.queue_id, each.start_offset] += 1
        steps[each.queue_id, each.end_offset] -= 1
    return {place: step for place, step in steps.items() if step}


@given(ranges_of, st.one_of(st.none(), st.integers(1, 50)), st.one_of(st.none(), st.integers(500, 100_000)))
def test_every_place_is_in_one_task_and_limits_hold(
    ranges: list[QueueRange], min_partitions: int | None, max_records: int | None
) -> None:
    tasks = plan(ranges, min_partitions=min_partitions, max_records=max_records)
    assert places(each for task in tasks for each in task) == places(ranges)
    total = sum(each.count for each in ranges)
    sizes = [sum(each.count for each in task) for task in tasks]
    assert all(sizes)
    assert len(tasks) >= min(total, min_partitions or 0)
    assert max(sizes, default=0) <= (max_records or TASK_COUNT_MOST)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(ranges_of, st.integers(1, 30))
def test_packing_keeps_order_within_a_queue(ranges: list[QueueRange], tasks: int) -> None:
    total = sum(each.count for each in ranges)
    if total >= tasks:
        assert len(pack(ranges, tasks)) == tasks


def test_a_task_has_a_stretch_of_every_queue() -> None:
    ranges = [QueueRange("t", "b", queue_id, 0, 100 * (queue_id + 1)) for queue_id in range(3)]
    assert [[(each.start_offset, each.end_offset) for each in task] for task in pack(ranges, 2)] == [
        [(0, 50), (0, 100), (0, 150)],
        [(50, 100), (100, 200), (150, 300)],
    ]
    other = QueueRange("t", "other", 0, 0, 600)
    assert [{each.broker_name for each in task} for task in pack([*ranges, other], 2)] == [{"b"}, {"other"}]


def test_a_small_batch_of_many_queues_is_one_task() -> None:
    ranges = [QueueRange("t", "b", queue_id, 0, 10) for queue_id in range(64)]
    assert len(plan(ranges)) == 1


def test_large_reads_get_tasks_of_a_good_size() -> None:
    assert tasks_for(0) == 0
    assert tasks_for(TASK_COUNT_LEAST) == 1
    assert tasks_for(200_000) == 4
    assert tasks_for(4_000_000) == 16
