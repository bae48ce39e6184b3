"""The history finds every kind of broken promise, and lets pass what is explained."""

from __future__ import annotations

import pytest

from fusee.message.model import MessageQueue
from tests.faults.history import AFTERMATH_S, EVERYTHING, SAVED_WITHIN_S, History

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-b", 1)
GROUPS = ("workers",)


class Told:
    """A history, and the time."""

    def __init__(self) -> None:
        self.time = 100.0
        self.history = History(lambda: self.time)

    def send(self, number: int, queue_offset: int, queue: MessageQueue = QUEUE, *, is_replicated: bool = True) -> str:
        message = f"any:{number}"
        self.history.sending(message)
        self.history.acknowledged(message, queue, queue_offset, is_replicated=is_replicated)
        return message

    def hand(self, message: str, queue_offset: int, queue: MessageQueue = QUEUE) -> None:
        self.history.handed("workers", queue, queue_offset, message, ordered=True)

    def store(self, message: str, queue_offset: int, queue: MessageQueue = QUEUE) -> None:
        self.history.audited(queue, queue_offset, message)

    def pass_through(self, count: int) -> list[str]:
        """So many messages are sent, consumed and found, as they should be."""
        messages = [self.send(number, number) for number in range(count)]
        for queue_offset, message in enumerate(messages):
            self.hand(message, queue_offset)
            self.store(message, queue_offset)
        return messages

    def fault(self, *touches: str, seconds: float = 1.0, forgets: bool = False, loses_disk: bool = False) -> None:
        event = self.history.began("a fault", touches, forgets=forgets, loses_disk=loses_disk)
        self.time += seconds
        self.history.ended(event)

    @property
    def broken(self) -> list[str]:
        """The kinds of promises that were broken."""
        return [violation.split(": ")[1] for violation in self.history.violations]

    def end(self) -> list[str]:
        self.history.check_end(GROUPS)
        return self.broken


@pytest.fixture
def told() -> Told:
    return Told()


def test_history_when_all_is_well_objects_to_nothing(told: Told) -> None:
    told.pass_through(5)
    for committed_offset in (0, 2, 2, 5):
        told.history.committed("workers", QUEUE, committed_offset)
    assert told.end() == []
    assert told.history.acknowledged_count == told.history.stored_count == 5
    assert not told.history.duplicates


def test_acknowledged_message_that_is_gone_is_lost(told: Told) -> None:
    told.pass_through(2)
    told.hand(told.send(2, 2), 2)
    assert told.end() == ["lost"]


def test_acknowledged_message_in_another_place_is_lost(told: Told) -> None:
    message = told.send(0, 0)
    told.hand(message, 1, OTHER)
    told.store(message, 1, OTHER)
    assert "lost" in told.end()


@pytest.mark.parametrize(("is_replicated", "expected"), [(False, []), (True, ["lost"])])
def test_lost_disk_excuses_only_what_no_slave_had(told: Told, is_replicated: bool, expected: list[str]) -> None:
    told.send(0, 0, is_replicated=is_replicated)
    told.fault("broker-a", loses_disk=True)
    assert told.end() == expected
    assert told.history.excused == (not is_replicated)


def test_lost_disk_excuses_nothing_of_another_group_or_later(told: Told) -> None:
    told.send(0, 0, OTHER, is_replicated=False)
    told.fault("broker-a", loses_disk=True)
    told.time += 1
    told.send(1, 0, is_replicated=False)
    assert told.end() == ["lost", "lost"]


def test_given_up_message_may_be_stored_or_not(told: Told) -> None:
    for number in range(2):
        told.history.sending(f"any:{number}")
        told.history.failed(f"any:{number}")
    told.hand("any:1", 0)
    told.store("any:1", 0)
    assert told.end() == []


def test_stored_message_that_no_member_got_is_undelivered(told: Told) -> None:
    told.store(told.send(0, 0), 0)
    assert told.end() == ["undelivered"]


def test_place_that_changes_its_message_is_moved(told: Told) -> None:
    told.pass_through(1)
    told.history.sending("any:9")
    told.store("any:9", 0)
    assert "moved" in told.broken


def test_acknowledgements_that_go_back_are_out_of_order(told: Told) -> None:
    told.send(0, 5)
    told.send(1, 4)
    assert told.broken == ["order"]


def test_member_that_is_handed_a_later_message_first_is_out_of_order(told: Told) -> None:
    first, second = told.send(0, 0), told.send(1, 1)
    told.hand(second, 1)
    told.hand(first, 0)
    assert told.broken == ["order"]


def test_message_that_nobody_sent_is_invented(told: Told) -> None:
    told.hand("any:7", 0)
    assert told.broken == ["invented"]


def test_committed_offset_that_goes_back_without_a_death_is_found(told: Told) -> None:
    told.history.committed("workers", QUEUE, 5)
    told.fault("broker-a")
    told.history.committed("workers", QUEUE, 4)
    assert told.broken == ["back"]


def test_committed_offset_that_goes_back_by_a_death_of_another_group_is_found(told: Told) -> None:
    told.history.committed("workers", QUEUE, 5)
    told.fault("broker-b", forgets=True)
    told.history.committed("workers", QUEUE, 4)
    assert told.broken == ["back"]


@pytest.mark.parametrize(("found", "expected"), [(5, []), (4, ["back"])])
def test_committed_offset_after_a_death_is_at_least_what_was_saved(told: Told, found: int, expected: list[str]) -> None:
    told.history.committed("workers", QUEUE, 5)
    told.time += SAVED_WITHIN_S + 1
    told.history.committed("workers", QUEUE, 9)
    told.fault("broker-a", forgets=True)
    told.history.committed("workers", QUEUE, found)
    assert told.broken == expected
    assert told.history.set_back["broker-a"] == (not expected)


def test_message_stored_twice_without_a_cause_is_a_duplicate(told: Told) -> None:
    (message,) = told.pass_through(1)
    told.hand(message, 0, OTHER)
    told.store(message, 0, OTHER)
    assert told.end() == ["duplicate"]


def test_message_stored_twice_while_a_fault_lasted_is_counted(told: Told) -> None:
    told.history.sending("any:0")
    told.fault("broker-b")
    told.history.acknowledged("any:0", QUEUE, 0, is_replicated=True)
    for queue in (QUEUE, OTHER):
        told.hand("any:0", 0, queue)
        told.store("any:0", 0, queue)
    assert told.end() == []
    assert told.history.duplicates == {"stored again by a retry: a fault": 1}


def test_message_stored_twice_while_only_name_servers_failed_is_a_duplicate(told: Told) -> None:
    told.history.sending("any:0")
    told.fault("name servers")
    told.history.acknowledged("any:0", QUEUE, 0, is_replicated=True)
    for queue in (QUEUE, OTHER):
        told.hand("any:0", 0, queue)
        told.store("any:0", 0, queue)
    assert told.end() == ["duplicate"]


def test_message_handed_out_twice_without_a_cause_is_a_duplicate(told: Told) -> None:
    told.fault("broker-a")
    told.time += AFTERMATH_S + 1
    (message,) = told.pass_through(1)
    told.fault("broker-b")
    told.hand(message, 0)
    assert told.broken == ["duplicate"]


@pytest.mark.parametrize("touched", ["broker-a", EVERYTHING])
def test_message_handed_out_twice_around_a_fault_is_counted(told: Told, touched: str) -> None:
    (message,) = told.pass_through(1)
    told.fault(touched)
    told.hand(message, 0)
    assert told.end() == []
    assert told.history.duplicates == {"handed out again: a fault": 1}
