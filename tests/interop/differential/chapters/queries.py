"""Queries: by key, by unique key, by id, and into the consume queue."""

from __future__ import annotations

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask, create_topic, send
from tests.interop.differential.steps import Ask, Step, Value, chapter, kept

_FOREVER = (1 << 63) - 1


def _by_key(name: str, key: str | None, topic: str | None = "d_keys", **more: Value) -> Ask:
    fields: dict[str, Value] = {
        "topic": topic,
        "key": key,
        "maxNum": 32,
        "beginTimestamp": 0,
        "endTimestamp": _FOREVER,
        "indexType": "K",
        **more,
    }
    return ask(name, Rq.QUERY_MESSAGE, **fields)  # type: ignore[arg-type]


def _queue(
    name: str, topic: str | None = "d_keys", index: int | None = 0, count: int | None = 10, **more: Value
) -> Ask:
    fields: dict[str, Value] = {"topic": topic, "queueId": 0, "index": index, "count": count, **more}
    return ask(name, Rq.QUERY_CONSUME_QUEUE, **fields)  # type: ignore[arg-type]


QUERIES: list[Step] = chapter(
    "queries",
    create_topic("a topic with keys", "d_keys", queues=1),
    send("one key", "d_keys", properties={"KEYS": "red", "TAGS": "A"}, key="unique-1", remember="keyed"),
    send("two keys", "d_keys", properties={"KEYS": "red blue", "TAGS": "B"}, key="unique-2"),
    send("no key", "d_keys", key="unique-3"),
    send("the same unique key again", "d_keys", properties={"KEYS": "green"}, key="unique-1"),
    send("a key with spaces around", "d_keys", properties={"KEYS": "  yellow  "}, key="unique-5"),
    _by_key("by a key that two have", "red"),
    _by_key("by a key that one has", "blue"),
    _by_key("by a key with spaces around", "yellow"),
    _by_key("by a key that nobody has", "black"),
    _by_key("by part of a key", "re"),
    _by_key("by two keys", "red blue"),
    _by_key("one only", "red", maxNum=1),
    _by_key("none at all", "red", maxNum=0),
    _by_key("a negative number", "red", maxNum=-1),
    _by_key("before the beginning", "red", endTimestamp=1000),
    _by_key("after the end", "red", beginTimestamp=_FOREVER - 1),
    _by_key("without kind", "red", indexType=None),
    _by_key("by an unknown kind", "red", indexType="X"),
    _by_key("by tag", "A", indexType="T"),
    _by_key("saying that the key is not unique", "red", _UNIQUE_KEY_QUERY="false"),
    _by_key("by unique key", "unique-2", indexType="U", _UNIQUE_KEY_QUERY="true"),
    _by_key("by unique key as old clients do", "unique-2", indexType=None, _UNIQUE_KEY_QUERY="true"),
    _by_key("by a unique key that two have", "unique-1", indexType="U", _UNIQUE_KEY_QUERY="true", maxNum=1),
    _by_key("by a unique key that nobody has", "unique-9", indexType="U", _UNIQUE_KEY_QUERY="true"),
    _by_key("by a unique key as if it were none", "unique-2"),
    _by_key("by a key of a batch", "three-key", "d_single"),
    _by_key("by a unique key of a batch", "three-1", "d_single", indexType="U", _UNIQUE_KEY_QUERY="true"),
    _by_key(
        "by a unique key of a batch kept whole",
        "to_a_topic_of_batches",
        "d_inner",
        indexType="U",
        _UNIQUE_KEY_QUERY="true",
    ),
    _by_key("by the key of a delayed message", "later", "d_later"),
    _by_key("by the key of a transaction", "tx", "d_transaction"),
    _by_key("by the key of a retry", "back", "%RETRY%d_retries"),
    _by_key("in an unknown topic", "red", "d_unknown"),
    _by_key("without a key", None),
    _by_key("without a topic", "red", None),
    _by_key("without a number", "red", maxNum=None),
    _by_key("without a time", "red", beginTimestamp=None),
    ask("view", Rq.VIEW_MESSAGE_BY_ID, topic="d_keys", offset=kept("keyed.log_offset")),
    ask("view without a topic", Rq.VIEW_MESSAGE_BY_ID, offset=kept("keyed.log_offset")),
    ask("view under another topic", Rq.VIEW_MESSAGE_BY_ID, topic="d_plain", offset=kept("keyed.log_offset")),
    ask("view the first of a batch", Rq.VIEW_MESSAGE_BY_ID, topic="d_single", offset=kept("batch.log_offset")),
    ask("view a batch kept whole", Rq.VIEW_MESSAGE_BY_ID, topic="d_inner", offset=kept("inner.log_offset")),
    ask("view a half message", Rq.VIEW_MESSAGE_BY_ID, topic="d_transaction", offset=kept("other.log_offset")),
    ask("view what is not there", Rq.VIEW_MESSAGE_BY_ID, topic="d_keys", offset=123_456_789_000),
    ask("view what is before the beginning", Rq.VIEW_MESSAGE_BY_ID, topic="d_keys", offset=-1),
    ask("view nothing", Rq.VIEW_MESSAGE_BY_ID, topic="d_keys"),
    ask("view in words", Rq.VIEW_MESSAGE_BY_ID, topic="d_keys", offset="first"),
    _queue("queue"),
    _queue("queue from the second on", index=1, count=2),
    _queue("queue of one", count=1),
    _queue("queue of none", count=0),
    _queue("queue behind the end", index=50),
    _queue("queue before the beginning", index=-1),
    _queue("queue of more than there is", count=10_000),
    _queue("queue as a group that is not there", consumerGroup="d_absent"),
    _queue("queue as a group that is there", "d_plain", consumerGroup="d_casters"),
    _queue("queue that never had a message", "d_unit"),
    _queue("queue that is not there", queueId=9),
    _queue("queue of an unknown topic", "d_unknown"),
    _queue("queue of no topic", None),
    _queue("queue of batches", "d_inner"),
    _queue("queue of delays", "SCHEDULE_TOPIC_XXXX", queueId=17),
)
