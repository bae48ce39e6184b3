from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

import fusee.sync
from fusee.client.received import ReceivedMessage
from fusee.client.results import SendResult, SendStatus
from fusee.client.transaction import TransactionState
from fusee.errors import ClientStateError, ConnectError, MessageError
from fusee.message.model import Message


def bodies(mq: fusee.sync.Connection, topic: str, count: int) -> list[bytes]:
    """What is in a topic, when so many messages are there."""
    found: list[bytes] = []
    with mq.pull_consumer(topic, group=f"look-{topic}", consume_from="first") as consumer:
        while len(found) < count:
            polled = consumer.poll(10_000)
            assert polled, f"{len(found)} of {count} came"
            found += [message.body for message in polled]
        found += [message.body for message in consumer.poll(0)]
    return sorted(found)


def test_send_gives_the_result(mq: fusee.sync.Connection, topic: str) -> None:
    sent = mq.send(topic, b"hello", tag="paid", key="42", order_by="customer")
    assert sent.status is SendStatus.SEND_OK
    assert bodies(mq, topic, 1) == [b"hello"]
    assert mq.admin.messages_by_key(topic, "42")[0].tag == "paid"


def test_send_raises_where_it_is_called(mq: fusee.sync.Connection) -> None:
    with pytest.raises(MessageError):
        mq.send("not a topic", b"hello")


def test_sends_under_way_together_all_arrive(mq: fusee.sync.Connection, topic: str) -> None:
    sends: list[Future[SendResult]] = [mq.send_soon(topic, b"%03d" % number) for number in range(200)]
    wait(sends)
    assert len({send.result().message_id for send in sends}) == 200
    assert bodies(mq, topic, 200) == [b"%03d" % number for number in range(200)]


def test_send_from_many_threads(mq: fusee.sync.Connection, topic: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: mq.send(topic, b"%03d" % number), range(300)))
    assert bodies(mq, topic, 300) == [b"%03d" % number for number in range(300)]


def test_send_in_all_the_other_ways(mq: fusee.sync.Connection, topic: str) -> None:
    mq.send_oneway(topic, b"oneway")
    assert len(mq.send_batch([Message(topic=topic, body=b"a"), Message(topic=topic, body=b"b")]).message_ids) == 2
    called = threading.Event()
    outcome: list[object] = []

    def callback(result: SendResult | None, error: Exception | None) -> None:
        outcome.extend((result, error))
        called.set()

    mq.send_async(topic, b"callback", callback=callback)
    assert called.wait(10)
    assert isinstance(outcome[0], SendResult)
    assert bodies(mq, topic, 4) == [b"a", b"b", b"callback", b"oneway"]


def test_producer_of_its_own(mq: fusee.sync.Connection, topic: str) -> None:
    with mq.producer("own-producer", auto_batch=True) as producer:
        assert producer.group == "own-producer"
        assert len(producer.queues(topic)) == 4
        wait([producer.send_soon(topic, b"x") for _ in range(10)])
    with pytest.raises(ClientStateError, match="closed"):
        producer.send(topic, b"y")
    assert bodies(mq, topic, 10) == [b"x"] * 10


def test_transaction_commits_rolls_back_or_stays_open(mq: fusee.sync.Connection, topic: str) -> None:
    def check(message: ReceivedMessage) -> bool:
        return True

    with mq.transaction(topic, b"commit", check=check) as transaction:
        assert transaction.state is TransactionState.UNKNOWN
        assert transaction.transaction_id
    assert (transaction.state, transaction.is_confirmed) == (TransactionState.COMMIT, True)
    with pytest.raises(ValueError, match="no"), mq.transaction(topic, b"error", check=check) as transaction:
        raise ValueError("no")
    assert transaction.state is TransactionState.ROLLBACK
    with mq.transaction(topic, b"rollback", check=check) as transaction:
        transaction.rollback()
    assert transaction.state is TransactionState.ROLLBACK
    with mq.transaction(topic, b"open", check=check) as transaction:
        transaction.leave_open()
    assert transaction.state is TransactionState.UNKNOWN
    assert bodies(mq, topic, 1) == [b"commit"]


def test_transaction_before_its_block_says_so(mq: fusee.sync.Connection, topic: str) -> None:
    transaction = mq.transaction(topic, b"x", check=lambda message: None)
    with pytest.raises(ClientStateError, match="with"):
        transaction.rollback()


def test_transaction_left_open_is_decided_by_the_check_in_a_thread(clocked: fusee.sync.EmbeddedServer) -> None:
    asked: list[str] = []

    def check(message: ReceivedMessage) -> bool:
        asked.append(threading.current_thread().name)
        return message.body == b"good"

    with clocked.connect() as mq, mq.transaction_producer("group", check=check, topics=["orders"]) as producer:
        for body in (b"good", b"bad"):
            with producer.transaction("orders", body) as transaction:
                transaction.leave_open()
        clocked.advance(120)
        assert len(asked) == 2
        assert "fusee-sync" not in asked
        assert bodies(mq, "orders", 1) == [b"good"]


def test_send_in_transaction_runs_the_local_part(mq: fusee.sync.Connection, topic: str) -> None:
    def execute(message: Message, argument: object) -> bool:
        return argument == "commit"

    for argument in ("commit", "rollback"):
        mq.send_in_transaction(topic, argument, argument, execute=execute, check=bool)
    assert bodies(mq, topic, 1) == [b"commit"]


def test_request_is_answered(mq: fusee.sync.Connection, topic: str) -> None:
    def answer(message: ReceivedMessage) -> None:
        mq.reply(message, message.body.upper())  # a blocking call inside a listener

    with mq.consumer(topic, group=topic, listener=answer):
        assert mq.request(topic, b"hello", timeout_ms=10_000).body == b"HELLO"


def test_connect_without_a_name_server_fails_at_once_and_says_where() -> None:
    with pytest.raises(ConnectError, match="127.0.0.1:1"):
        fusee.sync.connect("127.0.0.1:1")


def test_connection_after_close_refuses_and_closing_again_is_nothing(server: fusee.sync.EmbeddedServer) -> None:
    connection = fusee.sync.connect(server.name_server)
    connection.close()
    connection.close()
    with pytest.raises(ClientStateError, match="closed"):
        connection.send("orders", b"x")
