from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from fusee.broker.check_back import Verdict, judge
from fusee.broker.transactions import half_record
from fusee.errors import ConnectionLostError
from fusee.message.model import StoredMessage
from fusee.message.record import decode_record
from fusee.message.topics import CHECK_MAX_TIME_TOPIC, HALF_OP_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from fusee.store.new_record import NewRecord
from fusee.store.transaction_table import TransactionState
from fusee.wire.codes import RequestCode
from fusee.wire.command import Command
from fusee.wire.headers.transaction import CheckTransactionState
from tests.broker.log_world import NAME, ROOT, LogWorld
from tests.broker.test_transactions import half, put_half, state_of
from tests.golden import frames


@pytest.fixture
def world() -> LogWorld:
    world = LogWorld()
    world.transactions.start()
    return world


def committed(world: LogWorld, topic: str) -> int:
    return world.offsets.query(TRANSACTION_GROUP, topic, 0)


def question(sent: Command) -> tuple[CheckTransactionState, StoredMessage]:
    assert sent.code == RequestCode.CHECK_TRANSACTION_STATE
    assert sent.is_oneway
    return sent.read(CheckTransactionState), decode_record(sent.body)


# Verdicts


@pytest.mark.parametrize(
    ("age_ms", "properties", "verdict"),
    [
        (0, {}, Verdict.TOO_YOUNG),
        (6_000, {}, Verdict.TOO_YOUNG),
        (6_001, {}, Verdict.ASK),
        (-1, {}, Verdict.ASK),
        (6_001, {"TRANSACTION_CHECK_TIMES": "14"}, Verdict.ASK),
        (6_001, {"TRANSACTION_CHECK_TIMES": "15"}, Verdict.GIVE_UP),
        (0, {"TRANSACTION_CHECK_TIMES": "15"}, Verdict.GIVE_UP),
        (72 * 3_600_000, {}, Verdict.ASK),
        (72 * 3_600_000 + 1, {}, Verdict.GIVE_UP),
        (10_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Verdict.PUT_OFF),
        (10_001, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Verdict.ASK),
        (2_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}, Verdict.ASK),
        (6_000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, Verdict.PUT_OFF),
        (6_001, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, Verdict.ASK),
        (-5, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "10"}, Verdict.PUT_OFF),
    ],
)
def test_judge(age_ms: int, properties: dict[str, str], verdict: Verdict) -> None:
    found = half(LogWorld(), b"x", **properties)
    now_ms = found.born_timestamp_ms + age_ms
    assert judge(found, now_ms, timeout_ms=6_000, checks_max=15, kept_ms=72 * 3_600_000) is verdict


# Asking


