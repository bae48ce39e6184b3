"""Ctrl-C in the moment between an outcome and the caller who waits for it: nothing counts that the caller never got."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import fusee.sync
from fusee.client.received import ReceivedMessage
from fusee.sync.portal import Call, portal


@contextmanager
def ctrl_c_when_it_is_there(monkeypatch: pytest.MonkeyPatch, *, after: int = 0) -> Iterator[None]:
    """A call of this thread, the next one or `after` some, is interrupted right after its outcome has come."""
    wait: Callable[..., Any] = Call.exception
    here = threading.get_ident()
    due_in = after

    def wait_and_be_interrupted(self: Call[Any], timeout: float | None = None) -> Any:
        nonlocal due_in
        outcome = wait(self, timeout)
        if threading.get_ident() == here:
            due_in -= 1
            if due_in == -1:
                raise KeyboardInterrupt
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(Call, "exception", wait_and_be_interrupted)
        yield


def rest_of(mq: fusee.sync.Connection, topic: str, count: int) -> list[bytes]:
    """The next messages of the group."""
    bodies: list[bytes] = []
    with mq.pull_consumer(topic, group=topic, consume_from="first") as consumer:
        while len(bodies) < count and (found := consumer.poll(3_000)):
            bodies += [message.body for message in found]
    return sorted(bodies)


def one_queue(server: fusee.sync.EmbeddedServer, topic: str) -> str:
    server.create_topics({topic: 1})
    return topic


def test_step_of_a_loop_that_never_arrived_is_not_taken_for_done(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = one_queue(server, "interrupted-step")
    for number in range(4):
        mq.send(topic, b"%d" % number)
    seen: list[bytes] = []
    with mq.consumer(topic, group=topic, consume_from="first") as messages:
        loop = iter(messages)
        seen += [next(loop).body, next(loop).body]
        with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
            next(loop)
        assert messages.position(fusee.MessageQueue(topic, "embedded", 0)) == 2
    assert seen == [b"0", b"1"]
    assert rest_of(mq, topic, 2) == [b"2", b"3"]


def test_step_of_a_loop_that_never_arrived_is_the_next_step(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = one_queue(server, "interrupted-next")
    for number in range(3):
        mq.send(topic, b"%d" % number)
    with mq.consumer(topic, group=topic, consume_from="first") as messages:
        loop = iter(messages)
        assert next(loop).body == b"0"
        with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
            next(loop)
        assert [next(loop).body, next(loop).body] == [b"1", b"2"]
    assert mq.admin.lag(topic).total == 0


def test_batch_that_never_arrived_is_not_taken_for_done(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = one_queue(server, "interrupted-batch")
    for number in range(6):
        mq.send(topic, b"%d" % number)
    with mq.consumer(topic, group=topic, consume_from="first") as consumer:
        batches = consumer.batches(2)
        assert [message.body for message in next(batches)] == [b"0", b"1"]
        with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
            next(batches)
        assert [message.body for message in next(batches)] == [b"2", b"3"]
        with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
            next(batches)
    assert rest_of(mq, topic, 2) == [b"4", b"5"]


def test_poll_that_never_arrived_is_not_taken_for_done(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = one_queue(server, "interrupted-poll")
    for number in range(4):
        mq.send(topic, b"%d" % number)
    with mq.pull_consumer(topic, group=topic, consume_from="first", max_poll_messages=2) as consumer:
        assert [message.body for message in consumer.poll()] == [b"0", b"1"]
        with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
            consumer.poll()
        assert [message.body for message in consumer.poll()] == [b"2", b"3"]
        with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
            consumer.seek_to_begin(fusee.MessageQueue(topic, "embedded", 0))
    with mq.pull_consumer(topic, group=topic, max_poll_messages=2) as consumer:
        assert [message.body for message in consumer.poll()] == [b"0", b"1"]
        with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
            consumer.poll()
    assert rest_of(mq, topic, 2) == [b"2", b"3"]


def test_transaction_that_never_began_for_its_caller_is_rolled_back(
    server: fusee.sync.EmbeddedServer, mq: fusee.sync.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = one_queue(server, "interrupted-transaction")

    def check(message: ReceivedMessage) -> None:
        raise AssertionError("it was decided")

    transaction = mq.transaction(topic, b"never", check=check)
    with ctrl_c_when_it_is_there(monkeypatch), pytest.raises(KeyboardInterrupt):
        transaction.__enter__()
    with mq.transaction(topic, b"always", check=check):
        pass
    assert rest_of(mq, topic, 1) == [b"always"]
    (producer,) = [task.result() for _, task in mq._target._shared._transactions.values()]
    assert producer._open == {}


def test_connection_that_never_arrived_is_closed(
    server: fusee.sync.EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = portal()
    target = here.run(lambda: fusee.connect(server.name_server))
    with ctrl_c_when_it_is_there(monkeypatch, after=1), pytest.raises(KeyboardInterrupt):
        fusee.sync.Connection.opened(here, lambda: target)
    assert here.run(lambda: target._closing) is not None
    here.call(target.close)
    assert target.state is fusee.ServiceState.SHUTDOWN_ALREADY
    with pytest.raises(fusee.ClientStateError, match="closed"):
        here.run(lambda: target.session)


def test_close_in_a_listener_of_plain_functions_does_not_wait_for_that_listener(
    server: fusee.sync.EmbeddedServer, topic: str
) -> None:
    with server.connect() as mq:
        closed = threading.Event()

        def listener(message: ReceivedMessage) -> None:
            mq.close()
            closed.set()

        mq.consumer(topic, group=topic, consume_from="first", listener=listener).start()
        mq.send(topic, b"x")
        assert closed.wait(10)
