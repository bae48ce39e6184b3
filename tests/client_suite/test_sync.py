"""The same calls, blocking."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import fusee
from fusee import sync
from fusee.errors import ClientStateError, ConnectError, TopicNotFoundError
from tests.client_suite.inbox import bodies
from tests.client_suite.stage import CLIENT_OPTIONS, WAIT_S, Cluster, LateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def opened(cluster: Cluster) -> Iterator[tuple[sync.Connection, str]]:
    """A blocking connection to the cluster, and a topic that no other test uses."""
    with cluster.serving() as name_server, sync.connect(name_server, **CLIENT_OPTIONS) as mq:
        topic = f"sync-{time.time_ns()}"
        mq.admin.create_topic(topic, queues=4)
        yield mq, topic


def eventually(what: str, check: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > limit:
            raise LateError(f"{what}: not within {WAIT_S:g} s")
        threading.Event().wait(0.02)


@pytest.mark.quick
def test_sync_when_sent_and_iterated_gives_each_message_once(cluster: Cluster) -> None:
    with opened(cluster) as (mq, topic):
        for body in bodies(20):
            assert mq.send(topic, body, tag="t", key="k").status is fusee.SendStatus.SEND_OK
        seen = []
        with mq.consumer(topic, group=f"GID_{topic}", consume_from="first") as messages:
            for message in messages:
                seen.append(message.body)
                if len(seen) == 20:
                    break
        assert sorted(seen) == sorted(bodies(20))


def test_sync_when_listener_blocks_it_runs_in_threads(cluster: Cluster) -> None:
    with opened(cluster) as (mq, topic):
        seen: list[tuple[bytes, bool]] = []
        gate = threading.Barrier(4, timeout=30)

        def listener(message: fusee.ReceivedMessage) -> None:
            gate.wait()
            seen.append((message.body, threading.current_thread() is threading.main_thread()))

        for body in bodies(8):
            mq.send(topic, body)
        with mq.consumer(topic, group=f"GID_{topic}", consume_from="first", listener=listener, consume_thread_max=4):
            eventually("all are consumed", lambda: len(seen) == 8)
        assert sorted(seen) == sorted((body, False) for body in bodies(8))


def test_sync_when_transaction_block_is_left_commits_or_rolls_back(cluster: Cluster) -> None:
    with opened(cluster) as (mq, topic):

        def check(message: fusee.ReceivedMessage) -> bool:
            raise AssertionError("it was decided")

        with mq.transaction(topic, b"yes", check=check):
            pass
        with pytest.raises(ZeroDivisionError), mq.transaction(topic, b"no", check=check):
            raise ZeroDivisionError
        with mq.pull_consumer(topic, group=f"GID_{topic}", consume_from="first") as consumer:
            found: list[bytes] = []

            def is_there() -> bool:
                found.extend(message.body for message in consumer.poll(200))
                return bool(found)

            eventually("it is there", is_there)
            assert found == [b"yes"]


def test_sync_when_requested_replies(cluster: Cluster) -> None:
    with (
        opened(cluster) as (mq, topic),
        mq.consumer(
            topic,
            group=f"GID_{topic}",
            consume_from="first",
            listener=lambda message: mq.reply(message, b"re: " + message.body),
        ),
    ):
        assert mq.request(topic, b"question", timeout_ms=30_000).body == b"re: question"


def test_sync_when_producer_is_used_by_threads_stores_all(cluster: Cluster) -> None:
    with opened(cluster) as (mq, topic):
        with mq.producer(f"PG_{topic}") as producer:

            def send(name: str) -> None:
                for body in bodies(25, name):
                    producer.send(topic, body)

            threads = [threading.Thread(target=send, args=(f"thread-{i}",)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        eventually("all are stored", lambda: mq.admin.topic_stats(topic).count == 100)


def test_sync_when_something_is_wrong_raises_the_same_errors(cluster: Cluster) -> None:
    with opened(cluster) as (mq, _):
        with pytest.raises(TopicNotFoundError), mq.consumer("no-such-topic", group="nobody"):
            pass
        with pytest.raises(ConnectError), sync.connect("127.0.0.1:1", connect_timeout_ms=1_000):
            pass
        mq.close()
        with pytest.raises(ClientStateError):
            mq.send("topic", b"x")
