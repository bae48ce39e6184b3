"""A witness that sees nothing proves nothing: each promise, broken on purpose."""

from __future__ import annotations

import pytest

from fusee.message.model import MessageQueue
from tests.simulation.witness import PromiseBrokenError, Witness

QUEUE = MessageQueue("orders", "broker-a", 0)


def witness(*, ordered: bool = False) -> Witness:
    return Witness(lambda: 1.0, ordered=ordered)


def consume(seen: Witness, *offsets: int, member: str = "a", succeeded: bool = True) -> None:
    for queue_offset in offsets:
        seen.handed(member, QUEUE, queue_offset, queue_offset)
        seen.finished(member, QUEUE, queue_offset, queue_offset, succeeded=succeeded)


def test_everything_in_order_is_no_objection() -> None:
    for ordered in (False, True):
        seen = witness(ordered=ordered)
        for number in range(4):
            seen.sent(number, QUEUE, number)
        consume(seen, 0, 1)
        seen.committed(QUEUE, 2, "a")
        seen.committed(QUEUE, 2, "b")
        consume(seen, 2, 3, member="b")
        consume(seen, 1)
        seen.committed(QUEUE, 4, "b")
        seen.check_end()


def test_message_that_is_never_consumed_is_lost() -> None:
    seen = witness()
    seen.sent(5, QUEUE, 0)
    seen.sent(6, QUEUE, 1)
    consume(seen, 5)
    with pytest.raises(PromiseBrokenError, match="lost: message 6"):
        seen.check_end()


def test_message_that_only_failed_is_lost() -> None:
    seen = witness()
    seen.sent(0, QUEUE, 0)
    consume(seen, 0, succeeded=False)
    with pytest.raises(PromiseBrokenError, match="lost"):
        seen.check_end()


def test_commit_beyond_a_message_in_hand_is_skipping() -> None:
    seen = witness()
    consume(seen, 0, 2)
    seen.handed("a", QUEUE, 1, 1)
    with pytest.raises(PromiseBrokenError, match="skipped: a commits 3, but 1 is not finished"):
        seen.committed(QUEUE, 3, "a")


def test_commit_beyond_a_message_that_failed_is_skipping_only_in_order() -> None:
    seen = witness()
    consume(seen, 0, succeeded=False)
    seen.committed(QUEUE, 1, "a")
    seen = witness(ordered=True)
    consume(seen, 0, succeeded=False)
    with pytest.raises(PromiseBrokenError, match="skipped"):
        seen.committed(QUEUE, 1, "a")


@pytest.mark.parametrize("member", ["a", "b"])
def test_commit_of_less_is_going_back(member: str) -> None:
    times = iter(range(1000))
    seen = Witness(lambda: next(times), ordered=False)
    consume(seen, 0, 1)
    seen.committed(QUEUE, 2, "a")
    with pytest.raises(PromiseBrokenError, match=f"back: {member} commits 1 after 2"):
        seen.committed(QUEUE, 1, member)


def test_commit_of_less_within_one_exchange_is_a_race_of_two_members() -> None:
    seen = witness()
    consume(seen, 0, 1)
    seen.committed(QUEUE, 2, "a")
    seen.committed(QUEUE, 1, "b")
    assert seen.races == 1
    seen.committed(QUEUE, 2, "b")
    with pytest.raises(PromiseBrokenError, match="back"):
        seen.committed(QUEUE, 1, "b")
    ordered = witness(ordered=True)
    consume(ordered, 0, 1)
    ordered.committed(QUEUE, 2, "a")
    with pytest.raises(PromiseBrokenError, match="back"):
        ordered.committed(QUEUE, 1, "b")


def test_commit_of_less_after_a_broker_lost_its_table_is_none() -> None:
    seen = witness()
    consume(seen, 0, 1)
    seen.committed(QUEUE, 2, "a")
    seen.restarted("broker-b", {})
    with pytest.raises(PromiseBrokenError, match="back"):
        seen.committed(QUEUE, 1, "a")
    seen.restarted("broker-a", {})
    seen.committed(QUEUE, 1, "a")
    with pytest.raises(PromiseBrokenError, match="nobody committed"):
        seen.restarted("broker-a", {QUEUE: 2})


def test_message_given_before_an_earlier_one_is_consumed_breaks_the_order() -> None:
    seen = witness(ordered=True)
    consume(seen, 0)
    seen.handed("a", QUEUE, 1, 1)
    with pytest.raises(PromiseBrokenError, match="order: 2 was given to a, but 1 is not consumed"):
        seen.handed("a", QUEUE, 2, 2)


def test_two_members_at_work_on_one_queue_are_not_alone() -> None:
    seen = witness(ordered=True)
    seen.handed("a", QUEUE, 0, 0)
    with pytest.raises(PromiseBrokenError, match="alone: 0 was given to b while a is at work"):
        seen.handed("b", QUEUE, 0, 0)


def test_member_at_work_while_the_broker_was_started_again_may_finish_and_no_more() -> None:
    seen = witness(ordered=True)
    seen.handed("a", QUEUE, 0, 0)
    seen.restarted("broker-a", {})
    seen.handed("b", QUEUE, 0, 0)
    seen.finished("a", QUEUE, 0, 0, succeeded=True)
    with pytest.raises(PromiseBrokenError, match="alone: 1 was given to a while b is at work"):
        seen.handed("a", QUEUE, 1, 1)


def test_member_that_cannot_see_the_end_of_the_broker_goes_on_for_its_lease() -> None:
    now = 0.0
    seen = Witness(lambda: now, ordered=True)
    consume(seen, 0, 1)
    seen.handed("a", QUEUE, 0, 0)
    seen.restarted("broker-a", {}, {"a"})
    seen.handed("b", QUEUE, 0, 0)
    seen.finished("a", QUEUE, 0, 0, succeeded=True)
    seen.handed("a", QUEUE, 1, 1)
    seen.finished("a", QUEUE, 1, 1, succeeded=True)
    now = 31.0
    with pytest.raises(PromiseBrokenError, match="alone: 2 was given to a while b is at work"):
        seen.handed("a", QUEUE, 2, 2)


def test_member_that_is_gone_is_no_longer_at_work() -> None:
    seen = witness(ordered=True)
    seen.handed("a", QUEUE, 0, 0)
    seen.gone("a")
    consume(seen, 0, member="b")


def test_objection_shows_what_went_before() -> None:
    seen = witness()
    consume(seen, 0)
    seen.happened("the wire was cut")
    with pytest.raises(PromiseBrokenError, match="a consumed 0(.|\n)*the wire was cut"):
        seen.committed(QUEUE, 5, "a")


def test_digest_is_of_what_happened() -> None:
    def run(number: int) -> str:
        seen = witness()
        seen.sent(number, QUEUE, 0)
        return seen.digest

    assert run(1) == run(1)
    assert run(1) != run(2)
