from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message import topics
from fusee.message.topics import (
    dlq_topic,
    is_dlq_topic,
    is_lmq,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    pop_retry_topic,
    reply_topic,
    retry_topic,
    revive_topic,
    topic_of_pop_retry,
    validate_group,
    validate_send_topic,
    validate_topic,
)

names = st.text("abcXYZ019_-%|", min_size=1, max_size=120)


@given(names)
def test_validate_when_characters_are_allowed_accepts(name: str) -> None:
    validate_topic(name)
    validate_group(name)


@pytest.mark.parametrize("name", ["a b", "a.b", "a+b", "ä", "a\n", "\n", " ", "a/b", "a:b", "１"])
def test_validate_when_a_character_is_illegal_refuses(name: str) -> None:
    with pytest.raises(MessageError, match="illegal characters"):
        validate_topic(name)
    with pytest.raises(MessageError, match="illegal characters"):
        validate_group(name)


def test_validate_when_empty_refuses() -> None:
    with pytest.raises(MessageError, match="topic name is empty"):
        validate_topic("")
    with pytest.raises(MessageError, match="group name is empty"):
        validate_group("")


def test_validate_topic_when_at_its_length_limit_accepts_and_beyond_refuses() -> None:
    validate_topic("t" * 127)
    with pytest.raises(MessageError, match="128 characters, the limit is 127"):
        validate_topic("t" * 128)


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_validate_topic_when_retry_or_dead_letters_may_have_255(prefix: str) -> None:
    validate_topic(prefix.ljust(255, "g"))
    with pytest.raises(MessageError, match="256 characters, the limit is 255"):
        validate_topic(prefix.ljust(256, "g"))


def test_validate_group_when_at_its_length_limit_accepts_and_beyond_refuses() -> None:
    validate_group("g" * 120)
    with pytest.raises(MessageError, match="121 characters, the limit is 120"):
        validate_group("g" * 121)


@pytest.mark.parametrize("topic", sorted(topics.UNSENDABLE_TOPICS))
def test_validate_send_topic_when_topic_is_the_brokers_refuses(topic: str) -> None:
    validate_topic(topic)
    with pytest.raises(MessageError, match="belongs to the broker"):
        validate_send_topic(topic)


def test_validate_send_topic_when_trace_or_normal_accepts() -> None:
    validate_send_topic("orders")
    validate_send_topic("RMQ_SYS_TRACE_TOPIC")


# The sets as Java 5.5.0 holds them at start.
def test_system_topics_when_compared_with_java_are_the_same() -> None:
    assert {
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    } == topics.SYSTEM_TOPICS
    ours = {topics.STAGED_TOPIC, topics.STAGED_OP_TOPIC}
    assert topics.UNSENDABLE_TOPICS - ours < topics.SYSTEM_TOPICS
    assert all(is_system_topic(topic) for topic in topics.UNSENDABLE_TOPICS)
    assert len(topics.PREDEFINED_GROUPS) == 14


def test_kinds_when_asked_follow_the_prefix() -> None:
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_anything")
    assert not is_system_topic("orders")
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("TOOLS_CONSUMER")
    assert is_retry_topic("%RETRY%g")
    assert is_dlq_topic("%DLQ%g")
    assert is_lmq("%LMQ%q")
    assert not any(kind("g") for kind in (is_retry_topic, is_dlq_topic, is_lmq))


def test_names_when_built_are_those_of_the_system() -> None:
    assert retry_topic("billing") == "%RETRY%billing"
    assert dlq_topic("billing") == "%DLQ%billing"
    assert pop_retry_topic("orders", "billing") == "%RETRY%billing_orders"
    assert pop_retry_topic("orders", "billing", form=2) == "%RETRY%billing+orders"
    assert revive_topic("DefaultCluster") == "rmq_sys_REVIVE_LOG_DefaultCluster"
    assert reply_topic("DefaultCluster") == "DefaultCluster_REPLY_TOPIC"


@given(names, names, st.sampled_from([1, 2]))
def test_pop_retry_topic_when_taken_apart_gives_the_topic(topic: str, group: str, form: int) -> None:
    assert topic_of_pop_retry(pop_retry_topic(topic, group, form=form), group) == topic


def test_topic_of_pop_retry_when_name_is_no_pop_retry_comes_back() -> None:
    assert topic_of_pop_retry("orders", "billing") == "orders"
    assert topic_of_pop_retry("%RETRY%billing", "billing") == "%RETRY%billing"


def test_pop_retry_topic_when_form_is_unknown_is_refused() -> None:
    with pytest.raises(MessageError, match="form 1 or 2"):
        pop_retry_topic("orders", "billing", form=3)