def test_undecided_transaction_is_asked_about_with_the_next_round(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    found = half(world, TAGS="A")
    world.run(29)
    assert wire.sent == []
    world.run(1.1)
    (sent,) = wire.sent
    header, asked = question(sent)
    copy = world.messages(HALF_TOPIC)[1]
    assert (copy.queue_offset, copy.properties["TRANSACTION_CHECK_TIMES"]) == (1, "1")
    assert {**copy.properties} == {**found.properties, "TRANSACTION_CHECK_TIMES": "1"}
    assert header == CheckTransactionState(
        topic=HALF_TOPIC,
        half_queue_offset=1,
        log_offset=copy.log_offset,
        msg_id="ID-x",
        transaction_id="ID-x",
        offset_msg_id=copy.offset_id,
        broker_name=NAME,
    )
    assert (asked.topic, asked.queue_id, asked.queue_offset, asked.log_offset) == ("orders", 3, 1, copy.log_offset)
    assert {**asked.properties} == {**copy.properties, "WAIT": "false"}
    assert (asked.body, asked.born_timestamp_ms, asked.body_crc) == (b"x", found.born_timestamp_ms, found.body_crc)
    assert state_of(world, 0) is TransactionState.SUPERSEDED
    assert state_of(world, 1) is TransactionState.PREPARED


def test_question_has_the_fields_of_java_s(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    half(world)
    world.run(31)
    theirs = [frame for frame in frames("tx") if frame.code == RequestCode.CHECK_TRANSACTION_STATE]
    assert theirs
    assert {frozenset(frame.header.ext_fields or {}) for frame in theirs} == {frozenset(wire.sent[0].all_fields())}


def test_transaction_is_asked_about_each_round_until_it_is_given_up() -> None:
    world = LogWorld(transaction_check_max=3)
    world.transactions.start()
    _, wire = world.producer("pg")
    half(world)
    world.run(30 * 3 + 1)
    assert len(wire.sent) == 3
    assert world.messages(CHECK_MAX_TIME_TOPIC) == []
    world.run(30)
    assert len(wire.sent) == 3
    (kept,) = world.messages(CHECK_MAX_TIME_TOPIC)
    assert (kept.body, kept.properties["REAL_TOPIC"], kept.properties["TRANSACTION_CHECK_TIMES"]) == (
        b"x",
        "orders",
        "3",
    )
    assert [found.body for found in world.transactions.check_back.given_up(10)] == [b"x"]
    assert world.topics.get(CHECK_MAX_TIME_TOPIC) is not None
    assert world.store.transactions.pending_count == 0
    assert state_of(world, 3) is TransactionState.DISCARDED
    world.run(60)
    assert len(world.messages(CHECK_MAX_TIME_TOPIC)) == 1
    assert committed(world, HALF_TOPIC) == 4


def test_transaction_without_a_producer_online_is_asked_about_later(world: LogWorld) -> None:
    half(world)
    world.run(31)
    _, wire = world.producer("pg")
    world.run(30)
    assert len(wire.sent) == 1


def test_producer_that_went_away_is_no_trouble(world: LogWorld) -> None:
    link, wire = world.producer("pg")
    half(world)
    wire.closing = True
    link.connection_lost(ConnectionLostError("gone"))
    world.run(31)
    assert wire.sent == []
    assert state_of(world, 1) is TransactionState.PREPARED


def test_round_ends_at_the_first_that_is_too_young(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    half(world, b"old")
    world.run(28)
    half(world, b"young")
    half(world, b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    world.run(2.1)
    assert [question(sent)[0].msg_id for sent in wire.sent] == ["ID-old"]
    assert committed(world, HALF_TOPIC) == 1


def test_decided_transactions_are_not_asked_about(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    first, second, third = (half(world, b"%d" % number) for number in range(3))
    world.run(29.5)
    world.transactions.roll_back(first)  # its op record is not written yet
    world.transactions.commit(third, lambda status: None)
    world.run(1)
    assert [question(sent)[0].msg_id for sent in wire.sent] == [second.unique_id]


def test_many_are_asked_about_in_one_round(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    for number in range(600):
        put_half(world, b"%d" % number)
    world.run(31)
    assert [question(sent)[0].half_queue_offset for sent in wire.sent] == list(range(600, 1200))
    assert committed(world, HALF_TOPIC) == 600


def test_half_message_without_an_id_is_asked_about_and_not_doubled(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    world.put(half_record(NewRecord("orders", 0, b"x", b"PGROUP\x01pg\x02", born_timestamp_ms=world.clock.time_ms())))
    world.run(64)
    assert len(wire.sent) == 2
    assert world.store.transactions.pending_count == 1


# Being left in peace


def test_immune_transaction_is_put_off_and_keeps_the_one_decided_on(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    found = half(world, CHECK_IMMUNITY_TIME_IN_SECONDS="70")
    world.run(61)
    assert wire.sent == []
    copies = world.messages(HALF_TOPIC)[1:]
    assert [copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] for copy in copies] == ["0", "0"]
    assert [copy.properties["TRANSACTION_CHECK_TIMES"] for copy in copies] == ["0", "0"]
    assert state_of(world, 0) is TransactionState.DEFERRED
    world.transactions.commit(found, lambda status: None)
    world.run(31)
    assert world.store.transactions.pending_count == 0
    assert world.bodies("orders", 3) == [b"x"]
    assert wire.sent == []


def test_immune_transaction_is_asked_about_when_the_time_is_over(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    half(world, CHECK_IMMUNITY_TIME_IN_SECONDS="1000")
    world.run(1000)  # more rounds than transactionCheckMax
    assert wire.sent == []
    world.run(30)
    assert len(wire.sent) == 1
    _, asked = question(wire.sent[0])
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    world.transactions.roll_back(world.messages(HALF_TOPIC)[-1])
    world.run(4)
    assert world.store.transactions.pending_count == 0


# Offsets


def test_offsets_lead_java_to_what_is_pending(world: LogWorld) -> None:
    halves = [half(world, b"%d" % number) for number in range(6)]
    for number in (0, 1, 3):
        world.transactions.roll_back(halves[number])
        world.run(3.1)
    assert committed(world, HALF_TOPIC) == committed(world, HALF_OP_TOPIC) == -1
    world.run(30)
    # 2, 4 and 5 were put again as 6, 7 and 8; nothing before is pending, and no op record speaks of what is.
    assert committed(world, HALF_TOPIC) == 6
    assert committed(world, HALF_OP_TOPIC) == 3
    world.transactions.roll_back(world.messages(HALF_TOPIC)[7])
    world.run(30)
    assert committed(world, HALF_TOPIC) == 9
    assert committed(world, HALF_OP_TOPIC) == 4


def test_op_record_about_what_is_still_ahead_is_kept(world: LogWorld) -> None:
    half(world, b"old")
    world.run(25)
    half(world, b"young")
    late = half(world, b"late")
    world.transactions.roll_back(late)
    world.run(6)
    assert committed(world, HALF_TOPIC) == 1
    assert committed(world, HALF_OP_TOPIC) == -1


def test_offsets_stay_where_they_are_without_transactions(world: LogWorld) -> None:
    world.run(100)
    assert committed(world, HALF_TOPIC) == committed(world, HALF_OP_TOPIC) == -1


# When the disk does not do its part


def test_round_ends_when_a_copy_is_not_stored_and_begins_there_again(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    half(world)
    world.run(29.9)
    world.disk.fail_write(1, code=errno.EIO, under=ROOT / "commitlog")
    world.run(0.5)
    assert wire.sent == []
    assert committed(world, HALF_TOPIC) == -1
    assert state_of(world, 0) is TransactionState.PREPARED
    world.run(30)
    assert len(wire.sent) == 1
    assert committed(world, HALF_TOPIC) == 1


def test_round_that_ends_early_leaves_those_behind_alone(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    for number in range(300):
        put_half(world, b"%d" % number)
    world.run(29.9)
    world.disk.fail_write(1, under=ROOT / "commitlog")
    world.run(0.5)
    assert wire.sent == []
    world.run(30)
    assert len(wire.sent) == 300


def test_stop_asks_no_more(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    half(world)
    world.transactions.stop()
    world.run(100)
    assert wire.sent == []


def test_settings_that_change_count_from_the_next_round_on(world: LogWorld) -> None:
    _, wire = world.producer("pg")
    half(world)
    world.transactions.config = replace(world.config, transaction_check_interval=5_000, transaction_check_max=2)
    world.run(30.1)
    assert len(wire.sent) == 1
    world.run(10)
    assert len(wire.sent) == 2
    assert len(world.messages(CHECK_MAX_TIME_TOPIC)) == 1
