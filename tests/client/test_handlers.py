"""Handlers get what their annotations say, and what becomes of a message that they cannot handle is what was asked."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.config import MessageModel
from fusee.client.consumer.options import ConsumeResult, ConsumerOptions, RetryLater, consumer_options
from fusee.client.consumer.push import Consumer
from fusee.client.handlers import DELAY_LEVEL_SECONDS, HandlerTable, RetryPolicy
from fusee.client.received import ReceivedMessage
from fusee.client.session import Session
from fusee.errors import ClientStateError, ConfigError, PayloadError, TopicNotFoundError
from fusee.message.model import StoredMessage
from fusee.wire.codes import RequestCode
from tests.broker.world import send_header
from tests.client.world import ClusterWorld, play

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass(frozen=True)
class Order:
    number: int


class Payment(msgspec.Struct):
    amount: float


class Model:
    """What pydantic promises of its models."""

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        return cls(msgspec.json.decode(text)["size"])

    def model_dump_json(self) -> str:
        return f'{{"size": {self.size}}}'


def message_of(body: bytes, *, reconsume_times: int = 0) -> ReceivedMessage:
    stored = StoredMessage(
        topic="orders",
        body=body,
        queue_id=0,
        flag=0,
        queue_offset=7,
        log_offset=1000,
        sys_flag=0,
        born_timestamp_ms=1,
        born_host_bytes=bytes(8),
        store_timestamp_ms=2,
        store_host_bytes=bytes(8),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=0,
        properties_bytes=b"UNIQ_KEY\x01ID1\x02",
        body_crc=0,
    )
    return ReceivedMessage.of(stored, "broker-a")


class Desk:
    """Stands for a connection: keeps the consumers it made, and may refuse to start one."""

    def __init__(self, *, refuses: str = "") -> None:
        self.refuses = refuses
        self.made: dict[str, Made] = {}

    def consumer(self, topics: Any, *, group: str, listener: Callable[..., Any], **options: Any) -> Made:
        made = self.made[group] = Made(topics, listener, options, is_refused=group == self.refuses)
        return made


class Made:
    def __init__(self, topics: Any, listener: Callable[..., Any], options: dict[str, Any], *, is_refused: bool) -> None:
        self.topics, self.listener, self.options = topics, listener, options
        self.is_refused = is_refused
        self.events: list[str] = []

    async def start(self) -> None:
        if self.is_refused:
            raise TopicNotFoundError("no such topic", code=17)
        self.events.append("started")

    async def close(self) -> None:
        self.events.append("closed")


def listener_of(function: Callable[..., Any], **options: Any) -> Callable[[ReceivedMessage], Any]:
    table = HandlerTable()
    assert table.handler("orders", group="g", **options)(function) is function, "the function stays what it is"
    return table.handlers[0].listener


def call(function: Callable[..., Any], body: bytes, **options: Any) -> Any:
    outcome = listener_of(function, **options)(message_of(body))
    return asyncio.run(outcome) if asyncio.iscoroutine(outcome) else outcome


# What a handler is given

got: list[Any] = []


async def take_order(order: Order) -> None:
    got.append(order)


def take_payment_and_message(payment: Payment, message: ReceivedMessage) -> None:
    got.append((payment.amount, message.queue_offset))


async def take_message_and_text(message: ReceivedMessage, text: str) -> None:
    got.append((message.message_id, text))


def take_message(message: ReceivedMessage) -> None:
    got.append(message.body)


def take_whatever(it) -> None:  # type: ignore[no-untyped-def]
    got.append(it.body)


def take_bytes(body: bytes, *, note: str = "none", **more: Any) -> None:
    got.append((body, note))


def take_model(model: Model) -> None:
    got.append(model.size)


def take_json(value: Any) -> None:
    got.append(value)


class Counter:
    async def __call__(self, order: Order) -> None:
        got.append(("object", order))

    def method(self, order: Order) -> None:
        got.append(("method", order))


def take_two(prefix: str, order: Order) -> None:
    got.append((prefix, order))


@pytest.mark.parametrize(
    ("function", "body", "expected"),
    [
        (take_order, b'{"number": 3}', Order(3)),
        (take_payment_and_message, b'{"amount": 2.5}', (2.5, 7)),
        (take_message_and_text, "grün".encode(), ("ID1", "grün")),
        (take_message, b"\x00", b"\x00"),
        (take_whatever, b"\x00", b"\x00"),
        (take_bytes, b"\xff", (b"\xff", "none")),
        (take_model, b'{"size": 4}', 4),
        (take_json, b"[1]", [1]),
        (Counter(), b'{"number": 3}', ("object", Order(3))),
        (Counter().method, b'{"number": 3}', ("method", Order(3))),
        (functools.partial(take_two, "x"), b'{"number": 3}', ("x", Order(3))),
    ],
)
def test_handler_gets_what_its_annotations_say(function: Callable[..., Any], body: bytes, expected: Any) -> None:
    got.clear()
    assert call(function, body) is None
    assert got == [expected]


def test_listener_of_coroutine_function_is_one_and_of_plain_function_is_not() -> None:
    assert asyncio.iscoroutinefunction(listener_of(take_order))
    assert not asyncio.iscoroutinefunction(listener_of(take_message))


def test_handler_answers_for_itself() -> None:
    async def later(order: Order) -> ConsumeResult:
        return ConsumeResult.RETRY_LATER

    assert call(later, b'{"number": 3}') is ConsumeResult.RETRY_LATER
    assert call(lambda message: message.body == b"x", b"y") is False


def no_parameter() -> None: ...


def three_parameters(a: Order, b: ReceivedMessage, c: ReceivedMessage) -> None: ...


def two_bodies(a: Order, b: Payment) -> None: ...


def two_messages(a: ReceivedMessage, b: ReceivedMessage) -> None: ...


def by_keyword(a: Order, *, b: int) -> None: ...


def any_number(*orders: Order) -> None: ...


def of_unknown_type(amount: Decimal) -> None: ...


def of_impossible_type(it: HandlerTable) -> None: ...


@pytest.mark.parametrize(
    ("function", "error", "cause"),
    [
        (no_parameter, ConfigError, "has 0 parameters"),
        (three_parameters, ConfigError, "has 3 parameters"),
        (two_bodies, ConfigError, "2 of them for the body"),
        (two_messages, ConfigError, "has 2 parameters, 0 of them"),
        (by_keyword, ConfigError, "parameter 'b' of handler by_keyword"),
        (any_number, ConfigError, "parameter 'orders'"),
        (of_unknown_type, ConfigError, "'Decimal' of parameter 'amount'.*outside of `if TYPE_CHECKING`"),
        (of_impossible_type, PayloadError, "no body can become a HandlerTable"),
    ],
)
def test_handler_with_wrong_parameters_is_refused_when_declared(
    function: Callable[..., Any], error: type[Exception], cause: str
) -> None:
    with pytest.raises(error, match=cause):
        listener_of(function)


# What becomes of trouble


def test_bad_payload_becomes_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert call(take_order, b"{") is ConsumeResult.DEAD_LETTER
    assert "take_order" in caplog.text
    assert "ID1" in caplog.text
    assert "is no Order" in caplog.text


def test_bad_payload_is_tried_again_when_asked() -> None:
    with pytest.raises(PayloadError, match="is no Order"):
        call(take_order, b"{", on_bad_payload="retry")
    with pytest.raises(PayloadError, match="is no Payment"):
        call(take_payment_and_message, b"{", on_bad_payload="retry")


def test_bad_payload_is_skipped_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    assert call(take_order, b"{", on_bad_payload="skip") is ConsumeResult.SUCCESS
    assert "is skipped" in caplog.text
    with pytest.raises(ConfigError, match="on_bad_payload is 'drop'"):
        listener_of(take_order, on_bad_payload="drop")


async def fail_async(message: ReceivedMessage) -> None:
    raise LookupError("gone")


def fail(message: ReceivedMessage) -> None:
    raise LookupError("gone")


@pytest.mark.parametrize("function", [fail, fail_async])
def test_error_of_handler_goes_to_the_consumer(function: Callable[..., Any]) -> None:
    with pytest.raises(LookupError, match="gone"):
        call(function, b"")
    with pytest.raises(LookupError, match="gone"):
        call(function, b"", retry=RetryPolicy(delays=(1,)))


@pytest.mark.parametrize("function", [fail, fail_async])
def test_error_that_cannot_be_helped_makes_a_dead_letter(function: Callable[..., Any]) -> None:
    policy = RetryPolicy(give_up_on=(KeyError, LookupError))
    assert call(function, b"", retry=policy) is ConsumeResult.DEAD_LETTER
    with pytest.raises(LookupError):
        call(function, b"", retry=RetryPolicy(give_up_on=(KeyError,)))


@pytest.mark.parametrize("function", [fail, fail_async])
def test_error_of_ordered_handler_rests_its_queue(function: Callable[..., Any]) -> None:
    with pytest.raises(RetryLater, match="gone") as caught:
        call(function, b"", ordered=True, retry=RetryPolicy(delays=(0.5, 60)))
    assert caught.value.suspend_ms == 500
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(LookupError):
        call(function, b"", ordered=True)


def test_what_an_ordered_handler_asks_for_itself_counts() -> None:
    def rest(message: ReceivedMessage) -> None:
        raise RetryLater(suspend_ms=77)

    with pytest.raises(RetryLater) as caught:
        call(rest, b"", ordered=True, retry=RetryPolicy(delays=(0.5,)))
    assert caught.value.suspend_ms == 77


# In a cluster


class Cluster:
    """Stands for a connection whose consumers are real."""

    def __init__(self, world: ClusterWorld, session: Session) -> None:
        self.world = world
        self.session = session

    def consumer(
        self, topics: Any, *, group: str, listener: Callable[..., Any], broadcast: bool, **options: Any
    ) -> Consumer:
        model = MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING
        return Consumer(self.session, topics, group=group, listener=listener, model=model, **options)

    async def send(self, *contents: str) -> None:
        for content in contents:
            header = send_header("orders", 0, properties={"UNIQ_KEY": content})
            request = self.session.calls.request(
                self.world.address(), RequestCode.SEND_MESSAGE_V2, header, body=content.encode()
            )
            await self.world.do(request)


def perform(scene: Callable[[Cluster, HandlerTable], Any]) -> None:
    async def prepared(world: ClusterWorld) -> None:
        world.create_topic("orders", 1)
        await world.settle()
        session = await world.session()
        await world.do(session.read_route("orders"))
        cluster = Cluster(world, session)
        table = HandlerTable(cluster)
        await scene(cluster, table)
        await world.do(table.close())

    play(prepared)


def test_handler_in_cluster_handles_and_commits() -> None:
    async def scene(cluster: Cluster, table: HandlerTable) -> None:
        handled: list[Order] = []

        @table.handler("orders", group="billing", consume_from="first")
        async def bill(order: Order) -> None:
            handled.append(order)

        await cluster.send('{"number": 1}', '{"number": 2}')
        await cluster.world.do(table.start())
        await cluster.world.advance(1.0)
        assert handled == [Order(1), Order(2)]
        await cluster.world.do(table.close())
        assert cluster.world.broker.offsets.query_all("billing", "orders") == {0: 2}

    perform(scene)


def test_handler_in_cluster_is_given_failures_again_until_its_policy_ends() -> None:
    async def scene(cluster: Cluster, table: HandlerTable) -> None:
        tries: list[tuple[int, int]] = []
        began_ms = cluster.world.clock.time_ms()

        @table.handler(
            "orders", group="billing", consume_from="first", retry=RetryPolicy(max_attempts=3, delays=(5, 30))
        )
        async def bill(order: Order, message: ReceivedMessage) -> None:
            tries.append((message.reconsume_times, (cluster.world.clock.time_ms() - began_ms) // 1000))
            raise LookupError

        await cluster.send('{"number": 1}')
        await cluster.world.do(table.start())
        await cluster.world.advance(120.0)
        assert [times for times, _ in tries] == [0, 1, 2]
        first, second, third = (at for _, at in tries)
        assert 5 <= second - first <= 8
        assert 30 <= third - second <= 33
        assert [message.body for message in cluster.world.stored("%DLQ%billing")] == [b'{"number": 1}']

    perform(scene)


def test_handler_in_cluster_leaves_bad_payloads_to_the_dead_letters() -> None:
    async def scene(cluster: Cluster, table: HandlerTable) -> None:
        handled: list[Order] = []

        @table.handler("orders", group="billing", consume_from="first")
        async def bill(order: Order) -> None:
            handled.append(order)

        await cluster.send("nonsense", '{"number": 2}')
        await cluster.world.do(table.start())
        await cluster.world.advance(5.0)
        assert handled == [Order(2)]
        assert [message.body for message in cluster.world.stored("%DLQ%billing")] == [b"nonsense"]

    perform(scene)


def test_ordered_handler_in_cluster_keeps_its_queue_waiting() -> None:
    async def scene(cluster: Cluster, table: HandlerTable) -> None:
        tries: list[tuple[int, int]] = []
        began_ms = cluster.world.clock.time_ms()

        @table.handler(
            "orders",
            group="billing",
            consume_from="first",
            ordered=True,
            retry=RetryPolicy(max_attempts=3, delays=(2,)),
        )
        async def bill(order: Order) -> None:
            tries.append((order.number, (cluster.world.clock.time_ms() - began_ms) // 1000))
            if order.number == 1:
                raise LookupError

        await cluster.send('{"number": 1}', '{"number": 2}')
        await cluster.world.do(table.start())
        await cluster.world.advance(60.0)
        assert [number for number, _ in tries] == [1, 1, 1, 2]
        assert [later - sooner for (_, sooner), (_, later) in pairwise(tries)][:2] == [2, 2]
        assert [message.body for message in cluster.world.stored("%DLQ%billing")] == [b'{"number": 1}']

    perform(scene)


# When to try again


def test_retry_policy_without_delays_leaves_them_to_the_broker() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert policy.delay_level(message_of(b"")) == 0
    assert policy.suspend_ms(message_of(b"")) is None


def test_retry_policy_takes_delays_in_turn_and_then_the_last() -> None:
    policy = RetryPolicy(delays=(1, timedelta(minutes=1), 7200))
    levels = [policy.delay_level(message_of(b"", reconsume_times=times)) for times in range(5)]
    assert levels == [1, 5, 18, 18, 18]
    suspends = [policy.suspend_ms(message_of(b"", reconsume_times=times)) for times in range(3)]
    assert suspends == [1_000, 30_000, 30_000]


def test_retry_policy_backs_off_by_a_factor() -> None:
    policy = RetryPolicy.backoff(timedelta(seconds=2), factor=3, longest=30, max_attempts=6, give_up_on=(KeyError,))
    assert list(policy.delays) == [2, 6, 18, 30, 30]
    assert [policy.delay_before(attempt) for attempt in (1, 2, 3, 9)] == [2, 2, 6, 30]
    assert policy.max_attempts == 6
    assert policy.give_up_on == (KeyError,)
    assert list(RetryPolicy.backoff(1, max_attempts=1).delays) == [1]


@given(st.floats(0, 10_000), st.integers(0, 30))
def test_retry_policy_never_tries_earlier_than_asked_if_the_broker_can_wait_so_long(delay: float, times: int) -> None:
    level = RetryPolicy(delays=(delay,)).delay_level(message_of(b"", reconsume_times=times))
    assert 1 <= level <= 18
    assert DELAY_LEVEL_SECONDS[level - 1] >= min(delay, 7200)
    assert level == 1 or DELAY_LEVEL_SECONDS[level - 2] < delay


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetryPolicy(max_attempts=0),
        lambda: RetryPolicy(delays=(-1,)),
        lambda: RetryPolicy(level_seconds=(5, 1)),
        lambda: RetryPolicy(level_seconds=()),
        lambda: RetryPolicy.backoff(0),
        lambda: RetryPolicy.backoff(1, factor=0.5),
    ],
)
def test_retry_policy_that_makes_no_sense_is_refused(make: Callable[[], RetryPolicy]) -> None:
    with pytest.raises(ConfigError):
        make()


# The table


def test_start_makes_a_consumer_for_each_handler() -> None:
    async def scene() -> None:
        desk = Desk()
        table = HandlerTable(desk)
        policy = RetryPolicy(max_attempts=5, delays=(1,))
        table.handler(
            ["orders"], group="a", tags="paid", concurrency=4, retry=policy, consume_from="first", pull_batch_size=8
        )(take_order)
        table.handler("orders", group="b", ordered=True, retry=policy)(take_message)
        async with table:
            table.handler("orders", group="c", broadcast=True)(take_json)
            await table.start()
            assert list(desk.made) == ["a", "b", "c"]
            assert [made.events for made in desk.made.values()] == [["started"]] * 3
        assert [made.events for made in desk.made.values()] == [["started", "closed"]] * 3
        await table.close()
        options = {group: made.options for group, made in desk.made.items()}
        assert (options["a"]["tags"], options["a"]["consume_from"]) == ("paid", "first")
        assert (options["b"]["ordered"], options["c"]["broadcast"]) == (True, True)
        settings = {
            group: consumer_options({name: each[name] for name in each if name in ConsumerOptions.__dataclass_fields__})
            for group, each in options.items()
        }
        assert (settings["a"].consume_thread_max, settings["a"].pull_batch_size) == (4, 8)
        assert (settings["a"].max_reconsume_times, settings["a"].delay_level(message_of(b""))) == (4, 1)
        assert (settings["b"].max_reconsume_times, settings["b"].delay_level(message_of(b""))) == (4, 0)
        assert settings["c"] == ConsumerOptions()

    asyncio.run(scene())


def test_start_when_one_cannot_begin_closes_the_others_and_raises() -> None:
    async def scene() -> None:
        desk = Desk(refuses="b")
        table = HandlerTable()
        table.handler("orders", group="a")(take_order)
        table.handler("orders", group="b")(take_order)
        with pytest.raises(TopicNotFoundError):
            await table.start(desk)
        assert desk.made["a"].events == ["started", "closed"]
        desk.refuses = ""
        await table.start()
        assert desk.made["a"].events == ["started"]

    asyncio.run(scene())


def test_run_consumes_until_it_is_cancelled_or_closed() -> None:
    async def scene() -> None:
        for end in ("cancel", "close"):
            desk = Desk()
            table = HandlerTable(desk)
            table.handler("orders", group="a")(take_order)
            running = asyncio.ensure_future(table.run())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not running.done()
            if end == "cancel":
                running.cancel()
            else:
                await table.close()
            await asyncio.wait((running,))
            assert running.cancelled() is (end == "cancel")
            assert desk.made["a"].events == ["started", "closed"]

    asyncio.run(scene())


def test_table_without_connection_or_after_close_says_so() -> None:
    async def scene() -> None:
        table = HandlerTable()
        with pytest.raises(ClientStateError, match="no connection"):
            await table.start()
        await table.close()
        with pytest.raises(ClientStateError, match="closed"):
            await table.start(Desk())

    asyncio.run(scene())


def test_second_handler_of_a_group_is_refused() -> None:
    table = HandlerTable()
    table.handler("orders", group="a")(take_order)
    with pytest.raises(ConfigError, match=r"group 'a' has a handler already \(take_order\)"):
        table.handler("refunds", group="a")
