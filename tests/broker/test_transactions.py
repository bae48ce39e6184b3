from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest

from fusee.broker.ack_gate import PutStatus
from fusee.broker.transactions import committed_record, half_record
from fusee.errors import MessageError
from fusee.message.model import StoredMessage
from fusee.message.properties import decode_properties, encode_properties
from fusee.message.record import decode_record
from fusee.message.topics import HALF_OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TRANSACTION_GROUP
from fusee.store.engine import MessageStore
from fusee.store.new_record import NewRecord
from fusee.store.simulated_disk import SimulatedCrash
from fusee.store.transaction_table import TransactionState
from tests.broker.log_world import BORN_HOST, ROOT, STORE_HOST, LogWorld, messages_of
from tests.golden.store import CONFIG, unpack


def half(world: LogWorld, body: bytes = b"x", **properties: str) -> StoredMessage:
    """A half message in the log."""
    put_half(world, body, **properties)
    world.run()
    return world.messages(HALF_TOPIC)[-1]


def put_half(world: LogWorld, body: bytes, **properties: str) -> None:
    raw = encode_properties({"UNIQ_KEY": "ID-" + body.decode()[:40], "TRAN_MSG": "true", "PGROUP": "pg", **properties})
    record = NewRecord(
        "orders",
        3,
        body,
        raw,
        sys_flag=0x4,
        born_timestamp_ms=world.clock.time_ms(),
        born_host=BORN_HOST,
        store_host=STORE_HOST,
    )
    world.writer.put(half_record(record))


def commit(world: LogWorld, message: StoredMessage) -> list[PutStatus]:
    told: list[PutStatus] = []
    world.transactions.commit(message, told.append)
    world.run()
    return told


def op_bodies(world: LogWorld) -> list[bytes]:
    return [found.body for found in world.messages(HALF_OP_TOPIC)]


def state_of(world: LogWorld, queue_offset: int) -> TransactionState:
    world.writer.make_visible()
    entry = world.store.transactions.entry(queue_offset)
    return TransactionState(entry.state if entry is not None else 0)


@pytest.fixture
def world() -> LogWorld:
    world = LogWorld()
    world.transactions.start()
    return world


# Records


