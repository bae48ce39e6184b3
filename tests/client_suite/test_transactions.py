"""Transactions: committed, rolled back, left open and asked about."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import fusee
from fusee import TransactionState
from fusee.client.hooks import EndTransactionContext
from fusee.client.transaction import TransactionProducer
from fusee.errors import MessageError
from tests.client_suite.inbox import Inbox
from tests.client_suite.stage import Stage, scene


def never_asked(message: fusee.ReceivedMessage) -> bool:
    raise AssertionError(f"{message.body!r} was decided, and is asked about")


@pytest.mark.quick
@scene
async def test_transaction_when_block_is_left_delivers_the_message(stage: Stage) -> None:
    topic = await stage.topic()
    inbox = Inbox()
    async with stage.mq.consumer(topic, group=stage.group(), consume_from="first", listener=inbox.take):
        async with stage.mq.transaction(topic, b"paid", tag="t", key="k", check=never_asked) as transaction:
            assert inbox.messages == []
        await inbox.holds([b"paid"])
    [message] = inbox.messages
    assert transaction.sent is not None
    assert transaction.is_confirmed
    assert transaction.state is TransactionState.COMMIT
    assert message.message_id == transaction.sent.message_id == message.transaction_id
    assert (message.topic, message.tag, message.keys) == (topic, "t", ("k",))


@scene
async def test_transaction_when_block_raises_forgets_the_message(stage: Stage) -> None:
    topic = await stage.topic()
    with pytest.raises(ZeroDivisionError):
        async with stage.mq.transaction(topic, b"never", check=never_asked):
            raise ZeroDivisionError
    async with stage.mq.transaction(topic, b"neither", check=never_asked) as transaction:
        transaction.rollback()
    async with stage.mq.transaction(topic, b"this one", check=never_asked):
        pass
    messages = await stage.stored(topic, 1)
    assert [message.body for message in messages] == [b"this one"]


@scene
async def test_transaction_when_left_open_is_decided_by_the_check(stage: Stage) -> None:
    topic = await stage.topic()
    asked: Counter[bytes] = Counter()

    async def check(message: fusee.ReceivedMessage) -> TransactionState:
        asked[message.body] += 1
        if message.body == b"not known at first" and asked[message.body] == 1:
            return TransactionState.UNKNOWN
        return TransactionState.ROLLBACK if message.body == b"no" else TransactionState.COMMIT

    for body in (b"yes", b"no", b"not known at first"):
        async with stage.mq.transaction(topic, body, check=check) as transaction:
            transaction.leave_open()
    await stage.until("every one is asked about", lambda: asked[b"yes"] and asked[b"no"])
    messages = await stage.stored(topic, 2)
    assert sorted(message.body for message in messages) == [b"not known at first", b"yes"]
    assert asked[b"not known at first"] >= 2


@scene
async def test_transaction_when_listener_decides_ends_as_it_says(stage: Stage) -> None:
    topic = await stage.topic()
    loop = asyncio.get_running_loop()
    checked: list[str] = []

    def execute(message: fusee.Message, argument: object) -> TransactionState:
        # A plain function may block, so it is not on the loop.
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        assert isinstance(argument, TransactionState)
        return argument

    def check(message: fusee.ReceivedMessage) -> bool:
        loop.call_soon_threadsafe(checked.append, message.body.decode())
        return True

    async with stage.mq.transaction_producer(group=stage.name("PG"), execute=execute, check=check) as producer:
        results = {
            state: await producer.send_in_transaction(topic, state.name, state, key=state.name)
            for state in TransactionState
        }
        messages = await stage.stored(topic, 2)
    assert {state: result.state for state, result in results.items()} == {state: state for state in TransactionState}
    assert sorted(message.body for message in messages) == [b"COMMIT", b"UNKNOWN"]
    assert set(checked) == {"UNKNOWN"}
    for message in messages:
        assert message.message_id == results[TransactionState[message.body.decode()]].message_id


@scene
async def test_transaction_when_process_is_another_one_checks_for_its_group(stage: Stage) -> None:
    """The one that began it is gone; another member of the group answers for it."""
    topic = await stage.topic()
    group = stage.name("PG")

    async def lose(message: fusee.Message, argument: object) -> None:
        return None

    async def commit(message: fusee.ReceivedMessage) -> bool:
        return True

    async with stage.mq.transaction_producer(group=group, execute=lose, check=lambda message: None) as producer:
        await producer.send_in_transaction(topic, b"orphan")
    other = await stage.connect(instance_name=stage.name("other"))
    async with other.transaction_producer(group=group, check=commit, topics=[topic]):
        messages = await stage.stored(topic, 1)
    assert [message.body for message in messages] == [b"orphan"]


@scene
async def test_transaction_when_message_is_delayed_is_refused(stage: Stage) -> None:
    topic = await stage.topic()
    with pytest.raises(MessageError, match="delayed"):
        async with stage.mq.transaction(fusee.Message.of(topic, b"x", delay_level=1), check=never_asked):
            pass


@scene
async def test_transaction_hooks_when_ended_are_told_the_state(stage: Stage) -> None:
    topic = await stage.topic()
    seen: list[tuple[bytes, TransactionState, bool]] = []

    class Watcher:
        def end_transaction(self, context: EndTransactionContext) -> None:
            seen.append((context.message.body, context.state, context.from_check))

    async with TransactionProducer(
        stage.mq.producer(stage.name("PG")),
        execute=lambda message, argument: True,
        check=never_asked,
        hooks=[Watcher()],
    ) as producer:
        await producer.send_in_transaction(topic, b"x")
    assert seen == [(b"x", TransactionState.COMMIT, False)]
