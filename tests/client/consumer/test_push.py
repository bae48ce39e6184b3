"""A member of a group: what it gets, what it commits, and what it leaves to others, whatever happens on the way."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fusee.client.config import MessageModel, ServiceState
from fusee.client.consumer.offsets import BrokerOffsets, LocalOffsets
from fusee.client.consumer.options import ConsumerOptions, ConsumerSettings
from fusee.client.consumer.push import Consumer
from fusee.client.received import ReceivedMessage
from fusee.client.subscriptions import Sql
from fusee.errors import ClientStateError, ConfigError, FilterError, MessageError, TopicNotFoundError
from fusee.message.model import MessageQueue
from fusee.store.simulated_disk import SimulatedDisk
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.bodies.stats import ConsumeDirectlyResult, ConsumerRunningInfo
from fusee.wire.codes import RequestCode
from fusee.wire.headers.client import ConsumeMessageDirectly, GetConsumerRunningInfo
from fusee.wire.headers.offset import ResetOffset
from fusee.wire.lenient_json import decode_json
from tests.client.consumer.stage import GROUP, RETRIES, TOPIC, Notes, Stage, held, queue, stage

# Start and end


def test_start_when_messages_are_there_gives_each_to_the_listener_once() -> None:
    async def scene(on: Stage) -> None:
        await on.send(*(str(number) for number in range(100)))
        await on.send("other", to=queue(1))
        notes = Notes()
        consumer = await on.consumer(notes)
        assert sorted(notes.bodies) == sorted([*map(str, range(100)), "other"])
        assert consumer.assignment >= {queue(0), queue(1)}
        await on.send("late", to=queue(1))
        await on.world.settle()
        assert notes.bodies[-1] == "late"
        await on.world.do(consumer.close())
        assert (on.committed(), on.committed(queue(1))) == (100, 2)
        assert consumer.state is ServiceState.SHUTDOWN_ALREADY

    stage(scene, queues=2)


def test_start_when_group_is_new_commits_where_it_begins_at_once() -> None:
    """Else whatever arrives before the first commit would be lost to the group if this process died."""

    class Forgetful(BrokerOffsets):
        """A broker says 0 for a queue that is young; an old one says that there is nothing."""

        async def load(self, queue: MessageQueue) -> int | None:
            return None

    async def scene(on: Stage) -> None:
        await on.send("old")
        notes, others = Notes(), Notes()
        session = await on.world.session()
        await on.consumer(notes, consume_from="last", session=session, offsets=Forgetful(session, GROUP))
        assert notes.bodies == []
        assert on.committed() == 1
        on.world.kill_session(session)
        await on.send("between")
        await on.consumer(others, consume_from="last")
        await on.world.advance(2)
        assert others.bodies == ["between"]

    stage(scene)


def test_start_when_topic_is_missing_raises_or_waits() -> None:
    async def scene(on: Stage) -> None:
        lost = await on.new_consumer(Notes(), topics="nowhere")
        with pytest.raises(TopicNotFoundError, match="'nowhere' does not exist"):
            await on.world.do(lost.start())
        assert lost.state is ServiceState.START_FAILED
        assert not lost._session.has_consumer(GROUP)
        notes = Notes()
        consumer = await on.consumer(notes, topics="later", missing_topic="wait")
        assert not [each for each in consumer.assignment if each.topic == "later"]
        await on.world.advance(20)
        on.world.create_topic("later", 1)
        await on.world.advance(6)  # sooner than the next look at routes, and than the next division of queues
        await on.send("x", to=queue(topic="later"))
        await on.world.advance(1)
        assert notes.bodies == ["x"]

    stage(scene)


def test_start_when_not_the_first_time_or_group_is_taken_refuses() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer(Notes())
        with pytest.raises(ClientStateError, match="running; it is started once"):
            await consumer.start()
        second = await on.new_consumer(Notes(), session=consumer._session)
        with pytest.raises(ConfigError, match="has a consumer of group 'billing' already"):
            await second.start()
        await on.world.do(consumer.close())
        await on.world.do(consumer.close())
        with pytest.raises(ClientStateError, match="closed"):
            await consumer.start()

    stage(scene)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"group": ""}, MessageError, "group name is empty"),
        ({"group": "DEFAULT_CONSUMER"}, ConfigError, "belongs to no one"),
        ({"listener": print, "batch_listener": print}, ConfigError, "not both"),
        ({"consume_from": "middle"}, ConfigError, "consume_from is 'middle'"),
        ({"topics": []}, ConfigError, "no topic is given"),
        ({"topics": {TOPIC: "||"}}, FilterError, "names no tag"),
        ({"pull_batch_size": 0}, ConfigError, "pull_batch_size is 0; it must be a number from 1 to 1024"),
        ({"pull_threshold_for_topic": 0}, ConfigError, "must be -1, for no limit"),
        ({"missing_topic": "make"}, ConfigError, "missing_topic is 'make'"),
        ({"pull_batchsize": 1}, ConfigError, "no setting 'pull_batchsize'"),
        ({"strategy": "FAIR"}, ConfigError, "FAIR"),
    ],
)
def test_consumer_when_told_nonsense_says_so(options: dict[str, Any], error: type[Exception], match: str) -> None:
    async def scene(on: Stage) -> None:
        with pytest.raises(error, match=match):
            await on.new_consumer(**options)

    stage(scene)


def test_settings_when_typed_are_the_options() -> None:
    assert set(ConsumerSettings.__annotations__) == {field.name for field in dataclasses.fields(ConsumerOptions)}


def test_close_when_a_listener_is_at_work_waits_and_commits_it() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a", "b")
        gate = notes.hold("a")
        consumer = await on.consumer(notes)
        closing = on.begin(consumer.close())
        await on.world.advance(10)
        assert not closing.done()
        gate.set_result(None)
        await on.world.within(5, closing)
        assert on.committed() == 2
        assert notes.at_work == 0

    stage(scene)


def test_close_when_a_pull_takes_back_what_was_committed_commits_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer(Notes())
        await on.send("a")
        await on.world.settle()
        await on.send("b", "c")
        await on.world.settle()
        offsets = on.world.brokers["broker-a"].offsets
        late, commit = [on.committed()], offsets.commit
        assert late < [3]

        def commit_and_then_what_a_pull_carried(group: str, topic: str, queue_id: int, offset: int, **more: Any) -> Any:
            answer = commit(group, topic, queue_id, offset, **more)
            if late and (topic, queue_id, offset) == ("orders", 0, 3):
                commit(group, topic, queue_id, late.pop(), **more)
            return answer

        monkeypatch.setattr(offsets, "commit", commit_and_then_what_a_pull_carried)
        await on.world.do(consumer.close())
        assert (late, on.committed()) == ([], 3)

    stage(scene)


def test_commits_of_a_queue_are_made_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(on: Stage) -> None:
        session = await on.world.session()
        await on.consumer(Notes())
        await on.world.do(session.read_route("orders"))
        offsets, update = BrokerOffsets(session, GROUP), session.calls.update_offset
        under_way: list[int] = []

        async def one_at_a_time(*arguments: Any) -> None:
            under_way.append(arguments[-1])
            assert len(under_way) == 1
            await update(*arguments)
            under_way.clear()

        monkeypatch.setattr(session.calls, "update_offset", one_at_a_time)
        offsets.update(queue(), 7)
        first = on.begin(offsets.persist([queue()]))
        offsets.update(queue(), 9)
        assert await on.world.do(offsets.persist([queue()])) == await first == {}
        assert on.committed() == 9

    stage(scene)


def test_offset_that_is_said_while_the_broker_is_asked_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(on: Stage) -> None:
        session = await on.world.session()
        await on.consumer(Notes())
        await on.world.do(session.read_route("orders"))
        offsets = BrokerOffsets(session, GROUP)

        async def said_meanwhile(*_: Any) -> int:
            offsets.update(queue(), 2)
            return 0

        monkeypatch.setattr(session.calls, "query_offset", said_meanwhile)
        assert await on.world.do(offsets.load(queue())) == 0
        assert offsets.cached(queue()) == 2

    stage(scene)


def test_close_when_a_listener_does_not_end_leaves_its_message_to_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a", "b", "c")
        notes.hold("b")
        consumer = await on.consumer(notes)
        await on.world.do(consumer.close(timeout=7))
        assert on.committed() == 1
        assert "still at work 7 s after" in caplog.text
        other = Notes()
        await on.consumer(other)
        assert other.bodies == ["b", "c"]

    stage(scene)


def test_close_when_called_by_the_listener_does_not_wait_for_itself() -> None:
    async def scene(on: Stage) -> None:
        closed: list[str] = []

        async def listen(message: ReceivedMessage) -> None:
            await consumer.close()
            closed.append(message.body.decode())

        consumer = await on.consumer(listen, concurrency=1)
        before = on.world.clock.monotonic()
        await on.send("last")
        await on.world.advance(1)
        assert closed == ["last"]
        assert on.world.clock.monotonic() - before < 2
        assert on.committed() == 0

    stage(scene)


def test_close_when_the_wait_is_cancelled_goes_on() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a")
        gate = notes.hold("a")
        consumer = await on.consumer(notes)
        closing = on.begin(consumer.close())
        await on.world.settle()
        closing.cancel()
        await on.world.settle()
        gate.set_result(None)
        await on.world.advance(1)
        assert on.committed() == 1
        assert not consumer._session.has_consumer(GROUP)

    stage(scene)


# Sharing


def test_member_when_another_joins_hands_over_what_is_done_and_nothing_else() -> None:
    async def scene(on: Stage) -> None:
        notes, others = Notes(), Notes()
        for number in range(2):
            await on.send(f"a{number}", f"b{number}", to=queue(number))
        gates = [notes.hold("b0"), notes.hold("b1")]
        first = await on.consumer(notes)
        assert first.assignment >= {queue(0), queue(1)}
        await on.world.advance(6)
        second = await on.consumer(others)
        await on.world.advance(1.5)
        assert len(first.assignment & {queue(0), queue(1)}) == 1
        (moved,) = second.assignment & {queue(0), queue(1)}
        (kept,) = first.assignment & {queue(0), queue(1)}
        assert on.committed(moved) == 1
        assert others.bodies == [f"b{moved.queue_id}"]
        for gate in gates:
            gate.set_result(None)
        await on.world.advance(6)
        # What the first member finished after it let go moves nothing.
        assert on.committed(moved) == 2
        assert on.committed(kept) == 2

    stage(scene, queues=2)


def test_member_when_killed_is_replaced_without_loss() -> None:
    async def scene(on: Stage) -> None:
        notes, others = Notes(), Notes()
        first = await on.consumer(notes)
        await on.send("a", "b", "c")
        await on.world.settle()
        on.world.kill_session(first._session)
        await on.send("d")
        await on.consumer(others)
        await on.world.advance(60)
        assert notes.bodies == ["a", "b", "c"]
        # Pulls had told the broker of what was done; the last message may come twice.
        assert others.bodies == ["c", "d"]

    stage(scene)


def test_broker_when_killed_and_started_again_is_consumed_on() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        consumer = await on.consumer(notes)
        await on.send("a")
        await on.world.advance(6)
        assert on.committed() == 1
        on.world.kill("broker-a")
        await on.world.advance(20)
        assert consumer.faults
        await on.world.start_broker("broker-a")
        await on.world.advance(10)
        await on.send("b")
        await on.world.advance(5)
        assert notes.bodies[-1] == "b"
        assert not consumer.faults

    stage(scene)


# Moving


def test_seek_when_back_consumes_again_and_commits_it() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a", "b", "c")
        consumer = await on.consumer(notes)
        await on.world.advance(6)
        assert on.committed() == 3
        consumer.pause()
        await on.world.do(consumer.seek(queue(), 1))
        assert on.committed() == 1
        consumer.resume()
        await on.world.settle()
        assert notes.bodies == ["a", "b", "c", "b", "c"]
        assert consumer.position(queue()) == 3

    stage(scene)


def test_seek_when_a_listener_is_at_work_is_not_undone_by_its_end() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send(*"abcdef")
        gate = notes.hold("c")
        consumer = await on.consumer(notes, concurrency=1)
        assert notes.bodies == ["a", "b", "c"]
        await on.world.advance(6)
        assert on.committed() == 2
        consumer.pause()
        await on.world.do(consumer.seek(queue(), 0))
        gate.set_result(None)
        await on.world.advance(6)
        assert on.committed() == 0
        consumer.resume()
        await on.world.settle()
        assert notes.bodies == [*"abc", *"abcdef"]

    stage(scene)


def test_seek_when_forward_skips_what_was_pulled_but_not_begun() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send(*"abcdef")
        gate = notes.hold("a")
        consumer = await on.consumer(notes, concurrency=1)
        await on.world.do(consumer.seek(queue(), 5))
        gate.set_result(None)
        await on.world.advance(6)
        assert notes.bodies == ["a", "f"]
        assert on.committed() == 6

    stage(scene)


def test_seek_when_place_is_named_finds_it() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a")
        await on.world.advance(60)
        noon = datetime.fromtimestamp(on.world.clock.time_ms() / 1000, UTC)
        await on.send("b", "c")
        consumer = await on.consumer(notes)
        await on.world.advance(6)
        for place, expected in (("first", 0), ("last", 3), (noon, 1), (2, 2)):
            consumer.pause()
            await on.world.do(consumer.seek(queue(), place))  # type: ignore[arg-type]
            assert on.committed() == expected
        with pytest.raises(ConfigError, match="not negative"):
            await consumer.seek(queue(), -1)
        with pytest.raises(ClientStateError, match="queue 7 of orders on broker-a is not with this member"):
            await consumer.seek(queue(7), 0)

    stage(scene)


def test_reset_when_an_operator_moves_the_group_goes_on_from_there() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send(*"abcd")
        consumer = await on.consumer(notes)
        await on.world.advance(6)
        gate = notes.hold("e")
        await on.send("e")
        await on.world.settle()
        consumer.reset_offsets(TOPIC, {queue(): 2, queue(9): 5, queue(topic="other"): 1})
        await on.world.settle()
        gate.set_result(None)
        await on.world.advance(6)
        assert notes.bodies == [*"abcde", *"cde"]
        assert on.committed() == 5

    stage(scene)


def test_reset_when_told_by_the_broker_moves_and_commits() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send(*"abcd")
        await on.consumer(notes)
        await on.world.advance(6)
        header = ResetOffset(topic=TOPIC, group=GROUP, timestamp_ms=0, is_force=True, queue_id=0, queue_offset=1)
        await on.world.do(
            on.sender.calls.request(on.world.address(), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        )
        await on.send("e")
        await on.world.advance(40)
        # The pull that waited had been asked before, and found "e".
        assert notes.bodies == [*"abcde", *"bcde"]
        assert on.committed() == 5

    stage(scene)


def test_offset_when_behind_what_the_broker_still_has_goes_forward_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send(*"abc")
        consumer = await on.consumer(notes)
        await on.world.advance(6)
        process_queue = held(consumer)
        consumer._held._moved(process_queue, 9)
        assert (process_queue.next_offset, consumer.position(queue())) == (9, 9)
        assert "goes on at 9; what was from 3 on is no longer there" in caplog.text
        await on.world.advance(6)
        assert on.committed() == 9

    stage(scene)


def test_offset_when_beyond_the_end_goes_back_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send(*"abc")
        on.world.broker.offsets.commit(GROUP, TOPIC, 0, 50)
        await on.consumer(notes)
        await on.world.advance(6)
        assert "goes back from 50 to 3" in caplog.text
        assert on.committed() == 3
        await on.send("d")
        await on.world.settle()
        assert notes.bodies == ["d"]

    with caplog.at_level(logging.WARNING):
        stage(scene)


# Pausing


def test_pause_when_all_are_paused_hands_out_nothing_until_resumed() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a", "b", "c")
        gate = notes.hold("a")
        consumer = await on.consumer(notes, concurrency=1)
        consumer.pause()
        gate.set_result(None)
        await on.send("d")
        await on.world.advance(20)
        assert notes.bodies == ["a"]
        assert on.committed() == 1
        consumer.resume()
        await on.world.settle()
        assert notes.bodies == ["a", "b", "c", "d"]

    stage(scene)


def test_pause_when_one_queue_or_topic_is_named_leaves_the_others() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        on.world.create_topic("refunds", 1)
        await on.world.settle()
        consumer = await on.consumer(notes, topics=[TOPIC, "refunds"])
        consumer.pause(queue(0), "refunds")
        await on.send("a", to=queue(0))
        await on.send("b", to=queue(1))
        await on.send("c", to=queue(topic="refunds"))
        await on.world.advance(1)
        assert notes.bodies == ["b"]
        consumer.resume("refunds")
        await on.world.advance(1)
        assert notes.bodies == ["b", "c"]
        consumer.resume(queue(0))
        await on.world.advance(1)
        assert notes.bodies == ["b", "c", "a"]

    stage(scene, queues=2)


def test_pause_when_a_queue_comes_later_holds_for_it_too() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        consumer = await on.new_consumer(notes)
        consumer.pause(TOPIC)
        await on.world.do(consumer.start())
        await on.send("a")
        await on.world.advance(1)
        assert notes.bodies == []
        consumer.resume()
        await on.world.advance(1)
        assert notes.bodies == ["a"]

    stage(scene)


# Choosing


def test_subscription_when_by_tag_passes_over_the_rest_and_commits_past_it() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.consumer(notes, tags="paid || Aa")
        for tag in ("paid", "open", "BB", "Aa", "open"):
            await on.send(tag, TAGS=tag)
        await on.world.advance(20)
        assert notes.bodies == ["paid", "Aa"]
        assert on.committed() == 5

    stage(scene)


def test_subscription_when_by_sql_is_left_to_the_broker() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.consumer(notes, topics={TOPIC: Sql("amount > 10")})
        await on.send("small", amount="5")
        await on.send("large", amount="50")
        await on.world.advance(1)
        assert notes.bodies == ["large"]

    stage(scene, enable_property_filter=True)


def test_subscribe_when_running_adds_and_takes_away_topics() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        on.world.create_topic("refunds", 1)
        await on.world.settle()
        consumer = await on.consumer(notes)
        await on.world.do(consumer.subscribe("refunds", "x"))
        await on.world.advance(2)
        await on.send("r", to=queue(topic="refunds"), TAGS="x")
        await on.send("s", to=queue(topic="refunds"), TAGS="y")
        await on.world.advance(20)
        assert notes.bodies == ["r"]
        consumer.unsubscribe("refunds")
        await on.world.advance(2)
        assert queue(topic="refunds") not in consumer.assignment
        assert on.committed(queue(topic="refunds")) == 2
        with pytest.raises(TopicNotFoundError):
            await on.world.do(consumer.subscribe("nowhere"))

    stage(scene)


# Broadcast


def test_broadcast_when_two_members_gives_all_to_both_and_keeps_their_offsets() -> None:
    async def scene(on: Stage) -> None:
        disk = SimulatedDisk(on.world.clock)

        async def inline(job: Any, *args: Any) -> Any:
            return job(*args)

        def offsets(name: str) -> LocalOffsets:
            return LocalOffsets(Path(f"/{name}/offsets.json"), files=disk, offload=inline)

        notes, others = Notes(), Notes()
        first = await on.consumer(notes, model=MessageModel.BROADCASTING, offsets=offsets("one"))
        await on.consumer(others, model=MessageModel.BROADCASTING, offsets=offsets("two"))
        await on.send("a", "b", "c")
        notes.answers["b"] = [ValueError("no")]
        await on.world.advance(30)
        assert sorted(notes.bodies) == sorted(others.bodies) == ["a", "b", "c"]
        assert on.committed() == -1
        await on.world.do(first.close())
        again = Notes()
        await on.send("d")
        await on.consumer(again, model=MessageModel.BROADCASTING, offsets=offsets("one"))
        assert again.bodies == ["d"]

    stage(scene)


# What operators ask


def test_heartbeat_when_subscribed_says_what_java_says() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer(Notes(), tags="a || b", ordered=False)
        data = consumer.heartbeat()
        assert (data.group_name, data.consume_type, data.message_model) == (GROUP, "CONSUME_PASSIVELY", "CLUSTERING")
        assert data.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        assert {each.topic: each.expression for each in data.subscription_data_set} == {TOPIC: "a || b", RETRIES: "*"}
        at = await on.new_consumer(Notes(), consume_from=datetime(2024, 1, 1, tzinfo=UTC))
        assert at.heartbeat().consume_from_where == "CONSUME_FROM_TIMESTAMP"

    stage(scene)


def test_running_info_when_asked_through_the_broker_shows_queues_and_rates() -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a", "b")
        notes.hold("b")
        consumer = await on.consumer(notes)
        header = GetConsumerRunningInfo(consumer_group=GROUP, client_id=consumer._session.client_id)
        answer = await on.ask_consumer(consumer._session, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = decode_json(answer.body, ConsumerRunningInfo)
        shown = info.queues[QueueRef(topic=TOPIC, broker_name="broker-a", queue_id=0)]
        assert (shown.cached_msg_count, shown.cached_msg_min_offset, shown.commit_offset) == (1, 1, 1)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert [each.topic for each in info.subscription_set] == [RETRIES, TOPIC]
        assert info.status_table[TOPIC].pull_tps > 0
        assert consumer.status(TOPIC) == {queue(): 1}

    stage(scene)


@pytest.mark.parametrize(
    ("answer", "result"),
    [(None, "CR_SUCCESS"), (False, "CR_LATER"), (ValueError("bad"), "CR_THROW_EXCEPTION")],
)
def test_consume_directly_when_asked_tells_how_it_went(answer: Any, result: str) -> None:
    async def scene(on: Stage) -> None:
        notes = Notes()
        await on.send("a")
        consumer = await on.consumer(notes)
        await on.world.advance(6)
        notes.answers["a"] = [answer]
        (message,) = on.world.stored(TOPIC)
        header = ConsumeMessageDirectly(
            consumer_group=GROUP,
            client_id=consumer._session.client_id,
            msg_id=message.offset_id,
            message_broker_name="broker-a",
            topic=TOPIC,
        )
        response = await on.ask_consumer(consumer._session, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        outcome = decode_json(response.body, ConsumeDirectlyResult)
        assert (outcome.consume_result, outcome.order) == (result, False)
        assert (outcome.remark == "ValueError: bad") == isinstance(answer, Exception)
        assert notes.bodies == ["a", "a"]
        assert on.committed() == 1

    stage(scene)


def test_consume_directly_when_there_is_no_listener_says_so() -> None:
    async def scene(on: Stage) -> None:
        await on.send("a")
        consumer = await on.consumer()
        outcome = await consumer.consume_directly(on.world.stored(TOPIC)[0], "broker-a")
        assert outcome.consume_result == "CR_THROW_EXCEPTION"
        assert "has no listener" in (outcome.remark or "")

    stage(scene)


def test_assignment_when_it_changes_is_told_and_divides_the_limits() -> None:
    async def scene(on: Stage) -> None:
        told: list[tuple[str, frozenset[MessageQueue]]] = []

        def tell(topic: str, queues: frozenset[MessageQueue]) -> None:
            told.append((topic, queues))
            raise RuntimeError("the application's own trouble")

        consumer = await on.consumer(
            Notes(), on_assigned=tell, pull_threshold_for_topic=100, pull_threshold_size_for_topic=8
        )
        assert (TOPIC, frozenset({queue(0), queue(1)})) in told
        assert consumer._held.limits.count == 100 // len(consumer.assignment)
        assert consumer._held.limits.byte_size == 8 // len(consumer.assignment) * 1024 * 1024

    stage(scene, queues=2)


def test_loop_when_there_is_a_listener_is_refused() -> None:
    async def scene(on: Stage) -> None:
        consumer = await on.consumer(Notes())
        with pytest.raises(ClientStateError, match="has a listener"):
            aiter(consumer)
        unstarted = await on.new_consumer()
        with pytest.raises(ClientStateError, match="created, not started"):
            unstarted.batches()
        assert "billing running" in repr(consumer)

    stage(scene)


def test_tasks_when_all_is_closed_are_gone() -> None:
    async def scene(on: Stage) -> None:
        before = asyncio.all_tasks()
        session = await on.world.session()
        consumer: Consumer = await on.consumer(Notes(), session=session)
        await on.send(*"abc")
        await on.world.advance(3)
        await on.world.do(consumer.close())
        await on.world.do(session.close())
        await on.world.settle()
        assert asyncio.all_tasks() == before
        on.world.sessions.remove(session)

    stage(scene)


def test_start_when_another_broadcast_consumer_has_the_file_of_offsets_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scene(on: Stage) -> None:
        await on.consumer(Notes(), model=MessageModel.BROADCASTING)
        second = await on.new_consumer(Notes(), model=MessageModel.BROADCASTING)
        with pytest.raises(ConfigError, match="instance_name of its own"):
            await on.world.do(second.start())
        assert second.state is ServiceState.START_FAILED

    stage(scene)


def test_seek_when_back_never_carries_the_old_place_to_the_broker() -> None:
    """A broker may work on the pull after the seek behind the commit of the seek."""

    async def scene(on: Stage) -> None:
        await on.send(*"abcd")
        consumer = await on.consumer(Notes())
        await on.world.advance(20)
        assert on.committed() == 4
        offsets = on.world.broker.offsets
        commit = offsets.commit
        told: list[int] = []

        def remember(group: str, topic: str, queue_id: int, queue_offset: int, **more: Any) -> Any:
            told.append(queue_offset)
            return commit(group, topic, queue_id, queue_offset, **more)

        offsets.commit = remember  # type: ignore[method-assign]
        consumer.pause()
        await on.world.do(consumer.seek(queue(), 1))
        consumer.resume()
        await on.world.settle()
        assert told[0] == 1
        assert told == sorted(told)

    stage(scene)


def test_close_when_the_store_of_offsets_fails_still_leaves_the_group() -> None:
    class Failing(BrokerOffsets):
        async def persist(self, queues: Any) -> Any:
            if self.fails:
                raise RuntimeError("as the test says")
            return await super().persist(queues)

        fails = False

    async def scene(on: Stage) -> None:
        session = await on.world.session()
        offsets = Failing(session, GROUP)
        consumer = await on.consumer(Notes(), session=session, offsets=offsets)
        offsets.fails = True
        with pytest.raises(RuntimeError, match="as the test says"):
            await on.world.do(consumer.close())
        assert on.world.broker.consumers.group(GROUP) is None
        assert not session.has_consumer(GROUP)
        on.consumers.remove(consumer)

    stage(scene)


@pytest.mark.parametrize("ordered", [False, True])
def test_close_when_a_queue_is_being_taken_up_takes_it_up_no_more(ordered: bool) -> None:
    class Slow(BrokerOffsets):
        gate: asyncio.Future[None] | None = None

        async def load(self, queue: MessageQueue) -> int | None:
            if self.gate is not None:
                await self.gate
            return await super().load(queue)

    async def scene(on: Stage) -> None:
        session = await on.world.session()
        offsets = Slow(session, GROUP)
        notes = Notes()
        busy = notes.hold("a")
        consumer = await on.consumer(notes, session=session, offsets=offsets, ordered=ordered)
        await on.send("a")
        offsets.gate = asyncio.get_running_loop().create_future()
        on.world.create_topic(TOPIC, 2)
        await on.world.settle()
        await on.world.advance(31)
        closing = on.begin(consumer.close())
        await on.world.settle()
        offsets.gate.set_result(None)
        await on.world.advance(1)
        assert not closing.done()
        assert queue(1) not in consumer.assignment
        busy.set_result(None)
        await on.world.within(5.0, closing)
        assert on.committed() == 1
        other = Notes()
        taken = await on.consumer(other, ordered=ordered)
        assert {queue(0), queue(1)} <= taken.assignment
        assert other.bodies == []

    stage(scene)


def test_close_when_starting_ends_the_start() -> None:
    async def scene(on: Stage) -> None:
        session = await on.world.session("10.0.9.50")
        consumer = await on.new_consumer(Notes(), session=session)
        on.world.network.weather("10.0.9.50", "10.0.0.1").latency = 0.2
        for seconds in (0.1, 0.9):
            starting = asyncio.ensure_future(consumer.start())
            await on.world.advance(seconds)
            assert not starting.done()
            await on.world.do(consumer.close())
            with pytest.raises(ClientStateError, match="was closed while it started"):
                await on.world.within(10, starting)
            assert consumer.state is ServiceState.SHUTDOWN_ALREADY
            assert not session.has_consumer(GROUP)
            consumer = await on.new_consumer(Notes(), session=session)

    stage(scene)
