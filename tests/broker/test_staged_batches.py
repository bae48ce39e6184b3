from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from fusee.broker.staged_records import Checkpoint, op_of
from fusee.message.topics import SCHEDULE_TOPIC, STAGED_OP_TOPIC, STAGED_TOPIC
from fusee.store.simulated_disk import SimulatedCrash
from fusee.wire.codes import ResponseCode
from fusee.wire.headers.staged import CommitStagedBatchResponse, DropStagedBatchResponse, StageMessagesResponse
from tests.broker.log_world import LogWorld, message, small_store
from tests.broker.staged_calls import APP, asked, commit, committed, drop, make_topics, stage


@pytest.fixture
def world() -> LogWorld:
    return started(LogWorld())


def started(world: LogWorld) -> LogWorld:
    make_topics(world)
    world.staged.start()
    world.run()
    return world


# Staging and committing


def test_staged_messages_are_seen_by_nobody_before_the_commit_and_by_everybody_after(world: LogWorld) -> None:
    assert stage(world, 0, "t", b"a", b"b").code == ResponseCode.SUCCESS
    assert stage(world, 0, "t", b"c", sequence=1, queue_id=1).code == ResponseCode.SUCCESS
    assert world.bodies("orders", 0) == world.bodies("orders", 1) == []
    answer = commit(world, 0, {"t": 2})
    assert (answer.code, answer.read(CommitStagedBatchResponse).messages) == (ResponseCode.SUCCESS, 3)
    assert world.bodies("orders", 0) == [b"a", b"b"]
    assert world.bodies("orders", 1) == [b"c"]


def test_published_message_is_an_ordinary_one(world: LogWorld) -> None:
    stage(world, 0, "t", b"a", TAGS="red", KEYS="k1")
    commit(world, 0, {"t": 1})
    (found,) = world.messages("orders")
    assert found.prepared_transaction_offset != 0
    assert dict(found.properties) == {"TAGS": "red", "KEYS": "k1"}
    assert (found.sys_flag, found.flag, found.reconsume_times, found.queue_offset) == (0, 0, 0, 0)
    assert found.born_timestamp_ms == 1_699_999_999_000
    (part,) = world.messages(STAGED_TOPIC)
    assert found.prepared_transaction_offset == part.log_offset


def test_transactions_that_the_commit_does_not_name_are_void(world: LogWorld) -> None:
    stage(world, 0, "dead", b"x")
    stage(world, 0, "alive", b"a")
    assert committed(world, 0, {"alive": 1})
    assert world.bodies("orders") == [b"a"]
    assert asked(world)[0].transactions == 0
    assert world.staged.state.staged_bytes == 0


def test_commit_again_is_answered_as_committed_before_and_changes_nothing(world: LogWorld) -> None:
    stage(world, 3, "t", b"a")
    assert committed(world, 3, {"t": 1})
    assert not committed(world, 3, {"t": 1})
    assert not committed(world, 2, {"u": 7})
    assert world.bodies("orders") == [b"a"]


def test_stage_for_a_batch_that_is_committed_is_told_so_and_not_stored(world: LogWorld) -> None:
    stage(world, 3, "t", b"a")
    committed(world, 3, {"t": 1})
    answer = stage(world, 3, "again", b"a")
    assert answer.read(StageMessagesResponse).already_committed
    assert len(world.messages(STAGED_TOPIC)) == 1


def test_applications_do_not_know_of_each_other(world: LogWorld) -> None:
    stage(world, 5, "t", b"a")
    stage(world, 1, "t", b"b", application="other")
    assert committed(world, 5, {"t": 1})
    assert committed(world, 1, {"t": 1}, application="other")
    assert world.bodies("orders") == [b"a", b"b"]


def test_part_that_comes_again_is_stored_once(world: LogWorld) -> None:
    for _ in range(3):
        assert stage(world, 0, "t", b"a").code == ResponseCode.SUCCESS
    assert stage(world, 0, "t", b"b", sequence=1).code == ResponseCode.SUCCESS
    assert committed(world, 0, {"t": 2})
    assert world.bodies("orders") == [b"a", b"b"]


def test_part_that_comes_too_early_is_refused(world: LogWorld) -> None:
    answer = stage(world, 0, "t", b"b", sequence=1)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "came before part 0" in (answer.remark or "")


def test_commit_of_what_is_not_there_whole_is_refused_and_decides_nothing(world: LogWorld) -> None:
    stage(world, 0, "t", b"a")
    for parts in ({"t": 2}, {"t": 1, "u": 1}):
        answer = commit(world, 0, parts)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "stage the batch again" in (answer.remark or "")
    assert asked(world)[0].last_batch_id == -1
    assert committed(world, 0, {"t": 1})


