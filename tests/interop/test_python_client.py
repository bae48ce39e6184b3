"""Our client among the clients of other languages, on our broker and on the real one.

The first part puts it through every feature of the client matrix, where the Java client judges what it sent and sends
what it consumes. Then messages of every form pass between it and the Java and Go clients, both ways; and groups with
members of both languages divide their queues and lose nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.clients import receiving, sending
from tests.interop.clients.matrix import FEATURES
from tests.interop.clients.programs import Consumer, Draft, Producer
from tests.interop.clients.servers import BROKER_VARIABLE
from tests.interop.clients.stage import Stage, assert_places, assert_same, drafts, keys_of
from tests.interop.harness.cluster import SUBJECT_VARIABLE
from tests.interop.harness.toolchain import ToolMissingError
from tests.interop.python_client.forms import COMPRESSIBLE, FORMS, Passage
from tests.interop.python_client.mixed import Flow, await_divided
from tests.interop.python_client.programs import Member, PeerProducer, PeerProgram, start_java, start_python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.clients.programs import ClientProgram
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Toolchain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

OURS: Final = "fusee"
JAVA: Final = "java-5.5.0"
GO: Final = "go-2.1.2"
CODECS: Final = ("ZLIB", "LZ4", "ZSTD")
STRATEGIES: Final = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")

QUICK_FEATURES: Final = {"push_concurrent", "transaction", "dead_letters"}
QUICK_PASSAGES: Final = {(JAVA, OURS, "plain"), (OURS, JAVA, "compressed")}


@pytest.fixture(scope="module", params=["fusee", "java"])
def stage(request: pytest.FixtureRequest, fleet: Fleet, toolchain: Toolchain) -> Iterator[Stage]:
    """Servers of one make with our client's program among those of the others; one make at a time."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(BROKER_VARIABLE, request.param)
        environment.setenv(SUBJECT_VARIABLE, request.param)
        stage = Stage(fleet, toolchain)
        stage._programs[OURS] = start_python(fleet, stage._certificate)
        try:
            yield stage
        finally:
            for program in stage._programs.values():
                program._dialogue.kill()
            servers = [stage.servers, *([stage.tls_servers] if "tls_servers" in vars(stage) else [])]
            for each in servers:
                each.broker.kill()
                each.name_server.kill()


@pytest.fixture(scope="module")
def java(stage: Stage, fleet: Fleet, toolchain: Toolchain) -> Iterator[PeerProgram]:
    """A Java client that takes strategies and codecs."""
    program = start_java(fleet, toolchain)
    yield program
    program.kill()


@pytest.fixture(scope="module")
def python(stage: Stage) -> PeerProgram:
    program = stage.program(OURS)
    assert isinstance(program, PeerProgram)
    return program


def program_of(stage: Stage, client: str) -> ClientProgram:
    try:
        return stage.program(client)
    except ToolMissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


def topic_between(stage: Stage, what: str, sender: str, receiver: str) -> str:
    """A new topic; names of topics have no dots."""
    return stage.topic(f"{what}-{sender.replace('.', '_')}", receiver)


@pytest.mark.parametrize(
    "feature",
    [pytest.param(each, marks=[pytest.mark.quick] if each in QUICK_FEATURES else []) for each in FEATURES],
)
def test_feature_of_the_matrix_works_with_our_client(stage: Stage, feature: str) -> None:
    stage.servers.assert_running()
    scenario = getattr(sending, feature, None) or getattr(receiving, feature)
    scenario(stage, OURS)


@pytest.mark.parametrize(
    ("sender", "receiver", "form"),
    [
        pytest.param(*ends, form, marks=[pytest.mark.quick] if (*ends, form) in QUICK_PASSAGES else [])
        for ends in ((JAVA, OURS), (OURS, JAVA), (GO, OURS), (OURS, GO))
        for form in FORMS
    ],
)
def test_message_from_one_language_arrives_in_the_other(stage: Stage, sender: str, receiver: str, form: str) -> None:
    topic = topic_between(stage, form, sender, receiver)
    FORMS[form](Passage(stage, program_of(stage, sender), program_of(stage, receiver), topic))


@pytest.mark.parametrize("codec", CODECS)
def test_body_compressed_by_java_is_read_by_us(stage: Stage, java: PeerProgram, codec: str) -> None:
    topic = stage.topic(f"codec-{codec}", "java-fusee")
    messages = [Draft(topic, f"large-{i}", f"{i} {COMPRESSIBLE}") for i in range(5)]
    producer = PeerProducer(java, stage.name_servers, f"PG_{topic}", compress_type=codec)
    results = producer.send(messages)
    consumer = Consumer(stage.program(OURS), stage.name_servers, f"GID_{topic}", topic)
    consumer.await_keys(keys_of(messages))
    received = consumer.close()
    assert_same(messages, received)
    assert_places(messages, results, received)
    producer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_body_compressed_by_us_is_read_by_java(stage: Stage, python: PeerProgram, codec: str) -> None:
    topic = stage.topic(f"codec-{codec}", "fusee-java")
    messages = [Draft(topic, f"large-{i}", f"{i} {COMPRESSIBLE}") for i in range(5)]
    producer = PeerProducer(python, stage.name_servers, f"PG_{topic}", compress_type=codec)
    results = producer.send(messages)
    stored = stage.await_stored(topic, keys_of(messages))
    assert_same(messages, stored)
    assert_places(messages, results, stored)
    producer.close()


