from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

import fusee.sync
from fusee.client.handlers import RetryPolicy
from fusee.client.received import ReceivedMessage
from fusee.errors import ClientStateError, TopicNotFoundError


def send_all(mq: fusee.sync.Connection, topic: str, numbers: Iterable[int]) -> None:
    for future in [mq.send_soon(topic, b"%03d" % number) for number in numbers]:
        future.result()


def test_loop_gets_every_message(mq: fusee.sync.Connection, topic: str) -> None:
    send_all(mq, topic, range(50))
    seen = []
    with mq.consumer(topic, group=topic, consume_from="first") as messages:
        for message in messages:
            seen.append(message.body)
            if len(seen) == 50:
                break
    assert sorted(seen) == [b"%03d" % number for number in range(50)]
    assert mq.admin.lag(topic).total == 0


def test_loop_over_batches(mq: fusee.sync.Connection, topic: str) -> None:
    send_all(mq, topic, range(50))
    seen: list[bytes] = []
    with mq.consumer(topic, group=topic, consume_from="first") as consumer:
        for batch in consumer.batches(10):
            assert 1 <= len(batch) <= 10
            seen += [message.body for message in batch]
            if len(seen) == 50:
                break
    assert len(set(seen)) == 50


def test_exception_that_leaves_the_with_has_the_message_delivered_again(clocked: fusee.sync.EmbeddedServer) -> None:
    with clocked.connect() as mq:
        mq.send("orders", b"hard")
        consumer = mq.consumer("orders", group="g", consume_from="first")
        with pytest.raises(ValueError, match="too hard"), consumer as messages:
            raise ValueError(f"too hard: {next(iter(messages))}")
        with mq.consumer("orders", group="g") as messages:
            clocked.advance(15)
            again = next(iter(messages))
            assert (again.body, again.reconsume_times) == (b"hard", 1)


def test_close_by_another_thread_ends_a_loop_that_waits(mq: fusee.sync.Connection, topic: str) -> None:
    consumer = mq.consumer(topic, group=topic)
    consumer.start()
    looping = threading.Event()

    def loop() -> str:
        steps = iter(consumer)
        looping.set()
        return str(list(steps))

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(loop)
        looping.wait()
        consumer.close()
        assert ended.result(10) == "[]"
    with pytest.raises(ClientStateError, match="closed"):
        iter(consumer)


def test_close_inside_its_own_loop_does_not_wait_for_the_next_step(mq: fusee.sync.Connection, topic: str) -> None:
    mq.send(topic, b"one")
    consumer = mq.consumer(topic, group=topic, consume_from="first")
    consumer.start()
    for message in consumer:
        assert message.body == b"one"
        consumer.close(timeout=1000)


def test_loops_of_several_threads_share_the_messages(mq: fusee.sync.Connection, topic: str) -> None:
    send_all(mq, topic, range(100))
    seen: SimpleQueue[bytes] = SimpleQueue()
    with mq.consumer(topic, group=topic, consume_from="first") as consumer, ThreadPoolExecutor(4) as threads:

        def loop() -> None:
            for message in consumer:
                seen.put(message.body)

        loops = [threads.submit(loop) for _ in range(4)]
        bodies = {seen.get(timeout=10) for _ in range(100)}
        consumer.close()
        for each in loops:
            each.result(10)
    assert len(bodies) == 100
    assert seen.empty()


def test_listener_is_called_in_threads_side_by_side(mq: fusee.sync.Connection, topic: str) -> None:
    together = threading.Barrier(3, timeout=10)
    names: SimpleQueue[str] = SimpleQueue()

    def listener(message: ReceivedMessage) -> None:
        together.wait()
        names.put(threading.current_thread().name)

    with mq.consumer(topic, group=topic, listener=listener, consume_from="first"):
        send_all(mq, topic, range(3))
        assert "fusee-sync" not in {names.get(timeout=10) for _ in range(3)}


def test_listener_that_raises_gets_the_message_again_when_its_time_has_come(
    clocked: fusee.sync.EmbeddedServer,
) -> None:
    tries: list[int] = []
    began = clocked.now

    def listener(message: ReceivedMessage) -> None:
        tries.append(round((clocked.now - began).total_seconds()))
        if len(tries) < 4:
            raise ValueError("not yet")

    with clocked.connect() as mq, mq.consumer("orders", group="g", listener=listener, consume_from="first"):
        clocked.advance(1)
        began = clocked.now
        mq.send("orders", b"x")
        clocked.advance(3600)
        assert tries == [0, 10, 40, 100]


def test_pause_resume_and_seek(mq: fusee.sync.Connection, topic: str) -> None:
    queue = mq.send(topic, b"one").queue
    with mq.consumer(topic, group=topic, consume_from="first") as consumer:
        assert queue in consumer.assignment
        assert consumer.faults == {}
        steps = iter(consumer)
        assert next(steps).body == b"one"
        consumer.pause()
        mq.send(topic, b"two", queue=queue)
        consumer.resume()
        assert next(steps).body == b"two"
        consumer.seek(queue, "first")
        assert [next(steps).body, next(steps).body] == [b"one", b"two"]
        assert consumer.position(queue) == 1


def test_consumer_of_a_missing_topic_fails_at_the_start(mq: fusee.sync.Connection) -> None:
    with pytest.raises(TopicNotFoundError, match="no-such-topic"), mq.consumer("no-such-topic", group="g"):
        pass


def test_pull_consumer_polls_commits_and_seeks(mq: fusee.sync.Connection, topic: str) -> None:
    queue = mq.send(topic, b"one").queue
    with mq.pull_consumer(topic, group=topic, consume_from="first", auto_commit=False) as consumer:
        assert [message.body for message in consumer.poll(10_000)] == [b"one"]
        consumer.commit()
        assert consumer.committed(queue) == 1
        assert consumer.position(queue) == 1
        consumer.seek_to_begin(queue)
        assert [message.body for message in consumer.poll(10_000)] == [b"one"]
        consumer.pause(queue)
        assert consumer.paused == {queue}
        assert len(consumer.assignment) == 4


def test_handlers_run_until_the_connection_closes(server: fusee.sync.EmbeddedServer, topic: str) -> None:
    handled: SimpleQueue[dict[str, int]] = SimpleQueue()
    with server.connect() as mq:

        @mq.handler(topic, group=topic, consume_from="first", retry=RetryPolicy(max_attempts=2))
        def handle(order: dict[str, int]) -> None:
            handled.put(order)

        mq.start_handlers()
        mq.send(topic, {"number": 7})
        assert handled.get(timeout=10) == {"number": 7}
    handle({"number": 8})
    assert handled.get_nowait() == {"number": 8}