def test_commit_names_a_transaction_of_another_batch_is_refused(world: LogWorld) -> None:
    stage(world, 0, "t", b"a")
    assert commit(world, 1, {"t": 1}).code == ResponseCode.ILLEGAL_OPERATION


def test_commit_of_nothing_moves_the_fence(world: LogWorld) -> None:
    assert committed(world, 7, {})
    assert asked(world)[0].last_batch_id == 7


def test_commits_keep_their_order(world: LogWorld) -> None:
    for batch_id in range(5):
        stage(world, batch_id, f"t{batch_id}", b"%d" % batch_id)
        assert committed(world, batch_id, {f"t{batch_id}": 1})
    assert world.bodies("orders") == [b"0", b"1", b"2", b"3", b"4"]


def test_dropped_transaction_cannot_be_committed(world: LogWorld) -> None:
    stage(world, 0, "t", b"a")
    assert drop(world, "t", "unknown").read(DropStagedBatchResponse).dropped == 1
    assert commit(world, 0, {"t": 1}).code == ResponseCode.ILLEGAL_OPERATION
    assert drop(world, "t").read(DropStagedBatchResponse).dropped == 0


def test_delayed_messages_wait_for_their_time_after_the_commit(world: LogWorld) -> None:
    world.delay.start()
    stage(world, 0, "t", b"now", b"later")
    stage(world, 0, "t", b"delayed", sequence=1, DELAY="2")
    assert world.messages(SCHEDULE_TOPIC) == []
    assert committed(world, 0, {"t": 2})
    assert world.bodies("orders") == [b"now", b"later"]
    world.run(6)
    assert world.bodies("orders") == [b"now", b"later", b"delayed"]


def test_commit_at_another_broker_is_remembered_with_the_decision(world: LogWorld) -> None:
    stage(world, 0, "t", b"a")
    assert commit(world, 0, {"t": 1}, others={"broker-b": {"t": 4}}).code == ResponseCode.SUCCESS
    world = started(world.killed())
    state, decision = asked(world)
    assert state.last_batch_id == 0
    assert [(each.transaction, each.parts) for each in decision.transactions] == [("t", 1)]
    assert [(each.transaction, each.parts) for each in decision.others["broker-b"]] == [("t", 4)]


# Refusals and limits


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"staged_transactions_max": 1}, "stagedTransactionsMax"),
        ({"staged_bytes_max": 1}, "stagedBytesMax"),
        ({"staged_parts_max": 1}, "stagedPartsMax"),
    ],
)
def test_stage_over_a_limit_is_refused_until_something_is_committed(settings: dict[str, Any], setting: str) -> None:
    world = started(LogWorld(**settings))
    stage(world, 0, "t", b"a")
    sequence, name = (1, "t") if setting == "stagedPartsMax" else (0, "u")
    answer = stage(world, 1, name, b"b", sequence=sequence) if name == "u" else stage(world, 0, name, b"b", sequence=1)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert setting in (answer.remark or "")
    assert committed(world, 0, {"t": 1})
    assert stage(world, 1, "u", b"b").code == ResponseCode.SUCCESS


def test_one_application_too_many_is_refused() -> None:
    world = started(LogWorld(staged_applications_max=2))
    committed(world, 0, {}, application="one")
    stage(world, 0, "t", b"a", application="two")
    for answer in (stage(world, 0, "t", b"a", application="three"), commit(world, 0, {}, application="three")):
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "stagedApplicationsMax" in (answer.remark or "")