def test_half_record_hides_the_message_and_says_where_it_is_to_go(world: LogWorld) -> None:
    found = half(world, TAGS="A")
    assert (found.topic, found.queue_id, found.queue_offset, found.sys_flag) == (HALF_TOPIC, 0, 0, 0)
    assert dict(found.properties) == {
        "UNIQ_KEY": "ID-x",
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "TAGS": "A",
        "__transactionId__": "ID-x",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


def test_half_record_without_an_id_has_no_transaction_id() -> None:
    record = half_record(NewRecord("orders", 0, b"x", b"TRAN_MSG\x01true\x02", sys_flag=0x5))
    assert "__transactionId__" not in decode_properties(record.properties)
    assert record.sys_flag == 0x1


def test_committed_records_of_java_are_what_we_would_store(tmp_path: Path) -> None:
    store = MessageStore(unpack("clean", tmp_path), CONFIG)
    store.open()
    records = messages_of(store)
    halves = {found.log_offset: found for found in records if found.topic == HALF_TOPIC}
    committed = [found for found in records if found.sys_flag & 0xC == 0x8]
    store.close()
    assert committed
    for found in committed:
        ours = committed_record(halves[found.prepared_transaction_offset], 18)
        assert (ours.topic, ours.queue_id, ours.body, ours.sys_flag) == (
            found.topic,
            found.queue_id,
            found.body,
            found.sys_flag,
        )
        assert decode_properties(ours.properties) == dict(found.properties)
        assert ours.prepared_transaction_offset == found.prepared_transaction_offset
        assert (ours.born_host, ours.store_host) == (found.born_host_bytes, found.store_host_bytes)


def test_committed_record_of_a_half_message_that_leads_nowhere_is_refused(world: LogWorld) -> None:
    found = half(world)
    with pytest.raises(MessageError, match="REAL_TOPIC"):
        committed_record(msgspec.structs.replace(found, properties_bytes=b"PGROUP\x01pg\x02"), 18)


# Deciding


def test_commit_delivers_and_records_it(world: LogWorld) -> None:
    found = half(world)
    assert commit(world, found) == [PutStatus.PUT_OK]
    (final,) = world.messages("orders")
    assert (final.queue_id, final.sys_flag, final.prepared_transaction_offset) == (3, 0x8, found.log_offset)
    assert dict(final.properties) == {
        "UNIQ_KEY": "ID-x",
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "__transactionId__": "ID-x",
    }
    assert state_of(world, 0) is TransactionState.COMMITTED
    assert op_bodies(world) == []
    world.run(3)
    assert op_bodies(world) == [b"0,"]


def test_op_record_is_as_java_writes_it(world: LogWorld) -> None:
    commit(world, half(world))
    world.run(3)
    (op,) = world.messages(HALF_OP_TOPIC)
    assert dict(op.properties) == {"TAGS": "d", "WAIT": "true"}
    assert (op.queue_id, op.sys_flag, op.born_host_bytes, op.store_host_bytes) == (0, 0, STORE_HOST, STORE_HOST)


def test_roll_back_delivers_nothing_and_is_recorded(world: LogWorld) -> None:
    world.transactions.roll_back(half(world))
    world.run(3)
    assert op_bodies(world) == [b"0,"]
    assert world.messages("orders") == []
    assert state_of(world, 0) is TransactionState.DECIDED


def test_commit_of_a_delayed_message_waits_first(world: LogWorld) -> None:
    world.delay.start()
    found = half(world, DELAY="2")
    commit(world, found)
    (waiting,) = world.messages(SCHEDULE_TOPIC)
    assert (waiting.queue_id, waiting.sys_flag, waiting.prepared_transaction_offset) == (1, 0x8, found.log_offset)
    assert "TRAN_MSG" not in waiting.properties
    assert state_of(world, 0) is TransactionState.COMMITTED
    world.run(5.1)
    assert world.bodies("orders", 3) == [b"x"]


def test_commit_twice_delivers_once(world: LogWorld) -> None:
    found = half(world)
    told: list[PutStatus] = []
    world.transactions.commit(found, told.append)
    world.transactions.commit(found, told.append)  # in the same turn
    world.clock.advance(0.001)  # written, not dispatched
    world.transactions.commit(found, told.append)
    world.run(1)
    world.transactions.commit(found, told.append)  # known to the table
    assert told == [PutStatus.PUT_OK] * 4
    assert world.bodies("orders", 3) == [b"x"]


def test_commit_and_roll_back_of_what_is_committed_change_nothing(world: LogWorld) -> None:
    found = half(world)
    commit(world, found)
    world.run(4)
    world.transactions.roll_back(found)
    world.run(4)
    assert op_bodies(world) == [b"0,"]
    assert state_of(world, 0) is TransactionState.COMMITTED


def test_commit_that_is_not_stored_decides_nothing(world: LogWorld) -> None:
    found = half(world)
    world.disk.fail_write(1, under=ROOT / "commitlog")
    assert commit(world, found) == [PutStatus.NOT_STORED]
    world.run(4)
    assert op_bodies(world) == []
    assert state_of(world, 0) is TransactionState.PREPARED
    assert commit(world, found) == [PutStatus.PUT_OK]
    assert world.bodies("orders", 3) == [b"x"]


# Op records


def test_decisions_gather_into_one_op_record(world: LogWorld) -> None:
    halves = [half(world, b"%d" % number) for number in range(5)]
    for number, found in enumerate(halves):
        if number % 2:
            world.transactions.roll_back(found)
        else:
            commit(world, found)
    world.run(3)
    # Commits count when they are written, in the turn after, hence behind the next rollback or not.
    (body,) = op_bodies(world)
    assert sorted(body.split(b",")) == [b"", b"0", b"1", b"2", b"3", b"4"]


def test_op_record_that_is_full_is_written_at_once() -> None:
    world = LogWorld(transaction_op_msg_max_size=20)
    world.transactions.start()
    halves = [half(world, b"%d" % number) for number in range(15)]
    for found in halves[:12]:
        world.transactions.roll_back(found)
    world.run(0.01)
    assert op_bodies(world) == [b"0,1,2,3,4,5,6,7,8,9,", b"10,11,"]


def test_op_record_that_is_not_stored_is_written_later(world: LogWorld) -> None:
    world.transactions.roll_back(half(world))
    world.disk.fail_write(1, under=ROOT / "commitlog")
    world.run(3.1)
    assert op_bodies(world) == []
    world.run(3)
    assert op_bodies(world) == [b"0,"]


def test_stop_writes_what_was_gathered(world: LogWorld) -> None:
    world.transactions.roll_back(half(world))
    world.transactions.stop()
    assert op_bodies(world) == [b"0,"]


def test_start_after_a_crash_records_commits_that_lack_their_op_record(world: LogWorld) -> None:
    first, second, third = (half(world, b"%d" % number) for number in range(3))
    commit(world, first)
    world.run(4)
    commit(world, third)
    assert op_bodies(world) == [b"0,"]
    after = world.killed()
    after.transactions.start(unclean=True)
    after.run(3.1)
    assert op_bodies(after) == [b"0,", b"2,"]
    assert state_of(after, second.queue_offset) is TransactionState.PREPARED


def test_decision_about_a_half_record_that_was_put_again_reaches_its_copy(world: LogWorld) -> None:
    found = half(world)
    world.run(61)
    assert [other.queue_offset for other in world.messages(HALF_TOPIC)] == [0, 1, 2]
    world.transactions.roll_back(found)
    world.run(3.1)
    assert op_bodies(world)[-1] == b"0,2,"
    assert world.store.transactions.pending_count == 0


# After a crash


@pytest.mark.parametrize("seed", range(16))
def test_crash_at_any_step_keeps_decisions_and_delivers_once(seed: int) -> None:
    chance = Random(seed)
    world = LogWorld(transaction_check_interval=2_000, transaction_time_out=1_000)
    durable: set[bytes] = set()
    number = 0
    for _ in range(3):
        world.disk.stop_at(world.disk.steps + chance.randrange(20, 300), tear_at=chance.randrange(0, 600))
        with suppress(SimulatedCrash):
            world.transactions.start(unclean=True)
            for _ in range(12):
                number += 1
                found = half(world, b"%03d" % number)
                if number % 3:
                    world.transactions.commit(found, lambda status: None)
                world.run(0.7)
                if not number % 4:
                    world.store.flush()
                    durable |= {done.body for done in world.messages("orders")}
        world = world.killed() if chance.random() < 0.5 else world.crashed(chance.randrange(1 << 30))
    world.transactions.start(unclean=True)
    # Its producer knows of every one whose half message is still there; it is asked, and commits those it had.
    for _ in range(6):
        world.run(2.5)
        world.writer.make_visible()
        for pending in world.store.transactions.pending(1000):
            data = world.store.record_at(pending.log_offset)
            assert data is not None
            found = decode_record(data)
            if int(found.body) % 3:
                world.transactions.commit(found, lambda status: None)
            else:
                world.transactions.roll_back(found)
        world.run(3.5)
    delivered = [found.body for found in world.messages("orders")]
    assert len(delivered) == len(set(delivered))
    assert durable <= set(delivered)
    wanted = {found.body for found in world.messages(HALF_TOPIC) if int(found.body) % 3}
    assert set(delivered) == wanted
    assert world.store.transactions.pending_count == 0
    end = world.store.max_offset(HALF_TOPIC, 0)
    assert world.offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0) == end
