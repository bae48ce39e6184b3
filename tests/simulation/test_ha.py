"""Broker groups whose machines fail: what was promised is kept; and a broker that breaks a promise is found out.

Runs are processes of their own, so that a seed repeats them; a failure prints the command. The long form
(`FUSEE_LONG=1`) takes 1,000 seeds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fusee.client.results import SendStatus
from fusee.message.model import MessageQueue
from fusee.replication import replica
from fusee.store.engine import MessageStore
from fusee.store.simulated_disk import SimulatedDisk
from tests.simulation.ha_run import simulate
from tests.simulation.ha_witness import Change, HaWitness, Place, Promises, Stored
from tests.simulation.ha_world import HaBroker, HaPlan, HaWorld, Node
from tests.simulation.witness import PromiseBrokenError

ROOT = Path(__file__).parents[2]
IS_LONG = bool(os.environ.get("FUSEE_LONG"))
SEEDS = 1000 if IS_LONG else 30
SEEDS_AT_ONCE = 25 if IS_LONG else 5
STEPS = 60


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--ha", "--steps", str(STEPS), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        pytest.fail(f"{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_AT_ONCE))
def test_groups_whose_machines_fail_keep_their_promises(first: int) -> None:
    said = run("--seed", str(first), "--runs", str(SEEDS_AT_ONCE))
    messages = [int(count) for count in re.findall(r"(\d+) messages", said)]
    assert len(messages) == SEEDS_AT_ONCE
    assert sum(messages) > SEEDS_AT_ONCE * STEPS / 4


def test_seed_repeats_a_run() -> None:
    runs = {re.sub(r"; [\d.]+ s$", "", run("--seed", "3").strip()) for _ in range(2)}
    assert len(runs) == 1


# Planted bugs


def found_out(node_type: type[HaBroker] = HaBroker, *, judges_reads: bool = True, within: int = 30) -> str:
    """What the witness says about brokers of this kind, the first time that it objects."""

    class World(HaWorld):
        def _is_early(self, node: Node, broker: HaBroker, end_offset: int) -> bool:
            return judges_reads and super()._is_early(node, broker, end_offset)

    World.node_type = node_type
    for seed in range(1, within + 1):
        plan = HaPlan(seed=seed, steps=STEPS)
        try:
            simulate(plan, World)
        except PromiseBrokenError as broken:
            said = str(broken)
            if not said.endswith(f"to see it again: {plan.command}"):
                pytest.fail(f"how to see it again is not said: {said}")
            return said.splitlines()[1]
    pytest.fail(f"{within} seeds did not find it")


def test_master_that_answers_before_a_slave_has_the_message_is_found_out() -> None:
    class Hasty(HaBroker):
        def _slaves_progressed(self) -> None:
            super()._slaves_progressed()
            self.writer.replicated(1 << 62)

    assert re.match("early", found_out(Hasty))
    assert re.match("lost", found_out(Hasty, judges_reads=False))


def test_master_that_shows_what_no_slave_has_is_found_out() -> None:
    class Open(HaBroker):
        def _make_parts(self, *arguments: Any) -> None:
            super()._make_parts(*arguments)
            self.writer._is_limited = False

    assert re.match("early", found_out(Open))


def test_broker_that_answers_before_the_disk_has_the_message_is_found_out() -> None:
    class Forgetful(HaBroker):
        @property
        def _flushes_at_once(self) -> bool:
            return False

    assert re.match("lost", found_out(Forgetful))


def test_broker_that_does_not_save_offsets_is_found_out() -> None:
    class Lazy(HaBroker):
        def _start_jobs(self, *arguments: Any) -> None:
            super()._start_jobs(*arguments)
            self._jobs[0].stop()

    assert re.match("back", found_out(Lazy))


def test_slave_that_does_not_compare_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def same(store: MessageStore, *_: Any) -> int:
        return store.written_offset

    monkeypatch.setattr(replica, "common_end", same)
    assert re.match("apart|changed|lost", found_out())


def test_slave_that_cuts_its_log_in_memory_only_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate = MessageStore.truncate

    def truncate_in_memory(store: MessageStore, log_offset: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimulatedDisk, "_sync", lambda *_: None)
            patch.setattr(SimulatedDisk, "sync_folder", lambda *_: None)
            truncate(store, log_offset)

    monkeypatch.setattr(MessageStore, "truncate", truncate_in_memory)
    assert re.match("apart|changed|lost", found_out())


# What no planted bug brings about so easily


class Scene:
    """A witness of one group, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.witness = HaWitness(lambda: self.now, {"broker-a": Promises(sync_master=True, sync_flush=True)})
        self.queue = MessageQueue("orders", "broker-a", 0)

    def sent(self, number: int, queue_offset: int, status: SendStatus = SendStatus.SEND_OK) -> None:
        self.witness.sending(number)
        self.witness.sent(number, self.queue, queue_offset, 100 * queue_offset, status, waited=True)

    def master_starts(self, change: Change, safe_offset: int, *numbers: int, committed_offset: int = -1) -> None:
        """The next master, which has these messages."""
        found = {Place(self.queue, row): Stored(number, 100 * row) for row, number in enumerate(numbers)}
        offsets = {self.queue: committed_offset}
        self.witness.master_starts(
            "broker-a", "a1", change, safe_offset, ended_at=self.now, found=found, offsets=offsets
        )


