"""Cells about receiving: the judge sends, and the client consumes in every way it knows."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.interop.clients.programs import Consumer, Draft, Fields, Producer
from tests.interop.clients.servers import DELAYS_S
from tests.interop.clients.stage import assert_places, assert_same, drafts, ids_of, keys_of
from tests.interop.harness.processes import eventually

if TYPE_CHECKING:
    from tests.interop.clients.stage import Stage

# They look for a retry topic that their own heartbeat made only half a minute later.
SLOW_TO_FIND_RETRIES: Final = ("go-2.1.2", "cpp-0.4.4")


def push_concurrent(stage: Stage, client: str) -> None:
    """Client to client: two members of a group share the queues, every message is given to one of them, once."""
    topic = stage.topic("push_concurrent", client)
    group = f"GID_{topic}"
    program = stage.program(client)
    producer = Producer(program, stage.name_servers, f"PG_{topic}")
    members = [Consumer(program, stage.name_servers, group, topic) for _ in range(2)]
    await_shared(producer, topic, members)
    messages = drafts(topic, 40)
    results = producer.send(messages)
    keys = keys_of(messages)

    def taken() -> list[list[Fields]]:
        return [[message for message in member.poll() if message["keys"] in keys] for member in members]

    eventually("every message is taken", lambda: keys <= {m["keys"] for share in taken() for m in share})
    shares = taken()
    assert all(shares), [len(share) for share in shares]
    assert not {m["queueId"] for m in shares[0]} & {m["queueId"] for m in shares[1]}
    received = [message for share in shares for message in share]
    assert_same(messages, received)
    assert_places(messages, results, received)
    # A listener has returned; one client forgets what it has not noted yet when it is closed in the same moment.
    time.sleep(0.3)
    for member in members:
        member.close()
    producer.close()
    stage.await_committed(group, topic)


def await_shared(producer: Producer, topic: str, members: list[Consumer]) -> None:
    """Sends rounds of messages until one round went to both members, each message once: the queues are divided."""
    rounds = itertools.count()

    def is_divided() -> bool:
        messages = drafts(topic, 8, f"round-{next(rounds)}")
        producer.send(messages)
        keys = keys_of(messages)

        def counts() -> list[Counter[str]]:
            return [Counter(m["keys"] for m in member.poll() if m["keys"] in keys) for member in members]

        eventually("a round arrives", lambda: keys <= {key for count in counts() for key in count}, timeout_s=60.0)
        shares = counts()
        return all(shares) and sum(shares, Counter()) == Counter(keys)

    eventually("two members share the queues", is_divided, timeout_s=60.0)


def push_orderly(stage: Stage, client: str) -> None:
    """Each queue in its order, also around a message that fails at first."""
    topic = stage.topic("push_orderly", client)
    group = f"GID_{topic}"
    messages = [dataclasses.replace(draft, shard=i % 3) for i, draft in enumerate(drafts(topic, 30))]
    stage.judge_sends.send(messages, "ordered")
    consumer = Consumer(
        stage.program(client), stage.name_servers, group, topic, kind="orderly", failures={"m-7": 1, "m-9": 2}
    )

    def succeeded() -> list[Fields]:
        return [message for message in consumer.poll() if message["success"]]

    eventually("every message is consumed", lambda: keys_of(messages) <= {m["keys"] for m in succeeded()})
    deliveries = consumer.close()
    assert Counter(m["keys"] for m in deliveries) == Counter([*keys_of(messages), "m-7", "m-9", "m-9"])
    for shard in range(3):
        wanted = [draft.keys for draft in messages if draft.shard == shard]
        given = [message["keys"] for message in deliveries if message["queueId"] == shard]
        assert [key for key, _ in itertools.groupby(given)] == wanted
    stage.await_committed(group, topic)


def broadcast(stage: Stage, client: str) -> None:
    topic = stage.topic("broadcast", client)
    program = stage.program(client)
    members = [Consumer(program, stage.name_servers, f"GID_{topic}", topic, broadcast=True) for _ in range(2)]
    rounds = itertools.count()

    # A member that starts at the end of its queues has to be there before the messages are sent.
    def all_listen() -> bool:
        stage.judge_sends.send(drafts(topic, 8, f"round-{next(rounds)}"))
        return all(len({m["queueId"] for m in member.poll()}) == 4 for member in members)

    eventually("both members listen on every queue", all_listen)
    messages = drafts(topic, 20)
    stage.judge_sends.send(messages)
    for member in members:
        member.await_keys(keys_of(messages))
    for member in members:
        assert_same(messages, [m for m in member.close() if not m["keys"].startswith("round-")])


def lite_pull(stage: Stage, client: str) -> None:
    topic = stage.topic("lite_pull", client)
    group = f"GID_{topic}"
    messages = drafts(topic, 40)
    results = stage.judge_sends.send(messages)
    consumer = Consumer(stage.program(client), stage.name_servers, group, topic, kind="lite")
    consumer.await_keys(keys_of(messages))
    received = consumer.close()
    assert_same(messages, received)
    assert_places(messages, results, received)
    stage.await_committed(group, topic)


def pull(stage: Stage, client: str) -> None:
    topic = stage.topic("pull", client)
    messages = drafts(topic, 80)
    results = stage.judge_sends.send(messages)
    # The real broker acknowledges a message a moment before it can be pulled.
    stage.await_stored(topic, keys_of(messages))
    consumer = Consumer(stage.program(client), stage.name_servers, f"GID_{topic}", topic, kind="pull")
    received = consumer.pull(topic)
    assert_same(messages, received)
    assert_places(messages, results, received)
    for queue_id in range(4):
        places = [message["queueOffset"] for message in received if message["queueId"] == queue_id]
        assert places == list(range(len(places)))
    consumer.close()


def tag_filter(stage: Stage, client: str) -> None:
    # One queue: when the last message is there, those before it have been let through or not.
    topic = stage.topic("tag_filter", client, queues=1)
    tags = itertools.cycle(["TagA", "TagB", "TagC", "TagD"])
    messages = [dataclasses.replace(draft, tags=next(tags)) for draft in drafts(topic, 19)]
    stage.judge_sends.send(messages)
    consumer = Consumer(stage.program(client), stage.name_servers, f"GID_{topic}", topic, expression="TagA || TagC")
    wanted = [draft for draft in messages if draft.tags in ("TagA", "TagC")]
    assert wanted[-1] is messages[-1]
    consumer.await_keys(keys_of(wanted))
    assert_same(wanted, consumer.close())


def sql_filter(stage: Stage, client: str) -> None:
    topic = stage.topic("sql_filter", client, queues=1)
    regions = itertools.cycle(["eu", "us"])
    messages = [
        dataclasses.replace(draft, properties={"amount": str(i), "region": next(regions)})
        for i, draft in enumerate(drafts(topic, 21))
    ]
    messages[4] = dataclasses.replace(messages[4], properties={"region": "eu"})
    stage.judge_sends.send(messages)
    expression = "(amount BETWEEN 3 AND 12 OR amount > 17) AND region IN ('eu', 'asia') AND TAGS IS NOT NULL"
    consumer = Consumer(
        stage.program(client), stage.name_servers, f"GID_{topic}", topic, expression=expression, sql=True
    )
    wanted = [messages[i] for i in (6, 8, 10, 12, 18, 20)]
    consumer.await_keys(keys_of(wanted))
    assert_same(wanted, consumer.close())


def dead_letters(stage: Stage, client: str) -> None:
    """A message that fails is tried again after its delay, then lies in the dead-letter queue; others do not.

    One client fails everything that came in the same pull, so never more than one message of a queue is on its way.
    """
    topic = stage.topic("dead_letters", client)
    group = stage.group(topic, retries=1)
    if client in SLOW_TO_FIND_RETRIES:
        stage.make_topic(f"%RETRY%{group}", queues=1)
    messages = drafts(topic, 4)
    bad, late = messages[1], Draft(topic, "late", "succeeds at the second try")
    stage.judge_sends.send(messages)
    consumer = Consumer(
        stage.program(client),
        stage.name_servers,
        group,
        topic,
        failures={bad.keys: -1, late.keys: 1},
        max_reconsumes=1,
    )
    stage.await_stored(f"%DLQ%{group}", {bad.keys})
    stage.judge_sends.send([late])
    eventually("the late one is consumed", lambda: sum(m["keys"] == late.keys for m in consumer.poll()) == 2)
    deliveries = consumer.close()
    assert Counter(m["keys"] for m in deliveries) == Counter([*keys_of(messages), bad.keys, late.keys, late.keys])
    for draft in (bad, late):
        first, second = (m for m in deliveries if m["keys"] == draft.keys)
        assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
        assert second["topic"] == topic
        assert second["body"] == draft.body
        assert second["storeMs"] - first["receivedMs"] >= DELAYS_S[2] * 1000 - 20, (first, second)
    [letter] = stage.read(f"%DLQ%{group}")
    assert_is_dead_letter(letter, bad, next(m for m in deliveries if m["keys"] == bad.keys))


def assert_is_dead_letter(letter: Fields, draft: Draft, first: Fields) -> None:
    assert letter["body"] == draft.body
    assert letter["tags"] == draft.tags
    properties = letter["properties"]
    assert properties["origin"] == draft.keys
    assert properties["RETRY_TOPIC"] == draft.topic, letter
    # The first delivery's place in the log; some clients show it as the message's id.
    assert properties["ORIGIN_MESSAGE_ID"], letter
    if first.get("offsetId"):
        assert properties["ORIGIN_MESSAGE_ID"] in ids_of(first), (letter, first)
    assert letter["id"] in ids_of(first) | {letter["offsetId"]}


def offset_reset(stage: Stage, client: str) -> None:
    """mqadmin sends a running consumer back in time."""
    topic = stage.topic("offset_reset", client)
    group = f"GID_{topic}"
    stage.judge_sends.send(drafts(topic, 12, "old"))
    time.sleep(0.2)  # between the two sendings lies the moment to go back to
    moment_ms = time.time_ns() // 1_000_000
    time.sleep(0.2)
    again = drafts(topic, 12, "again")
    stage.judge_sends.send(again)
    consumer = Consumer(stage.program(client), stage.name_servers, group, topic)
    consumer.await_keys({f"{word}-{i}" for word in ("old", "again") for i in range(12)})
    stage.await_committed(group, topic)
    run = stage.mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(moment_ms))
    assert not run.failed, str(run)

    def counts() -> Counter[str]:
        return Counter(message["keys"] for message in consumer.poll())

    # A pull that is held at the end learns of the reset when it ends: these end it now.
    stage.judge_sends.send(drafts(topic, 8, "nudge"))
    eventually("what came after the moment comes again", lambda: all(counts()[draft.keys] >= 2 for draft in again))
    consumer.close()
    assert counts_of(consumer, "old") == {1}
    assert counts_of(consumer, "again") == {2}


def counts_of(consumer: Consumer, prefix: str) -> set[int]:
    counts = Counter(message["keys"] for message in consumer.deliveries)
    return {count for key, count in counts.items() if key.startswith(prefix)}


def trace(stage: Stage, client: str) -> None:
    """Sending and consuming leave traces that mqadmin finds by the message's id."""
    topic = stage.topic("trace", client)
    group = f"GID_{topic}"
    program = stage.program(client)
    producer = Producer(program, stage.name_servers, f"PG_{topic}", trace=True)
    consumer = Consumer(program, stage.name_servers, group, topic, trace=True)
    messages = drafts(topic, 3)
    results = producer.send(messages)
    consumer.await_keys(keys_of(messages))
    for result in results:

        def is_traced(message_id: str = result["id"]) -> bool:
            run = stage.mqadmin("queryMsgTraceById", "-i", message_id)
            words = {row[0]: row for row in run.rows}
            return "Pub" in words and "Sub" in words and f"PG_{topic}" in words["Pub"] and group in words["Sub"]

        eventually("mqadmin shows who sent and who consumed", is_traced, timeout_s=30.0)
    consumer.close()
    producer.close()
