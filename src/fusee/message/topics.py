"""Names of topics and groups: which are valid, which are the system's, how retry and dead letters are named.

A name consists of letters, digits and `_ - % |`. A topic has at most 127 characters; names beginning with
%RETRY% or %DLQ% may have 255, because they are built from a group (at most 120) and, for POP, a topic. The
POP retry name of the second form joins with `+`, a character no user can choose, so that it can be taken
apart again.

`%` also separates a namespace from a name (see `namespaces`), hence it is allowed everywhere.
"""

from __future__ import annotations

import re
from typing import Final

from fusee.errors import MessageError

TOPIC_LENGTH_MAX: Final = 127
RETRY_TOPIC_LENGTH_MAX: Final = 255
GROUP_LENGTH_MAX: Final = 120

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_HALF_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
SYNC_BROKER_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
STAGED_TOPIC: Final = "rmq_sys_FUSEE_STAGED"
STAGED_OP_TOPIC: Final = "rmq_sys_FUSEE_STAGED_OP"

# A broker adds its cluster name, its own name and its reply topic to these at run time.
SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, BENCHMARK_TOPIC, HALF_TOPIC, HALF_OP_TOPIC, ROCKSDB_HALF_TOPIC,
        ROCKSDB_HALF_OP_TOPIC, TRACE_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
    }
)  # fmt: skip
UNSENDABLE_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC, HALF_TOPIC, HALF_OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_HALF_OP_TOPIC,
        CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, STAGED_TOPIC, STAGED_OP_TOPIC,
    }
)  # fmt: skip

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
PREDEFINED_GROUPS: Final = frozenset(
    {
        DEFAULT_CONSUMER_GROUP, DEFAULT_PRODUCER_GROUP, INNER_PRODUCER_GROUP, TOOLS_CONSUMER_GROUP,
        TRANSACTION_GROUP, "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER",
        "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
    }
)  # fmt: skip

_VALID_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def validate_topic(topic: str) -> None:
    """Raise MessageError saying why this cannot be a topic's name (127 characters; 255 for retry and DLQ)."""
    longest = TOPIC_LENGTH_MAX
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        longest = RETRY_TOPIC_LENGTH_MAX
    _validate_name("topic", topic, longest)


def validate_send_topic(topic: str) -> None:
    """Raise MessageError when an application may not send here: a bad name or a topic of the system."""
    validate_topic(topic)
    if topic in UNSENDABLE_TOPICS:
        raise MessageError(f"topic {topic!r} belongs to the broker; applications cannot send to it")


def validate_group(group: str) -> None:
    """Raise MessageError saying why this cannot be a group's name (length 120)."""
    _validate_name("group", group, GROUP_LENGTH_MAX)


def _validate_name(kind: str, name: str, longest: int) -> None:
    if not name:
        raise MessageError(f"the {kind} name is empty; give one of letters, digits and _ - % |")
    if len(name) > longest:
        raise MessageError(f"{kind} name {name[:40]!r}... has {len(name)} characters, the limit is {longest}")
    if _VALID_NAME(name) is None:
        raise MessageError(f"{kind} name {name!r} has illegal characters; use only letters, digits and _ - % |")


def is_system_topic(topic: str) -> bool:
    """Whether the topic is one of the system's own."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether the consumer group is one of the system's own."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Whether messages in this topic are being tried again."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether this is a dead-letter topic."""
    return topic.startswith(DLQ_PREFIX)


def is_lmq(topic: str) -> bool:
    """Whether this is a light message queue, filled by multi dispatch."""
    return topic.startswith(LMQ_PREFIX)


def retry_topic(group: str) -> str:
    """Where messages that a push consumer of the group sent back wait for their next try."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where messages end that the group could not consume."""
    return DLQ_PREFIX + group


def pop_retry_topic(topic: str, group: str, *, form: int = 1) -> str:
    """Retry topic of POP consumption; form 1 joins with `_` (the default of 5.5.0), form 2 with `+`."""
    if form not in (1, 2):
        raise MessageError(f"POP retry topics have form 1 or 2, not {form}")
    return f"{RETRY_PREFIX}{group}{'_' if form == 1 else '+'}{topic}"


def topic_of_pop_retry(name: str, group: str) -> str:
    """The topic that this POP retry topic of the group serves; any other name comes back unchanged."""
    for separator in ("+", "_"):
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def revive_topic(cluster: str) -> str:
    """Where POP keeps its check points and acknowledgements."""
    return REVIVE_TOPIC_PREFIX + cluster


def reply_topic(cluster: str) -> str:
    """Where replies of the request-reply mode are sent."""
    return cluster + "_REPLY_TOPIC"