def test_witness_objects_when_a_later_message_lies_before_an_acknowledged_one() -> None:
    scene = Scene()
    scene.sent(1, 5)
    with pytest.raises(PromiseBrokenError, match="order: message 2 lies at 4"):
        scene.sent(2, 4)


def test_witness_allows_a_send_that_was_under_way_the_place_of_one_that_was_lost_by_permission() -> None:
    scene = Scene()
    scene.sent(1, 0)
    scene.sent(2, 1, SendStatus.FLUSH_DISK_TIMEOUT)
    scene.witness.sending(3)
    scene.master_starts(Change.CRASH, 100, 1)
    scene.sent(4, 2)
    scene.witness.sent(3, scene.queue, 1, 100, SendStatus.SEND_OK, waited=True)


def test_witness_objects_when_a_send_has_no_outcome() -> None:
    scene = Scene()
    scene.witness.sending(1)
    scene.now = 59.0
    scene.witness.check_sends()
    scene.now = 61.0
    with pytest.raises(PromiseBrokenError, match="endless: message 1"):
        scene.witness.check_sends()


def test_witness_objects_when_a_place_has_another_message() -> None:
    scene = Scene()
    scene.sent(1, 0)
    with pytest.raises(PromiseBrokenError, match="changed"):
        scene.witness.read("a0", scene.queue, 0, Stored(2, 0), is_early=False)


def test_witness_objects_when_a_committed_offset_gets_smaller() -> None:
    scene = Scene()
    scene.witness.committed(scene.queue, 3)
    with pytest.raises(PromiseBrokenError, match="back: 2 is committed"):
        scene.witness.committed(scene.queue, 2)


def test_witness_lets_a_master_find_an_offset_that_was_put_right_a_moment_ago() -> None:
    scene = Scene()
    scene.sent(1, 0)
    scene.witness.committed(scene.queue, 5)
    scene.master_starts(Change.CRASH, 100, 1, committed_offset=5)
    scene.now = 2.0
    scene.witness.committed(scene.queue, 1)
    scene.now = 7.0
    scene.sent(2, 1)
    scene.sent(3, 2)
    scene.master_starts(Change.KILL, 300, 1, 2, 3, committed_offset=1)
    with pytest.raises(PromiseBrokenError, match="back: a1 finds 0 committed"):
        scene.master_starts(Change.STOP, 300, 1, 2, 3, committed_offset=0)


def test_witness_objects_when_an_acknowledged_message_is_never_consumed() -> None:
    scene = Scene()
    scene.sent(1, 0)
    with pytest.raises(PromiseBrokenError, match="unread: message 1"):
        scene.witness.check_end()
    scene.witness.consume(1)
    scene.witness.check_end()


@pytest.mark.parametrize("status", list(SendStatus))
@pytest.mark.parametrize("change", list(Change))
def test_witness_lets_go_of_what_was_not_promised_to_survive(change: Change, status: SendStatus) -> None:
    is_promised = {
        Change.STOP: True,
        Change.KILL: True,
        Change.CRASH: status is not SendStatus.FLUSH_DISK_TIMEOUT,
        Change.PROMOTION: status is SendStatus.SEND_OK,
    }[change]
    scene = Scene()
    scene.sent(1, 0)
    scene.sent(2, 1, status)
    if is_promised:
        with pytest.raises(PromiseBrokenError, match="lost: message 2"):
            scene.master_starts(change, 100, 1)
    else:
        scene.master_starts(change, 100, 1)
        assert scene.witness.forgiven == 1
        with pytest.raises(PromiseBrokenError, match="lost: message 1"):
            scene.master_starts(change, 100)
