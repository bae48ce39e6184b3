"""Transactions against a real broker in memory: every way to end, and every way to lose the end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from fusee.client import transaction as module
from fusee.client.hooks import EndTransactionContext
from fusee.client.producer import Producer
from fusee.client.received import ReceivedMessage
from fusee.client.results import SendResult, SendStatus
from fusee.client.session import Session
from fusee.client.transaction import Transaction, TransactionProducer, TransactionState
from fusee.errors import ClientStateError, ConfigError, FuseeError, MessageError, TooManyRequestsError, UnavailableError
from fusee.message.model import Message, StoredMessage
from fusee.message.topics import HALF_TOPIC
from fusee.wire.headers.transaction import CheckTransactionState
from tests.client.world import ClusterWorld
from tests.client.world import play as play_any

GROUP = "payments"
LONG_ENOUGH = 21.0
"""Seconds in which a broker has asked about every transaction that is open: it waits 6 and looks every 10."""

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


def play(scene: Callable[[ClusterWorld], Coroutine[Any, Any, None]], **settings: Any) -> None:
    play_any(scene, transaction_check_interval=10_000, **settings)


class _Ledger:
    """The durable state that a check looks at."""

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[ReceivedMessage] = []

    async def __call__(self, message: ReceivedMessage) -> Any:
        self.asked.append(message)
        verdict = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


def _ledger(*verdicts: Any) -> tuple[_Ledger, _Ledger]:
    ledger = _Ledger(*verdicts)
    return ledger, ledger


async def _producer(
    world: ClusterWorld, check: Any, session: Session | None = None, **options: Any
) -> TransactionProducer:
    session = session or await world.session()
    names = ("retry_times_when_send_failed", "send_msg_timeout_ms")
    producer = Producer(session, group=GROUP, **{name: options.pop(name) for name in names if name in options})
    transactions = TransactionProducer(producer, check=check, **options)
    await world.do(transactions.start())
    return transactions


async def _run(
    world: ClusterWorld,
    transaction: Transaction,
    work: Callable[[Transaction], Awaitable[None]] | None = None,
) -> Transaction:
    async def block() -> None:
        async with transaction:
            if work is not None:
                await work(transaction)

    await world.do(block())
    return transaction


async def _stored(world: ClusterWorld, topic: str = "orders", name: str = "broker-a") -> list[StoredMessage]:
    await world.advance(0.1)  # what is written becomes readable
    return world.stored(topic, name)


async def _delivered(world: ClusterWorld) -> list[StoredMessage]:
    return [message for name in world.brokers for message in await _stored(world, name=name)]


async def _bodies(world: ClusterWorld) -> list[bytes]:
    return [message.body for message in await _delivered(world)]


def test_block_that_ends_well_delivers_message_only_then() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(None)
        producer = await _producer(world, check)

        async def work(transaction: Transaction) -> None:
            assert await _bodies(world) == []
            assert len(await _stored(world, HALF_TOPIC)) == 1
            assert transaction.state is UNKNOWN

        transaction = await _run(
            world, producer.transaction("orders", "paid", tag="t", key="42", properties={"region": "eu"}), work
        )
        (message,) = await _delivered(world)
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, True)
        assert (message.body, message.tag, message.keys) == (b"paid", "t", ("42",))
        assert message.unique_id == transaction.transaction_id == (transaction.sent and transaction.sent.message_id)
        assert message.properties["PGROUP"] == GROUP
        assert message.properties["region"] == "eu"
        await world.advance(LONG_ENOUGH)
        assert ledger.asked == []
        await world.do(producer.close())

    play(scene)


def test_block_that_raises_rolls_back_and_lets_the_exception_go() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        producer = await _producer(world, check)
        transaction = producer.transaction("orders", b"paid")

        async def work(transaction: Transaction) -> None:
            raise LookupError("no money")

        with pytest.raises(LookupError, match="no money"):
            await _run(world, transaction, work)
        assert (transaction.state, transaction.is_confirmed) == (ROLLBACK, True)
        await world.advance(LONG_ENOUGH)
        assert await _bodies(world) == []
        assert ledger.asked == []
        await world.do(producer.close())

    play(scene)


def test_block_can_ask_for_rollback() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        producer = await _producer(world, _ledger(True)[1])

        async def work(transaction: Transaction) -> None:
            transaction.rollback()

        transaction = await _run(world, producer.transaction("orders", b"paid"), work)
        assert (transaction.state, transaction.is_confirmed) == (ROLLBACK, True)
        await world.advance(LONG_ENOUGH)
        assert await _bodies(world) == []
        await world.do(producer.close())

    play(scene)


@pytest.mark.parametrize(
    ("verdict", "delivered"),
    [(True, [b"paid"]), (False, []), (COMMIT, [b"paid"]), (ROLLBACK, []), (None, []), (UNKNOWN, [])],
)
def test_block_left_open_is_decided_by_check(verdict: Any, delivered: list[bytes]) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(verdict)
        producer = await _producer(world, check)

        async def work(transaction: Transaction) -> None:
            transaction.leave_open()
            if verdict is True:
                raise TimeoutError("the database did not answer")

        transaction = producer.transaction("orders", b"paid", key="42")
        if verdict is True:
            with pytest.raises(TimeoutError):
                await _run(world, transaction, work)
        else:
            await _run(world, transaction, work)
        assert (transaction.state, transaction.is_confirmed) == (UNKNOWN, False)
        assert ledger.asked == []
        await world.advance(LONG_ENOUGH)
        assert await _bodies(world) == delivered
        asked = ledger.asked[0]
        assert (asked.body, asked.topic, asked.keys) == (b"paid", "orders", ("42",))
        assert (asked.message_id, asked.transaction_id) == (transaction.transaction_id,) * 2
        before = len(ledger.asked)
        await world.advance(LONG_ENOUGH)
        assert (len(ledger.asked) > before) is (verdict in (None, UNKNOWN))
        assert await _bodies(world) == delivered
        await world.do(producer.close())

    play(scene)


@pytest.mark.parametrize(("verdict", "delivered"), [(True, [b"paid"]), (False, [])])
def test_producer_dies_between_half_and_end_and_another_of_the_group_is_asked(
    verdict: bool, delivered: list[bytes]
) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        first_ledger, first_check = _ledger(not verdict)
        session = await world.session("10.0.9.77")
        first = await _producer(world, first_check, session)
        await world.do(first.transaction("orders", b"paid").__aenter__())
        world.network.weather("10.0.9.77", "10.0.0.1").lossy = True
        world.network.end_host("10.0.9.77")
        await world.settle()

        second_ledger, second_check = _ledger(verdict)
        second = await _producer(world, second_check, topics=("orders",))
        await world.advance(LONG_ENOUGH)
        assert [message.body for message in second_ledger.asked] == [b"paid"]
        assert first_ledger.asked == []
        assert await _bodies(world) == delivered
        await world.do(second.close())
        await world.do(first.close())

    play(scene)


def test_end_is_lost_and_check_decides() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        session = await world.session("10.0.9.77")
        producer = await _producer(world, check, session)
        weather = world.network.weather("10.0.9.77", "10.0.0.1")

        async def work(transaction: Transaction) -> None:
            weather.lossy = True

        transaction = await _run(world, producer.transaction("orders", b"paid"), work)
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, False)
        assert await _bodies(world) == []
        weather.lossy = False
        world.network.cut("10.0.9.77", "10.0.0.1")
        await world.advance(2 * LONG_ENOUGH)
        assert len(ledger.asked) == 1
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


def test_answer_to_commit_is_lost_and_message_is_not_committed_twice() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        session = await world.session("10.0.9.77")
        producer = await _producer(world, check, session)
        weather = world.network.weather("10.0.9.77", "10.0.0.1")

        async def work(transaction: Transaction) -> None:
            weather.latency = 2.0  # two seconds there and two back: longer than the client waits

        transaction = await _run(world, producer.transaction("orders", b"paid"), work)
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, False)
        weather.latency = 0.0
        await world.advance(2 * LONG_ENOUGH)
        assert ledger.asked == []
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


def test_broker_dies_and_returns_with_transaction_still_open() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        await world.advance(1.0)
        ledger, check = _ledger(True)
        producer = await _producer(world, check, topics=("orders",))

        async def work(transaction: Transaction) -> None:
            await world.advance(2.0)
            await world.stop_broker("broker-a")

        transaction = await _run(world, producer.transaction("orders", b"paid"), work)
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, False)
        await world.start_broker("broker-a")
        await world.advance(2 * LONG_ENOUGH)
        assert len(ledger.asked) == 1
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


def test_work_that_takes_long_is_not_asked_about_and_is_committed_once() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        producer = await _producer(world, check)

        async def work(transaction: Transaction) -> None:
            await world.advance(3 * LONG_ENOUGH)
            assert len(await _stored(world, HALF_TOPIC)) > 2  # the broker did ask

        # driven by hand: the block itself lets time pass
        transaction = producer.transaction("orders", b"paid")
        await world.do(transaction.__aenter__())
        await work(transaction)
        await world.do(transaction.__aexit__(None, None, None))
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, True)
        await world.advance(3 * LONG_ENOUGH)
        assert ledger.asked == []
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


def test_work_longer_than_immunity_is_ended_as_answer_to_the_question() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        producer = await _producer(world, check)
        transaction = producer.transaction("orders", b"paid", check_immunity_s=20)
        await world.do(transaction.__aenter__())
        await world.advance(3 * LONG_ENOUGH)
        await world.do(transaction.__aexit__(None, None, None))
        assert transaction.is_confirmed
        await world.advance(3 * LONG_ENOUGH)
        assert ledger.asked == []
        assert [message.properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] for message in await _delivered(world)] == ["20"]
        await world.do(producer.close())

    play(scene)


def test_copy_that_a_retry_left_on_another_broker_is_rolled_back() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        producer = await _producer(world, check, topics=("orders",))
        await world.settle()
        queues = await world.do(producer.producer.queues("orders"))
        orphan, chosen = (
            next(each for each in queues if each.broker_name == name) for name in ("broker-a", "broker-b")
        )
        transaction = producer.transaction("orders", b"paid", queue=chosen)

        await world.do(_send(producer, transaction.message, orphan))
        await world.do(transaction.__aenter__())
        await world.advance(LONG_ENOUGH)
        await world.do(transaction.__aexit__(None, None, None))
        await world.advance(LONG_ENOUGH)
        assert ledger.asked == []
        assert [message.body for message in await _stored(world, "orders", "broker-b")] == [b"paid"]
        assert await _stored(world, "orders", "broker-a") == []

        late = producer.transaction("orders", b"late", queue=chosen)
        await _run(world, late)
        await world.do(_send(producer, late.message, orphan))
        await world.advance(LONG_ENOUGH)
        assert ledger.asked == []
        assert await _bodies(world) == [b"paid", b"late"]
        await world.do(producer.close())

    play(scene, brokers=2)


async def _send(producer: TransactionProducer, message: Message, queue: Any = None) -> SendResult:
    return await producer.producer.send(message, queue=queue)


def test_half_message_whose_sending_was_cancelled_is_rolled_back_when_asked_about() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        session = await world.session("10.0.9.77")
        producer = await _producer(world, check, session, topics=("orders",))
        await _run(world, producer.transaction("orders", b"first"))
        world.network.weather("10.0.9.77", "10.0.0.1").latency = 0.5
        beginning = asyncio.ensure_future(producer.transaction("orders", b"paid").__aenter__())
        await world.advance(0.6)
        beginning.cancel()
        await world.advance(1.0)
        assert beginning.cancelled()
        assert len(await _stored(world, HALF_TOPIC)) == 2
        await world.advance(2 * LONG_ENOUGH)
        assert len(await _stored(world, HALF_TOPIC)) == 3
        assert ledger.asked == []
        assert await _bodies(world) == [b"first"]
        await world.do(producer.close())

    play(scene)


def test_cancelled_block_rolls_back_even_when_cancelled_again() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        session = await world.session("10.0.9.77")
        producer = await _producer(world, check, session)
        transaction = producer.transaction("orders", b"paid")
        began = asyncio.Event()

        async def block() -> None:
            async with transaction:
                began.set()
                await asyncio.Event().wait()

        running = asyncio.ensure_future(block())
        await world.do(began.wait())
        world.network.weather("10.0.9.77", "10.0.0.1").latency = 0.1
        running.cancel()
        await world.settle()
        running.cancel()
        await world.settle()
        assert running.cancelled()
        await world.advance(LONG_ENOUGH)
        assert (transaction.state, transaction.is_confirmed) == (ROLLBACK, True)
        assert ledger.asked == []
        assert await _bodies(world) == []
        await world.do(producer.close())

    play(scene)


class _Unsafe(Producer):
    """A producer whose broker could not flush in time."""

    def send(self, *arguments: Any, **options: Any) -> asyncio.Future[SendResult]:
        sending = super().send(*arguments, **options)

        async def changed() -> SendResult:
            return msgspec.structs.replace(await sending, status=SendStatus.FLUSH_DISK_TIMEOUT)

        return asyncio.ensure_future(changed())


def test_half_message_stored_unsafely_is_rolled_back_and_work_not_begun() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        worked: list[Message] = []

        async def execute(message: Message, argument: object) -> bool:
            worked.append(message)
            return True

        producer = TransactionProducer(_Unsafe(await world.session(), group=GROUP), check=check, execute=execute)
        await world.do(producer.start())
        transaction = producer.transaction("orders", b"paid")
        with pytest.raises(UnavailableError, match="FLUSH_DISK_TIMEOUT") as caught:
            await world.do(transaction.__aenter__())
        assert (caught.value.code, caught.value.topic) == (10, "orders")
        result = await world.do(producer.send_in_transaction("orders", b"paid"))
        assert (result.state, result.is_confirmed, result.sent.status) == (
            ROLLBACK,
            True,
            SendStatus.FLUSH_DISK_TIMEOUT,
        )
        await world.advance(LONG_ENOUGH)
        assert worked == []
        assert ledger.asked == []
        assert await _bodies(world) == []
        await world.do(producer.close())

    play(scene)


# With a function


@pytest.mark.parametrize(("verdict", "state"), [(True, COMMIT), (ROLLBACK, ROLLBACK), (None, UNKNOWN)])
def test_send_in_transaction_ends_as_execute_says(verdict: Any, state: TransactionState) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        seen: list[tuple[bytes, object]] = []

        async def execute(message: Message, argument: object) -> Any:
            seen.append((message.body, argument))
            assert message.unique_id
            return verdict

        producer = await _producer(world, _ledger(None)[1], execute=execute)
        result = await world.do(producer.send_in_transaction("orders", b"paid", "argument", tag="t"))
        assert (result.state, result.is_confirmed) == (state, state is not UNKNOWN)
        assert result.message_id == result.sent.message_id
        assert seen == [(b"paid", "argument")]
        assert await _bodies(world) == ([b"paid"] if state is COMMIT else [])
        await world.do(producer.close())

    play(scene)


def test_execute_that_raises_leaves_transaction_to_check() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(True)
        producer = await _producer(world, check)

        async def execute(message: Message, argument: object) -> bool:
            raise LookupError("the database is gone")

        with pytest.raises(LookupError) as caught:
            await world.do(producer.send_in_transaction("orders", b"paid", execute=execute))
        assert "the check will decide" in caught.value.__notes__[0]
        assert await _bodies(world) == []
        await world.advance(LONG_ENOUGH)
        assert len(ledger.asked) == 1
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


def test_execute_that_says_nonsense_leaves_transaction_to_check() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        producer = await _producer(world, _ledger(False)[1])

        async def execute(message: Message, argument: object) -> Any:
            return "yes"

        with pytest.raises(TypeError, match="True, False or None, not 'yes'"):
            await world.do(producer.send_in_transaction("orders", b"paid", execute=execute))
        await world.do(producer.close())

    play(scene)


def test_plain_functions_run_in_threads() -> None:
    async def scene(world: ClusterWorld) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        world.create_topic("orders")
        here = threading.get_ident()
        threads: list[int] = []

        def execute(message: Message, argument: object) -> TransactionState:
            threads.append(threading.get_ident())
            return UNKNOWN

        def check(message: ReceivedMessage) -> Awaitable[bool]:
            threads.append(threading.get_ident())

            async def later() -> bool:
                threads.append(threading.get_ident())
                return True

            return later()

        async def thread_has_run() -> None:
            # there is one thread: when this is back, what was given to it before is, too
            await world.settle()
            await asyncio.to_thread(lambda: None)
            await world.settle()

        producer = await _producer(world, check)
        sending = asyncio.ensure_future(producer.send_in_transaction("orders", b"paid", execute=execute))
        await thread_has_run()
        await thread_has_run()
        assert (await sending).state is UNKNOWN
        await world.advance(LONG_ENOUGH)
        await thread_has_run()
        assert await _bodies(world) == [b"paid"]
        assert here not in threads[:2]
        assert threads[2] == here
        await world.do(producer.close())

    play(scene)


# The check


def test_check_that_raises_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger, check = _ledger(LookupError("the database is gone"), "nonsense", True)
        producer = await _producer(world, check)
        transaction = producer.transaction("orders", b"paid")
        transaction.leave_open()
        await _run(world, transaction)
        await world.advance(5 * LONG_ENOUGH)
        assert len(ledger.asked) == 3
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    with caplog.at_level(logging.ERROR, module.__name__):
        play(scene)
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "the database is gone",
        "what became of a transaction is a TransactionState, True, False or None, not 'nonsense'",
    ]


def test_several_questions_about_one_transaction_are_one_call_and_the_newest_is_answered() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        calls: list[str] = []
        may_answer = asyncio.Event()

        async def check(message: ReceivedMessage) -> bool:
            calls.append(message.message_id)
            await may_answer.wait()
            return True

        producer = await _producer(world, check)
        transaction = producer.transaction("orders", b"paid")
        transaction.leave_open()
        await _run(world, transaction)
        await world.advance(3 * LONG_ENOUGH)
        assert len(await _stored(world, HALF_TOPIC)) > 2
        may_answer.set()
        await world.advance(3 * LONG_ENOUGH)
        assert len(calls) == 1
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


def test_questions_beyond_the_limit_are_dropped_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        running = most = 0
        may_answer = asyncio.Event()

        async def check(message: ReceivedMessage) -> bool:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await may_answer.wait()
            running -= 1
            return True

        producer = await _producer(world, check, check_thread_pool_max_size=2, check_request_hold_max=1)
        for number in range(5):
            transaction = producer.transaction("orders", f"{number}")
            transaction.leave_open()
            await _run(world, transaction)
        await world.advance(LONG_ENOUGH)
        assert (running, most) == (2, 2)
        may_answer.set()
        await world.advance(10 * LONG_ENOUGH)
        assert sorted(await _bodies(world)) == [b"0", b"1", b"2", b"3", b"4"]
        assert most == 2
        await world.do(producer.close())

    play(scene)
    assert any("the broker will ask again" in record.getMessage() for record in caplog.records)


def test_close_stops_a_check_that_hangs() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ended: list[str] = []

        async def check(message: ReceivedMessage) -> bool:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")
            return True

        session = await world.session()
        producer = await _producer(world, check, session)
        transaction = producer.transaction("orders", b"paid")
        transaction.leave_open()
        await _run(world, transaction)
        await world.advance(LONG_ENOUGH)
        await world.do(producer.close())
        assert ended == ["cancelled"]
        with pytest.raises(ClientStateError):
            await world.do(producer.transaction("orders", b"paid").__aenter__())

    play(scene)


def test_question_of_a_broker_that_does_not_say_its_name_is_never_taken_for_one_about_a_copy() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger = _Ledger(None)
        producer = await _producer(world, ledger)
        transaction = producer.transaction("orders", b"paid")
        await world.do(transaction.__aenter__())
        place = transaction.place
        (half,) = await _stored(world, HALF_TOPIC)
        question = CheckTransactionState(half_queue_offset=77, log_offset=78, transaction_id=transaction.transaction_id)
        producer.check_transaction("broker.example:10911", question, half)
        assert transaction.place == place
        producer.check_transaction("10.0.0.1:10911", question, half)
        assert transaction.place is not None
        assert (transaction.place.half_queue_offset, transaction.place.log_offset) == (77, 78)
        transaction.place = place
        await world.do(transaction.__aexit__(None, None, None))
        assert transaction.is_confirmed
        producer.check_transaction("broker.example:10911", question, half)
        await world.settle()
        assert len(ledger.asked) == 1
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


def test_question_that_comes_while_the_end_is_under_way_waits_for_its_outcome() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger = _Ledger(True)
        producer = await _producer(world, ledger, await world.session("10.0.9.77"))
        transaction = producer.transaction("orders", b"paid")
        await world.do(transaction.__aenter__())
        (half,) = await _stored(world, HALF_TOPIC)
        world.network.weather("10.0.9.77", "10.0.0.1").latency = 0.5
        ending = asyncio.ensure_future(transaction.__aexit__(LookupError, LookupError(), None))
        await world.advance(0.1)
        question = CheckTransactionState(half_queue_offset=0, log_offset=half.log_offset, broker_name="broker-a")
        producer.check_transaction("10.0.0.1:10911", question, half)
        await world.within(5.0, ending)
        assert transaction.is_confirmed
        await world.advance(LONG_ENOUGH)
        assert ledger.asked == []  # it was rolled back, and that is the answer
        assert await _bodies(world) == []
        await world.do(producer.close())

    play(scene)


def test_message_that_is_begun_again_after_a_failure_is_not_rolled_back() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        ledger = _Ledger(True)
        producer = await _producer(world, ledger, await world.session("10.0.9.77"))
        message = Message("orders", b"paid", {"UNIQ_KEY": "0A0000010001" + "0" * 20})
        beginning = asyncio.ensure_future(producer.transaction(message).__aenter__())
        await asyncio.sleep(0)
        beginning.cancel()
        await world.settle()
        transaction = producer.transaction(message)
        transaction.leave_open()
        await _run(world, transaction)
        await world.advance(LONG_ENOUGH)
        assert len(ledger.asked) == 1
        assert await _bodies(world) == [b"paid"]
        await world.do(producer.close())

    play(scene)


# Rules


class _Hook:
    def __init__(self) -> None:
        self.seen: list[EndTransactionContext] = []

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.seen.append(context)


def test_hooks_see_every_end() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        hook = _Hook()
        producer = await _producer(world, _ledger(False)[1], hooks=(hook,))
        first = await _run(world, producer.transaction("orders", b"one", tag="t"))
        second = producer.transaction("orders", b"two")
        second.leave_open()
        await _run(world, second)
        await world.advance(LONG_ENOUGH)
        assert [(each.message_id, each.state, each.from_check) for each in hook.seen] == [
            (first.transaction_id, COMMIT, False),
            (second.transaction_id, UNKNOWN, False),
            (second.transaction_id, ROLLBACK, True),
        ]
        for each in hook.seen:
            assert (each.group, each.broker_address, each.message.topic) == (GROUP, "10.0.0.1:10911", "orders")
            assert each.transaction_id == each.message_id
        assert [each.message.tag for each in hook.seen] == ["t", None, None]
        await world.do(producer.close())

    play(scene)


def test_what_cannot_be_a_transaction_is_refused() -> None:
    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        producer = await _producer(world, _ledger(None)[1])
        with pytest.raises(MessageError, match="cannot be delayed"):
            producer.transaction(Message.of("orders", b"paid", delay_level=3))
        with pytest.raises(ConfigError, match="needs execute="):
            await world.do(producer.send_in_transaction("orders", b"paid"))
        transaction = await _run(world, producer.transaction("orders", b"paid"))
        with pytest.raises(ClientStateError, match="begun already"):
            await world.do(transaction.__aenter__())
        assert repr(transaction) == f"<Transaction {transaction.transaction_id} of orders, COMMIT>"
        spare = Producer(await world.session(), group=GROUP)
        with pytest.raises(ConfigError, match="check="):
            TransactionProducer(spare, check=None)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="must be positive"):
            TransactionProducer(spare, check=_ledger(None)[1], check_request_hold_max=0)
        await world.do(producer.close())

    play(scene)


def test_open_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 2)

    async def scene(world: ClusterWorld) -> None:
        world.create_topic("orders")
        producer = await _producer(world, _ledger(None)[1])
        open_ones = [producer.transaction("orders", b"paid") for _ in range(2)]
        for transaction in open_ones:
            await world.do(transaction.__aenter__())
        with pytest.raises(TooManyRequestsError, match="2 transactions are open"):
            await world.do(producer.transaction("orders", b"paid").__aenter__())
        await world.do(open_ones[0].__aexit__(None, None, None))
        await _run(world, producer.transaction("orders", b"paid"))
        await world.do(open_ones[1].__aexit__(None, None, None))
        assert len(await _bodies(world)) == 3
        await world.do(producer.close())

    play(scene)


def test_begin_that_fails_says_why_and_leaves_nothing_open() -> None:
    async def scene(world: ClusterWorld) -> None:
        producer = await _producer(world, _ledger(None)[1])
        with pytest.raises(FuseeError, match="'nowhere'"):
            await world.do(producer.transaction("nowhere", b"paid").__aenter__())
        await world.do(producer.close())
        with pytest.raises(FuseeError, match="'nowhere'"):
            await _producer(world, _Ledger(None), producer.producer.session, topics=("nowhere",))
        await world.do((await _producer(world, _Ledger(None), producer.producer.session)).close())

    play(scene, auto_create_topic_enable=False)
