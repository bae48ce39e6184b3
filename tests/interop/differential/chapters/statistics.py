"""Statistics: of topics, of groups, of the broker."""

from __future__ import annotations

from fusee.wire.codes import RequestCode as Rq
from tests.interop.differential.phrases import ask
from tests.interop.differential.steps import Ask, Outcome, Step, chapter, only_entries, only_keys


def _stats(name: str, item: str | None, key: str | None) -> Ask:
    return ask(name, Rq.VIEW_BROKER_STATS_DATA, statsName=item, statsKey=key)


def _consumed(name: str, **fields: str | None) -> Ask:
    return ask(name, Rq.GET_CONSUME_STATS, **fields)  # type: ignore[arg-type]


def _groups_only(outcome: Outcome) -> Outcome:
    """Of the statistics of all groups: which groups there are, and how far those are that this script moves."""
    body = outcome.get("body") or {}
    listed = body.get("consumeStatsList") or []
    return {
        "code": outcome.get("code"),
        "fields": sorted(body),
        "groups": sorted(group for entry in listed for group in entry),
    }


STATISTICS: list[Step] = chapter(
    "statistics",
    ask("of a topic", Rq.GET_TOPIC_STATS_INFO, topic="d_plain"),
    ask("of a topic without messages", Rq.GET_TOPIC_STATS_INFO, topic="d_unit"),
    ask("of a topic with more to read than to write", Rq.GET_TOPIC_STATS_INFO, topic="d_shrunk"),
    ask("of a topic without queues", Rq.GET_TOPIC_STATS_INFO, topic="d_none"),
    ask("of an unknown topic", Rq.GET_TOPIC_STATS_INFO, topic="d_unknown"),
    ask("of no topic", Rq.GET_TOPIC_STATS_INFO),
    _consumed("of a group", consumerGroup="d_committers"),
    _consumed("of a group and a topic", consumerGroup="d_committers", topic="d_plain"),
    _consumed("of a group and an unknown topic", consumerGroup="d_committers", topic="d_unknown"),
    _consumed("of a group and a topic it never read", consumerGroup="d_committers", topic="d_keys"),
    _consumed("of a group and two topics", consumerGroup="d_committers", topicList="d_plain;d_tags"),
    _consumed(
        "of a group and two topics of which one is unknown", consumerGroup="d_committers", topicList="d_unknown;d_tags"
    ),
    _consumed("of a group and its retry topic", consumerGroup="d_retries", topic="%RETRY%d_retries"),
    _consumed("of a group that is there", consumerGroup="d_casters"),
    _consumed("of a group that never committed", consumerGroup="d_absent"),
    _consumed("of no group", topic="d_plain"),
    ask("time span", Rq.QUERY_CONSUME_TIME_SPAN, topic="d_plain", group="d_committers"),
    ask("time span of a group that never committed", Rq.QUERY_CONSUME_TIME_SPAN, topic="d_plain", group="d_absent"),
    ask("time span of a topic without messages", Rq.QUERY_CONSUME_TIME_SPAN, topic="d_unit", group="d_committers"),
    ask("time span of an unknown topic", Rq.QUERY_CONSUME_TIME_SPAN, topic="d_unknown", group="d_committers"),
    ask("time span of no group", Rq.QUERY_CONSUME_TIME_SPAN, topic="d_plain"),
    ask("time span of no topic", Rq.QUERY_CONSUME_TIME_SPAN, group="d_committers"),
    ask("of all groups", Rq.GET_BROKER_CONSUME_STATS, isOrder=False, view=_groups_only),
    ask("of all ordered groups", Rq.GET_BROKER_CONSUME_STATS, isOrder=True, view=_groups_only),
    ask("of all groups without saying which", Rq.GET_BROKER_CONSUME_STATS, view=_groups_only),
    ask("what a running broker tells", Rq.GET_BROKER_RUNTIME_INFO, view=only_keys("table")),
    ask(
        "what a running broker tells exactly",
        Rq.GET_BROKER_RUNTIME_INFO,
        view=only_entries(
            "brokerActive",
            "brokerVersionDesc",
            "dispatchBehindBytes",
            "startAcceptSendRequestTimeStamp",
            "sendThreadPoolQueueCapacity",
            "pullThreadPoolQueueCapacity",
            "commitLogMinOffset",
            "earliestMessageTimeStamp",
            path=("table",),
        ),
    ),
    _stats("sends to a topic", "TOPIC_PUT_NUMS", "d_plain"),
    _stats("bytes sent to a topic", "TOPIC_PUT_SIZE", "d_plain"),
    _stats("sends to an unknown topic", "TOPIC_PUT_NUMS", "d_unknown"),
    _stats("reads of a group", "GROUP_GET_NUMS", "d_plain@d_readers"),
    _stats("bytes read by a group", "GROUP_GET_SIZE", "d_plain@d_readers"),
    _stats("what a group sent back", "SNDBCK_PUT_NUMS", "d_back@d_retries"),
    _stats("sends to the broker", "BROKER_PUT_NUMS", "DefaultCluster"),
    _stats("reads from the broker", "BROKER_GET_NUMS", "DefaultCluster"),
    _stats("something unknown", "NO_SUCH_STATS", "d_plain"),
    _stats("nothing", None, "d_plain"),
    _stats("of nothing", "TOPIC_PUT_NUMS", None),
    _stats("how far a group is behind", "GROUP_GET_FALL_SIZE", "0@d_plain@d_readers"),
)