def test_messages_gathered_by_us_are_read_by_java_one_by_one(stage: Stage, python: PeerProgram) -> None:
    topic = stage.topic("gathered", "fusee-java")
    messages = drafts(topic, 200)
    producer = PeerProducer(python, stage.name_servers, f"PG_{topic}", auto_batch=True)
    results = producer.send(messages, "async")
    stored = stage.await_stored(topic, keys_of(messages))
    assert_same(messages, stored)
    assert_places(messages, results, stored)
    producer.close()


@pytest.mark.parametrize(("asks", "answers"), [(OURS, JAVA), (JAVA, OURS), (OURS, GO), (GO, OURS)])
def test_request_of_one_language_is_answered_by_the_other(stage: Stage, asks: str, answers: str) -> None:
    topic = topic_between(stage, "request", asks, answers)
    replier = Consumer(program_of(stage, answers), stage.name_servers, f"GID_{topic}", topic, reply=True)
    producer = Producer(program_of(stage, asks), stage.name_servers, f"PG_{topic}")
    questions = drafts(topic, 3)
    for question in questions:
        reply = producer.request(question, timeout_s=20.0)
        assert reply["body"] == f"reply to {question.keys}"
        assert reply["properties"]["CORRELATION_ID"]
    producer.close()
    # The Go client asks before the broker knows it; the reply fails then, and the request is answered again later.
    assert_same(questions, [message for message in replier.close() if message["reconsumeTimes"] == 0])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_mixed_group_divides_the_queues_as_either_language_would(
    stage: Stage, java: PeerProgram, python: PeerProgram, tmp_path: Path, strategy: str
) -> None:
    topic = stage.make_topic(f"mixed-{strategy}", queues=8)
    group = f"GID_{topic}"
    members = [
        Member(program, stage.name_servers, group, topic, strategy=strategy, journal=tmp_path)
        for program in (java, python, java, python)
    ]
    await_divided(stage, group, topic, members, strategy=strategy)
    flow = Flow(PeerProducer(python, stage.name_servers, f"PG_{topic}"), topic)
    flow.go_on(80)
    flow.await_consumed(members)
    delivered = flow.delivered(members)
    assert Counter(message["keys"] for message in delivered) == Counter(draft.keys for draft in flow.sent)
    for member in members:
        assert {message["queueId"] for message in member.deliveries} == member.queue_ids(topic)
    leaving = members.pop()
    leaving.close()
    await_divided(stage, group, topic, members, strategy=strategy)
    for member in members:
        member.close()


@pytest.mark.parametrize("kind", ["push", "orderly"])
@pytest.mark.parametrize("who", ["java", "python"])
def test_mixed_group_when_a_member_leaves_loses_nothing(
    stage: Stage, java: PeerProgram, python: PeerProgram, tmp_path: Path, who: str, kind: str
) -> None:
    topic = stage.make_topic(f"mixed-{who}-leaves-{kind}", queues=8)
    group = f"GID_{topic}"
    java_member, python_member, leaving = (
        Member(program, stage.name_servers, group, topic, strategy="AVG", journal=tmp_path, kind=kind)
        for program in (java, python, java if who == "java" else python)
    )
    everybody, staying = [java_member, python_member, leaving], [java_member, python_member]
    await_divided(stage, group, topic, everybody, strategy="AVG")
    flow = Flow(PeerProducer(python, stage.name_servers, f"PG_{topic}"), topic)
    flow.go_on()
    leaving.close()
    flow.go_on()
    flow.await_consumed(everybody)
    await_divided(stage, group, topic, staying, strategy="AVG")
    flow.go_on()
    flow.await_consumed(everybody)
    flow.delivered(staying)
    for member in staying:
        member.close()
    stage.await_committed(group, topic)


@pytest.mark.parametrize("kind", ["push", "orderly"])
def test_mixed_group_when_members_of_both_languages_are_killed_loses_nothing(
    stage: Stage,
    fleet: Fleet,
    toolchain: Toolchain,
    java: PeerProgram,
    python: PeerProgram,
    tmp_path: Path,
    kind: str,
) -> None:
    topic = stage.make_topic(f"mixed-killed-{kind}", queues=8)
    group = f"GID_{topic}"
    mortal = [start_java(fleet, toolchain), start_python(fleet)]
    staying, dying = (
        [
            Member(program, stage.name_servers, group, topic, strategy="AVG", journal=tmp_path, kind=kind)
            for program in programs
        ]
        for programs in ([java, python], mortal)
    )
    await_divided(stage, group, topic, [*staying, *dying], strategy="AVG")
    flow = Flow(PeerProducer(python, stage.name_servers, f"PG_{topic}"), topic)
    flow.go_on()
    for program in mortal:
        program.kill()
    flow.go_on()
    # A broker keeps the locks of the dead for a minute.
    flow.await_consumed([*staying, *dying], timeout_s=120.0)
    await_divided(stage, group, topic, staying, strategy="AVG")
    flow.go_on()
    flow.await_consumed([*staying, *dying])
    flow.delivered(staying)
    for member in staying:
        member.close()
    stage.await_committed(group, topic)
