"""How much a batch may have; and, by a model of Spark, that nothing is lost or doubled whatever happens between."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from fusee.message.model import MessageQueue
from fusee.pipeline.admission import Bounds, Loss, Patience, advance, backlog, places_for, share
from fusee.pipeline.positions import StreamOffset

ONE, TWO, THREE = (MessageQueue("t", "b", number) for number in range(3))


def test_a_new_queue_begins_at_its_first_message() -> None:
    ready = backlog({ONE: 5}, {ONE: Bounds(0, 8), TWO: Bounds(3, 9)})
    assert (ready.start, ready.end, ready.losses) == ({ONE: 5, TWO: 3}, {ONE: 8, TWO: 9}, ())
    assert ready.counts == {ONE: 3, TWO: 6}


def test_a_queue_that_vanished_keeps_its_place() -> None:
    ready = backlog({ONE: 5, TWO: 7}, {ONE: Bounds(0, 8)})
    assert advance(ready, ready.counts).to == {ONE: 8, TWO: 7}


def test_expired_messages_are_a_loss_and_the_stream_goes_on_at_the_first() -> None:
    ready = backlog({ONE: 5}, {ONE: Bounds(7, 9)})
    assert ready.losses == (Loss(ONE, 5, 7),)
    assert ready.start == {ONE: 7}
    assert "begins at 7 now, and 5 was to be read next" in str(ready.losses[0])


def test_a_queue_that_is_shorter_than_it_was_is_a_loss() -> None:
    ready = backlog({ONE: 5}, {ONE: Bounds(0, 3)})
    assert ready.losses == (Loss(ONE, 5, 3),)
    assert (ready.start, ready.counts) == ({ONE: 3}, {})


def test_a_slave_that_is_behind_is_no_loss() -> None:
    ready = backlog({ONE: 5}, {ONE: Bounds(0, 3, is_behind=True)})
    assert (ready.losses, ready.start, ready.counts) == ((), {ONE: 5}, {})


def test_available_now_ends_where_it_was_frozen() -> None:
    ready = backlog({ONE: 5}, {ONE: Bounds(0, 90), TWO: Bounds(0, 4)}, {ONE: 20})
    assert ready.counts == {ONE: 15}


counts_of = st.dictionaries(st.sampled_from([ONE, TWO, THREE]), st.integers(1, 10_000), min_size=1)


@example({ONE: 1, TWO: 1, THREE: 4}, 3)
@given(counts_of, st.integers(1, 20_000))
def test_shares_are_exact_and_nobody_gets_more_than_there_is(counts: dict[MessageQueue, int], most: int) -> None:
    shares = share(counts, most)
    assert sum(shares.values()) == min(most, sum(counts.values()))
    assert all(0 <= shares[queue] <= counts[queue] for queue in counts)
    if most >= len(counts):
        assert all(shares.values())


def test_shares_follow_the_backlog() -> None:
    assert share({ONE: 900, TWO: 100}, 100) == {ONE: 90, TWO: 10}


def test_bytes_become_places_by_the_sizes_sampled() -> None:
    assert places_for(10_000, {ONE: 100, TWO: 100}, {ONE: 100.0, TWO: 300.0}) == 50
    assert places_for(1 << 30, {ONE: 100}, {}) == 100
    assert places_for(1, {ONE: 100}, {ONE: 1000.0}) == 1


def test_patience_waits_for_enough_but_not_for_ever() -> None:
    patience = Patience(10, 1_000, now=0.0)
    assert not patience.is_enough(9, 0.5)
    assert patience.is_enough(10, 0.6)
    assert not patience.is_enough(9, 1.5)
    assert patience.is_enough(1, 1.6)


class ModelOfSpark:
    """Micro-batches as Spark runs them: end to the log, batch, commit log; and what a crash leaves of them."""

    def __init__(self) -> None:
        self.offset_log: list[str] = []
        self.committed = 0
        self.output: dict[int, list[tuple[MessageQueue, int]]] = {}

    def rows(self) -> Counter[tuple[MessageQueue, int]]:
        return Counter(row for batch in self.output.values() for row in batch)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([ONE, TWO, THREE]), st.integers(1, 20)),
        st.tuples(st.just("batch"), st.one_of(st.none(), st.integers(1, 15)), st.sampled_from(["", "log", "run"])),
        st.tuples(st.just("away"), st.sampled_from([ONE, TWO, THREE]), st.booleans()),
        st.tuples(st.just("ask"), st.none(), st.none()),
    ),
    max_size=40,
)


@given(st.booleans(), st.lists(st.integers(0, 10), min_size=2, max_size=2), steps)
def test_no_row_is_lost_or_doubled_whatever_happens_between(
    is_latest: bool, lengths: list[int], history: list[tuple[str, Any, Any]]
) -> None:
    """Crashes after the offset log and after the run; the initial offset is asked anew at each start of the query."""
    log = {ONE: lengths[0], TWO: lengths[1]}  # THREE appears when something is sent to it
    away: set[MessageQueue] = set()
    spark = ModelOfSpark()
    begin: dict[MessageQueue, int] | None = None
    memo: str | None = None

    def initial() -> str:
        nonlocal memo
        if memo is None:
            memo = json.dumps(StreamOffset(None, dict(log) if is_latest else dict.fromkeys(log, 0)).to_json())
        return memo

    def run(end_text: str) -> None:
        rows = StreamOffset.from_json(json.loads(end_text)).ranges()
        spark.output[len(spark.offset_log) - 1] = [
            (MessageQueue(each.topic, each.broker_name, each.queue_id), place)
            for each in rows
            for place in range(each.start_offset, each.end_offset)
        ]

    def batch(most: int | None, crash: str) -> None:
        nonlocal memo, begin
        if spark.committed < len(spark.offset_log):  # as after a restart: the batch in the log is run again
            run(spark.offset_log[-1])
            spark.committed += 1
            return
        start_text = spark.offset_log[-1] if spark.offset_log else initial()
        start = StreamOffset.from_json(json.loads(start_text))
        ready = backlog(start.to, {queue: Bounds(0, end) for queue, end in log.items() if queue not in away})
        assert not ready.losses
        if not ready.total and ready.start == dict(start.to):
            return
        end = advance(ready, ready.counts if most is None else share(ready.counts, most))
        if begin is None:
            begin = dict(start.to)
        spark.offset_log.append(json.dumps(end.to_json()))
        if crash == "log":
            memo = None
            return
        run(spark.offset_log[-1])
        if crash == "run":
            memo = None
            return
        spark.committed += 1

    for kind, first, second in history:
        if kind == "send":
            log[first] = log.get(first, 0) + second
        elif kind == "away":
            (away.add if second else away.discard)(first)
        elif kind == "ask":
            initial()
        else:
            batch(first, second)
    away.clear()
    for _ in range(3):
        batch(None, "")
    expected = Counter(
        (queue, place) for queue, end in log.items() for place in range((begin or {}).get(queue, 0), end)
    )
    if begin is None:
        assert not spark.rows()
    else:
        assert spark.rows() == expected