def test_names_of_applications_fit_a_checkpoint() -> None:
    world = started(LogWorld(store_config=small_store(max_message_size=2048)))
    answers = [commit(world, 0, {}, application=f"{number:0200}") for number in range(20)]
    refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
    assert "maxMessageSize" in (refused[0].remark or "")
    world = started(world.stopped())
    assert len(world.staged.state) == 20 - len(refused) > 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"batch_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"transaction": ""}, ResponseCode.INVALID_PARAMETER),
        ({"transaction": "a\x01b"}, ResponseCode.INVALID_PARAMETER),
        ({"application": "x" * 256}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER),
        ({"topic": STAGED_TOPIC}, ResponseCode.NO_PERMISSION),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL),
        ({"body": b"not a batch at all, is it?"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"TIMER_DELIVER_MS": "5"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"DELAY": "soon"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_stage_of_what_could_not_be_published_is_refused(
    world: LogWorld, fields: dict[str, object], code: ResponseCode
) -> None:
    values: dict[str, object] = {"batch_id": 0, "transaction": "t", **fields}
    batch_id, transaction = values.pop("batch_id"), values.pop("transaction")
    answer = stage(world, batch_id, transaction, b"a", **values)  # type: ignore[arg-type]
    assert answer.code == code
    assert answer.remark
    assert world.messages(STAGED_TOPIC) == []


def test_slave_sends_to_its_master() -> None:
    world = LogWorld(broker_id=1, broker_role="SLAVE")
    for answer in (stage(world, 0, "t", b"a"), commit(world, 0, {}), drop(world, "t")):
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "ask its master" in (answer.remark or "")


def test_what_nobody_commits_is_forgotten_after_a_time() -> None:
    world = started(LogWorld(staged_time_out=5_000))
    stage(world, 0, "t", b"a")
    world.run(7)
    assert asked(world)[0].transactions == 0
    assert commit(world, 0, {"t": 1}).code == ResponseCode.ILLEGAL_OPERATION
    assert started(world.killed()).staged.state.staged_bytes == 0


def test_fence_of_one_shot_goes_sooner_than_others() -> None:
    world = started(LogWorld(staged_time_out=5_000, staged_reserved_time=20_000))
    committed(world, 0, {}, application="kept")
    commit(world, 0, {}, application="once", one_shot=True)
    world.run(7)
    assert (asked(world, "kept")[0].last_batch_id, asked(world, "once")[0].last_batch_id) == (0, -1)
    world.run(20)
    assert len(world.staged.state) == 0


# After the end of the process


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_what_is_staged_survives_and_can_be_committed(world: LogWorld, way: str) -> None:
    stage(world, 0, "t", b"a")
    stage(world, 0, "t", b"b", sequence=1)
    world = started(getattr(world, way)())
    assert asked(world)[0].transactions == 1
    assert stage(world, 0, "t", b"c", sequence=2).code == ResponseCode.SUCCESS
    assert committed(world, 0, {"t": 3})
    assert world.bodies("orders") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_fence_survives(world: LogWorld, way: str) -> None:
    stage(world, 9, "t", b"a")
    committed(world, 9, {"t": 1})
    world = started(getattr(world, way)())
    assert not committed(world, 9, {"t": 1})
    assert world.bodies("orders") == [b"a"]


def test_fence_outlives_the_segment_of_its_commit(world: LogWorld) -> None:
    stage(world, 4, "t", b"a")
    committed(world, 4, {"t": 1})
    for _ in range(4):
        for number in range(20):
            world.put(message(b"%0999d" % number, topic="noise"))
        world.run(2)
    checkpoints = [found for found in world.messages(STAGED_OP_TOPIC) if isinstance(op_of(found), Checkpoint)]
    assert len(checkpoints) >= 4
    world.store.flush_derived()
    world.store.log.drop_head(checkpoints[-1].log_offset // (16 * 1024) * 16 * 1024)
    world = started(world.killed())
    assert world.store.log.min_offset > 16 * 1024
    assert asked(world)[0].last_batch_id == 4
    assert not committed(world, 4, {"t": 1})


def test_dropped_transaction_stays_dropped_beside_an_older_one_that_waits(world: LogWorld) -> None:
    stage(world, 0, "old", b"a", application="patient")
    stage(world, 0, "gone", b"b")
    stage(world, 0, "done", b"c")
    drop(world, "gone")
    committed(world, 0, {"done": 1})
    world = started(world.stopped())
    assert [each.name for each in world.staged.state.transactions()] == ["old"]
    world = started(world.killed())
    assert [each.name for each in world.staged.state.transactions()] == ["old"]


def test_commit_that_was_decided_and_not_published_is_published_at_start(world: LogWorld) -> None:
    bodies = [b"%0400d" % number for number in range(12)]
    for sequence in range(4):
        stage(world, 0, "t", *bodies[sequence * 3 : sequence * 3 + 3], sequence=sequence)
    # What stands in the log directly behind the commit is cut off, as if the machine had died there.
    commit(world, 0, {"t": 4})
    first = world.messages("orders")[0].log_offset
    published = world.messages("orders")
    for cut in (first, published[4].log_offset, published[-1].log_offset):
        world.store.truncate(cut)
        world = started(world.killed())
        world.run(1)
        assert world.bodies("orders") == bodies
        published = world.messages("orders")
        assert len({found.queue_offset for found in published}) == 12


def test_published_batch_is_not_published_again(world: LogWorld) -> None:
    stage(world, 0, "t", b"a")
    committed(world, 0, {"t": 1})
    for _ in range(3):
        world = started(world.killed())
        world.run(1)
    assert world.bodies("orders") == [b"a"]


def bodies_of(batch_id: int, task: int, sequence: int) -> list[bytes]:
    return [b"%d.%d.%d.%d-" % (batch_id, task, sequence, number) + b"x" * 300 for number in range(3)]


@pytest.mark.parametrize("seed", range(12))
def test_crash_at_any_step_publishes_what_was_decided_once_and_nothing_else(seed: int) -> None:
    """Batches as a query makes them: the same batch again until its commit was answered with success."""
    chance = Random(seed)
    world = LogWorld()
    batch_id = attempt = 0
    answered: set[int] = set()
    lives = 0
    while batch_id < 12 and lives < 60:
        lives += 1
        world.disk.stop_at(world.disk.steps + chance.randrange(5, 260), tear_at=chance.randrange(0, 3000))
        with suppress(SimulatedCrash):
            started(world)
            while batch_id < 12:
                attempt += 1
                names = [f"{batch_id}-{task}-{attempt}" for task in range(2)]
                for task, name in enumerate(names):
                    for sequence in range(2):
                        bodies = [
                            b"%d.%d.%d.%d-" % (batch_id, task, sequence, number) + b"x" * 300 for number in range(3)
                        ]
                        stage(world, batch_id, name, *bodies, sequence=sequence, queue_id=task)
                if chance.random() < 0.2:
                    stage(world, batch_id, f"dead-{attempt}", b"dead")
                world.run(0.2)
                commit(world, batch_id, dict.fromkeys(names, 2))
                world.run(0.2)
                world.store.flush()
                answered.add(batch_id)
                batch_id += 1
        if batch_id < 12:
            # What was not flushed may be gone: the query does the last batch again, as it does after a failed commit.
            world = world.killed() if chance.random() < 0.5 else world.crashed(chance.randrange(1 << 30))
    assert batch_id == 12, "the run did not end"
    world = started(world.killed())
    world.run(1)
    wanted = {
        task: [body for batch in range(12) for sequence in range(2) for body in bodies_of(batch, task, sequence)]
        for task in range(2)
    }
    for task in range(2):
        assert world.bodies("orders", task) == wanted[task]
    assert answered == set(range(12))
    assert APP in {fence.application for fence in world.staged.state.fences()}


def two_batches(world: LogWorld, batch_ids: list[int], attempt: str) -> None:
    """Commit what of these two batches is not known to be committed."""
    started(world)
    while batch_ids:
        batch_id = batch_ids[0]
        for task in range(2):
            bodies = bodies_of(batch_id, task, 0)
            stage(world, batch_id, f"{attempt}-{task}", *bodies, queue_id=task)
        commit(world, batch_id, {f"{attempt}-0": 1, f"{attempt}-1": 1})
        world.store.flush()
        batch_ids.pop(0)
    world.staged.stop()


@pytest.mark.parametrize("tear_at", [0, 200, 1500])
@pytest.mark.parametrize("power", [False, True])
def test_crash_at_every_single_step_is_mended(tear_at: int, power: bool) -> None:
    rehearsal = LogWorld()
    first_step = rehearsal.disk.steps
    two_batches(rehearsal, [0, 1], "a")
    steps = rehearsal.disk.steps - first_step
    assert steps > 20
    for step in range(1, steps + 1):
        world = LogWorld()
        world.disk.stop_at(world.disk.steps + step, tear_at=tear_at)
        left = [0, 1]
        with suppress(SimulatedCrash):
            two_batches(world, left, "a")
        world = world.crashed(step) if power else world.killed()
        two_batches(world, left, "b")
        world.run(1)
        for task in range(2):
            assert world.bodies("orders", task) == bodies_of(0, task, 0) + bodies_of(1, task, 0), step


def test_slave_that_becomes_the_master_goes_on_from_the_log(world: LogWorld) -> None:
    stage(world, 0, "t", b"a")
    committed(world, 0, {"t": 1})
    stage(world, 1, "u", b"b")
    stage(world, 1, "u", b"c", sequence=1)
    slave = LogWorld(broker_id=1, broker_role="SLAVE")
    log = world.store.log
    data = bytes(log.chunk(0, log.written_offset))
    assert slave.writer.append(data, 0) == len(data)
    slave.run()
    master = started(slave.killed(broker_id=0, broker_role="ASYNC_MASTER"))
    assert not committed(master, 0, {"t": 1})
    assert committed(master, 1, {"u": 2})
    assert master.bodies("orders") == [b"a", b"b", b"c"]
