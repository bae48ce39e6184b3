"""Offsets: of queues, of consumers, by time."""

from __future__ import annotations

import time

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask, commit, committed, max_offset, tell
from tests.interop.differential.steps import Ask, Memory, Step, chapter, has_field, only_entries

_GROUP = "d_committers"
# For what Java takes although it makes no sense.
_LAX = "d_lax_committers"


def _by_time(name: str, topic: str, queue_id: int | None = 0, *, at_ms: int | None = 0, **more: object) -> Ask:
    """`at_ms` counts from now when negative and small, is a time otherwise."""
    return ask(
        name,
        Rq.SEARCH_OFFSET_BY_TIMESTAMP,
        topic=topic,
        queueId=queue_id,
        timestamp=at_ms,
        **more,  # type: ignore[arg-type]
    )


def _later(_: Memory) -> int:
    return time.time_ns() // 1_000_000 + 3_600_000


PLAIN: list[Step] = chapter(
    "offsets",
    max_offset("max", "d_plain"),
    max_offset("max of another queue", "d_plain", 2),
    max_offset("max of what is not committed", "d_plain", committed=False),
    max_offset("max of a queue without messages", "d_unit"),
    max_offset("max of a queue that is not there", "d_plain", 99),
    max_offset("max of a negative queue", "d_plain", -1),
    max_offset("max of an unknown topic", "d_unknown"),
    ask("max of nothing", Rq.GET_MAX_OFFSET, queueId=0),
    ask("max without a queue", Rq.GET_MAX_OFFSET, topic="d_plain"),
    ask("max of a logical queue", Rq.GET_MAX_OFFSET, topic="d_plain", queueId=0, lo=True),
    ask("min", Rq.GET_MIN_OFFSET, topic="d_plain", queueId=0),
    ask("min of a queue without messages", Rq.GET_MIN_OFFSET, topic="d_unit", queueId=0),
    ask("min of an unknown topic", Rq.GET_MIN_OFFSET, topic="d_unknown", queueId=0),
    ask("min of a queue that is not there", Rq.GET_MIN_OFFSET, topic="d_plain", queueId=77),
    ask("min without a queue", Rq.GET_MIN_OFFSET, topic="d_plain"),
    ask("earliest time", Rq.GET_EARLIEST_MSG_STORETIME, topic="d_plain", queueId=0),
    ask("earliest time of a queue without messages", Rq.GET_EARLIEST_MSG_STORETIME, topic="d_unit", queueId=0),
    ask("earliest time of an unknown topic", Rq.GET_EARLIEST_MSG_STORETIME, topic="d_unknown", queueId=0),
    ask("earliest time without a queue", Rq.GET_EARLIEST_MSG_STORETIME, topic="d_plain"),
    _by_time("by a time long ago", "d_plain", at_ms=1000),
    _by_time("by the time zero", "d_plain", at_ms=0),
    _by_time("by a negative time", "d_plain", at_ms=-1),
    ask("by a time to come", Rq.SEARCH_OFFSET_BY_TIMESTAMP, topic="d_plain", queueId=0, timestamp=_later),
    *(
        ask(
            f"by a time to come, {boundary}",
            Rq.SEARCH_OFFSET_BY_TIMESTAMP,
            topic="d_plain",
            queueId=0,
            timestamp=_later,
            boundaryType=boundary,
        )
        for boundary in ("LOWER", "UPPER", "lower", "upper", "middle")
    ),
    _by_time("by a time long ago, upper", "d_plain", at_ms=1000, boundaryType="upper"),
    _by_time("by time in a queue without messages", "d_unit", at_ms=1000),
    _by_time("by time in an unknown topic", "d_unknown", at_ms=1000),
    _by_time("by time without a queue", "d_plain", None, at_ms=1000),
    _by_time("by no time", "d_plain", at_ms=None),
    committed("of a group that never committed", _GROUP, "d_plain"),
    committed("of a group that never committed, not zero", _GROUP, "d_plain", setZeroIfNotFound=False),
    committed("of a group that never committed, zero", _GROUP, "d_plain", setZeroIfNotFound=True),
    committed("of an unknown topic", _GROUP, "d_unknown"),
    committed("of a queue that is not there", _GROUP, "d_plain", 99),
    committed("of a queue without messages", _GROUP, "d_unit"),
    committed("of a negative queue", _GROUP, "d_plain", -1),
    ask("of no group", Rq.QUERY_CONSUMER_OFFSET, topic="d_plain", queueId=0),
    ask("of no topic", Rq.QUERY_CONSUMER_OFFSET, consumerGroup=_GROUP, queueId=0),
    ask("of no queue", Rq.QUERY_CONSUMER_OFFSET, consumerGroup=_GROUP, topic="d_plain"),
    commit("commit", _GROUP, "d_plain", 0, 2),
    committed("what was committed", _GROUP, "d_plain"),
    commit("commit less", _GROUP, "d_plain", 0, 1),
    committed("less was committed", _GROUP, "d_plain"),
    commit("commit behind the end", _GROUP, "d_plain", 1, 5000),
    committed("behind the end was committed", _GROUP, "d_plain", 1),
    commit("commit zero", _GROUP, "d_plain", 2, 0),
    committed("zero was committed", _GROUP, "d_plain", 2),
    commit("commit a negative offset", _LAX, "d_lax", 3, -3),
    committed("what came of the negative offset", _LAX, "d_lax", 3, setZeroIfNotFound=False),
    commit("commit to a queue that is not there", _GROUP, "d_plain", 40, 1),
    committed("it was committed to a queue that is not there", _GROUP, "d_plain", 40),
    commit("commit to a negative queue", _LAX, "d_lax", -2, 1),
    commit("commit to an unknown topic", _GROUP, "d_unknown", 0, 1),
    commit("commit as an unknown group", "d_commit_unknown", "d_plain", 0, 1),
    commit("commit as a group with a bad letter", "d bad", "d_plain", 0, 1),
    commit("commit to a retry topic", _GROUP, f"%RETRY%{_GROUP}", 0, 1),
    commit("commit to a tagged topic", _GROUP, "d_tags", 0, 3),
    ask("commit nothing", Rq.UPDATE_CONSUMER_OFFSET, consumerGroup=_GROUP, topic="d_plain", queueId=0),
    ask("commit without a queue", Rq.UPDATE_CONSUMER_OFFSET, consumerGroup=_GROUP, topic="d_plain", commitOffset=1),
    ask("commit without a topic", Rq.UPDATE_CONSUMER_OFFSET, consumerGroup=_GROUP, queueId=0, commitOffset=1),
    ask("commit without a group", Rq.UPDATE_CONSUMER_OFFSET, topic="d_plain", queueId=0, commitOffset=1),
    tell(
        "commit without wanting an answer",
        Rq.UPDATE_CONSUMER_OFFSET,
        consumerGroup=_GROUP,
        topic="d_sql",
        queueId=0,
        commitOffset=4,
    ),
    committed("it was committed", _GROUP, "d_sql", until=has_field("offset", "4")),
    ask(
        "table of all",
        Rq.GET_ALL_CONSUMER_OFFSET,
        view=only_entries(
            f"d_plain@{_GROUP}", f"d_tags@{_GROUP}", f"d_sql@{_GROUP}", "d_plain@d_pull_commit", path=("offsetTable",)
        ),
    ),
    ask("topics of a group", Rq.QUERY_TOPICS_BY_CONSUMER, group=_GROUP),
    ask("topics of an unknown group", Rq.QUERY_TOPICS_BY_CONSUMER, group="d_never_heard"),
    ask("topics of no group", Rq.QUERY_TOPICS_BY_CONSUMER),
    ask("groups of a topic", Rq.QUERY_TOPIC_CONSUME_BY_WHO, topic="d_plain"),
    ask("groups of a topic without any", Rq.QUERY_TOPIC_CONSUME_BY_WHO, topic="d_unit"),
    ask("groups of an unknown topic", Rq.QUERY_TOPIC_CONSUME_BY_WHO, topic="d_unknown"),
    ask("groups of no topic", Rq.QUERY_TOPIC_CONSUME_BY_WHO),
)
