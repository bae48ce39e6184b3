"""Alterations of attributes: the rules and the words of Java 5.5.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.broker.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    InvalidAttributeError,
    altered,
    parse_alterations,
)


@pytest.mark.parametrize(
    ("text", "alterations"),
    [
        (None, {}),
        ("", {}),
        ("+message.type=FIFO", {"+message.type": "FIFO"}),
        ("+a=1,-b,+c=2,", {"+a": "1", "-b": "", "+c": "2"}),
        ("+a=b=c", {"+a": "b"}),
    ],
)
def test_parse_takes_what_mqadmin_writes(text: str | None, alterations: dict[str, str]) -> None:
    assert parse_alterations(text) == alterations


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=1", "add/alter attribute format is wrong: a"),
        ("-a=1", "add/alter attribute format is wrong: -a"),
        ("a", "delete attribute format is wrong: a"),
        (",+a=1", "delete attribute format is wrong: "),
        ("+a=1,+a=2", "key duplication: \\+a"),
        ("+a=", "attribute \\+a has no value"),
    ],
)
def test_parse_when_malformed_says_what_java_says(text: str, words: str) -> None:
    with pytest.raises(InvalidAttributeError, match=words):
        parse_alterations(text)


@pytest.mark.parametrize(
    ("current", "alterations", "words"),
    [
        (None, {"-message.type": ""}, "only add attribute is supported while creating topic. key: message.type"),
        (None, {"+colour": "red"}, "unsupported key: colour"),
        (None, {"+": "x"}, "kv string format wrong."),
        (None, {"++queue.type": "BatchCQ"}, "kv string format wrong."),
        (None, {"+message.type": "LOUD"}, "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO,"),
        (None, {"+cleanup.policy": "keep"}, "value is not in set: [DELETE, COMPACTION]"),
        (None, {"+reserve.time": "soon"}, 'For input string: "soon"'),
        (None, {"+reserve.time": "1_0"}, 'For input string: "1_0"'),
        (None, {"+reserve.time": str(2**63)}, 'For input string: "9223372036854775808"'),
        (None, {"+reserve.time": "-2"}, "value is not in range(-1, 9223372036854775807)"),
        ({}, {"+queue.type": "BatchCQ"}, "attempt to update an unchangeable attribute. key: queue.type"),
        (
            {"queue.type": "BatchCQ"},
            {"-queue.type": ""},
            "attempt to update an unchangeable attribute. key: queue.type",
        ),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        ({}, {"*message.type": "FIFO"}, "wrong format key: message.type"),
        ({"message.type": "FIFO"}, {"+message.type": "FIFO", "-message.type": ""}, "alter duplication key. key: mess"),
    ],
)
def test_alter_topic_when_refused_says_what_java_says(
    current: dict[str, str] | None, alterations: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidAttributeError) as caught:
        altered(TOPIC_ATTRIBUTES, current, alterations)
    assert str(caught.value).startswith(words)


def test_alter_sets_changes_and_removes() -> None:
    made = altered(TOPIC_ATTRIBUTES, None, {"+queue.type": "BatchCQ", "+message.type": "FIFO"})
    assert made == {"queue.type": "BatchCQ", "message.type": "FIFO"}
    changed = altered(TOPIC_ATTRIBUTES, made, {"+message.type": "DELAY", "+reserve.time": "+5"})
    assert changed == {"queue.type": "BatchCQ", "message.type": "DELAY", "reserve.time": "+5"}
    assert altered(TOPIC_ATTRIBUTES, changed, {"-message.type": "", "-reserve.time": ""}) == {"queue.type": "BatchCQ"}
    assert made == {"queue.type": "BatchCQ", "message.type": "FIFO"}


def test_alter_group_knows_its_own_attributes() -> None:
    taken = {"+priority.factor": "7", "+lite.bind.topic": "any", "+lite.sub.reset.offset.exclusive": "TRUE"}
    assert altered(GROUP_ATTRIBUTES, {}, taken)["priority.factor"] == "7"
    with pytest.raises(InvalidAttributeError, match="boolean attribute format is wrong."):
        altered(GROUP_ATTRIBUTES, {}, {"+lite.sub.reset.offset.exclusive": "yes"})
    with pytest.raises(InvalidAttributeError, match="unsupported key: message.type"):
        altered(GROUP_ATTRIBUTES, None, {"+message.type": "FIFO"})


@pytest.mark.parametrize("known", [TOPIC_ATTRIBUTES, GROUP_ATTRIBUTES], ids=["topic", "group"])
def test_every_default_is_a_value_that_is_taken(known: dict[str, object]) -> None:
    for attribute in (TOPIC_ATTRIBUTES if known is TOPIC_ATTRIBUTES else GROUP_ATTRIBUTES).values():
        if attribute.default is not None:
            attribute.check(attribute.default)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        alterations = parse_alterations(text)
    except InvalidAttributeError:
        return
    assert all("+" in key or "-" in key for key in alterations)
