from __future__ import annotations

import pytest

from fusee.message.model import StoredMessage
from fusee.message.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from fusee.store.transaction_table import TransactionState
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.transaction import EndTransaction, ResumeCheckHalfMessage
from tests.broker.log_world import ROOT, LogWorld, message
from tests.broker.test_transactions import half, op_bodies, state_of

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


@pytest.fixture
def world() -> LogWorld:
    world = LogWorld()
    world.transactions.start()
    return world


def end(
    world: LogWorld,
    found: StoredMessage,
    decision: int = COMMIT,
    *,
    group: str = "pg",
    queue_offset: int | None = None,
    log_offset: int | None = None,
    from_check: bool = False,
    oneway: bool = False,
) -> Command | None:
    header = EndTransaction(
        topic="orders",
        producer_group=group,
        half_queue_offset=found.queue_offset if queue_offset is None else queue_offset,
        log_offset=found.log_offset if log_offset is None else log_offset,
        commit_or_rollback=decision,
        from_transaction_check=from_check,
        msg_id=found.unique_id or "",
        transaction_id=found.unique_id,
    )
    return world.ask(RequestCode.END_TRANSACTION, header, oneway=oneway)


def check(answer: Command | None, code: ResponseCode, remark: str | None = None) -> None:
    assert answer is not None
    assert (answer.code, answer.remark) == (code, remark)


def test_commit_is_answered_when_the_message_is_there(world: LogWorld) -> None:
    check(end(world, half(world)), ResponseCode.SUCCESS)
    assert world.bodies("orders", 3) == [b"x"]


def test_commit_oneway_is_done_and_not_answered(world: LogWorld) -> None:
    assert end(world, half(world), oneway=True) is None
    assert world.bodies("orders", 3) == [b"x"]
    assert world.lane.in_flight == 0


def test_roll_back_is_answered_and_recorded(world: LogWorld) -> None:
    check(end(world, half(world), ROLLBACK), ResponseCode.SUCCESS)
    world.run(3)
    assert op_bodies(world) == [b"0,"]
    assert world.bodies("orders", 3) == []


@pytest.mark.parametrize("from_check", [False, True])
def test_producer_that_does_not_know_is_not_answered(world: LogWorld, from_check: bool) -> None:
    found = half(world)
    assert end(world, found, UNKNOWN, from_check=from_check) is None
    world.run(4)
    assert state_of(world, 0) is TransactionState.PREPARED


@pytest.mark.parametrize("decision", [4, 99])
def test_decision_that_is_none_is_refused(world: LogWorld, decision: int) -> None:
    found = half(world)
    check(
        end(world, found, decision),
        ResponseCode.SYSTEM_ERROR,
        f"commitOrRollback={decision}: 8 commits, 12 rolls back, 0 leaves it open",
    )
    world.run(4)
    assert state_of(world, 0) is TransactionState.PREPARED


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_decision_that_does_not_fit_the_half_message_is_refused(world: LogWorld, decision: int) -> None:
    found = half(world)
    plain = world.put(message(b"plain"))
    missing = "Find prepared transaction message failed"
    check(end(world, found, decision, group="other"), ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    check(
        end(world, found, decision, queue_offset=5),
        ResponseCode.SYSTEM_ERROR,
        "The transaction state table offset wrong",
    )
    check(end(world, found, decision, log_offset=3), ResponseCode.SYSTEM_ERROR, missing)
    check(end(world, found, decision, log_offset=1 << 40), ResponseCode.SYSTEM_ERROR, missing)
    check(end(world, found, decision, log_offset=plain.log_offset), ResponseCode.SYSTEM_ERROR, missing)
    world.run(4)
    assert state_of(world, 0) is TransactionState.PREPARED
    assert len(world.messages("orders")) == 1


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_decision_after_the_immune_time_counts_only_as_an_answer(world: LogWorld, decision: int) -> None:
    found = half(world, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    world.run(10.2)
    check(end(world, found, decision), ResponseCode.ILLEGAL_OPERATION)
    check(end(world, found, decision, from_check=True), ResponseCode.SUCCESS)


def test_decision_within_the_immune_time_counts(world: LogWorld) -> None:
    found = half(world, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    world.run(5)  # transactionTimeOut is the least
    check(end(world, found), ResponseCode.SUCCESS)


def test_slave_decides_nothing() -> None:
    world = LogWorld(broker_id=1, broker_role="SLAVE")
    check(end(world, half(world)), ResponseCode.SLAVE_NOT_AVAILABLE)
    assert world.messages("orders") == []


def test_commit_that_cannot_be_written_is_told_and_may_be_repeated(world: LogWorld) -> None:
    found = half(world)
    world.disk.fail_write(1, under=ROOT / "commitlog")
    check(end(world, found), ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
    world.run(4)
    assert op_bodies(world) == []
    check(end(world, found), ResponseCode.SUCCESS)
    assert world.bodies("orders", 3) == [b"x"]


def test_commit_again_is_a_success_and_delivers_nothing_more(world: LogWorld) -> None:
    found = half(world)
    check(end(world, found), ResponseCode.SUCCESS)
    check(end(world, found, from_check=True), ResponseCode.SUCCESS)
    assert world.bodies("orders", 3) == [b"x"]


def test_commit_of_the_half_record_and_of_its_copy_delivers_once(world: LogWorld) -> None:
    found = half(world)
    world.run(31)
    copy = world.messages(HALF_TOPIC)[1]
    check(end(world, found), ResponseCode.SUCCESS)
    check(end(world, copy, from_check=True), ResponseCode.SUCCESS)
    assert world.bodies("orders", 3) == [b"x"]


# One given up


def given_up(world: LogWorld) -> StoredMessage:
    half(world)
    world.run(62)
    (kept,) = world.messages(CHECK_MAX_TIME_TOPIC)
    return kept


def test_resume_lets_a_given_up_transaction_be_asked_about_again() -> None:
    world = LogWorld(transaction_check_max=1)
    world.transactions.start()
    kept = given_up(world)
    answer = world.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage(msg_id=kept.offset_id))
    check(answer, ResponseCode.SUCCESS)
    again = world.messages(HALF_TOPIC)[-1]
    assert again.properties["TRANSACTION_CHECK_TIMES"] == "0"
    world.writer.make_visible()
    assert world.store.transactions.pending_count == 1
    _, wire = world.producer("pg")
    world.run(31)
    assert len(wire.sent) == 1
    check(end(world, again), ResponseCode.SUCCESS)
    assert world.bodies("orders", 3) == [b"x"]


@pytest.mark.parametrize("message_id", ["", "nonsense", "0A00000100002A9F00000000000000FF"])
def test_resume_of_what_is_not_there_is_refused(world: LogWorld, message_id: str) -> None:
    answer = world.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage(msg_id=message_id))
    check(
        answer,
        ResponseCode.SYSTEM_ERROR,
        "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.",
    )


def test_resume_of_a_message_that_was_not_given_up_is_refused(world: LogWorld) -> None:
    found = half(world)
    answer = world.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage(msg_id=found.offset_id))
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert len(world.messages(HALF_TOPIC)) == 1


def test_resume_that_cannot_be_written_is_told() -> None:
    world = LogWorld(transaction_check_max=1)
    world.transactions.start()
    kept = given_up(world)
    world.disk.fail_write(1, under=ROOT / "commitlog")
    answer = world.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessage(msg_id=kept.offset_id))
    check(answer, ResponseCode.SYSTEM_ERROR, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
