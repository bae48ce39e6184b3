"""What becomes of a message that a consumer could not handle: another try later, or the dead letters.

Two ways lead here. A push consumer gives a message back by its place in the log (code 36, `handlers.send_back`); the
broker makes the next try of it, in the topic %RETRY%group, behind a delay that grows with the number of tries. Or a
client sends a copy to %RETRY%group itself, as an ordinary message that says how often it was tried. In both cases
too many tries lead to the topic %DLQ%group, from which nothing is delivered again.

    tries so far      0    1    2   ...  15                16 and more
    delay level       3    4    5   ...  18 (two hours)    dead letters (retryMaxTimes of the group, or the consumer's)

A try keeps the body and the properties of the message, and says in RETRY_TOPIC where it was sent to and in
ORIGIN_MESSAGE_ID which record it was at first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.broker.rewrites import DELAY, copy_of, with_property
from fusee.broker.send_checks import FAQ
from fusee.message import properties as names
from fusee.message.flags import with_host_families
from fusee.message.properties import find_property
from fusee.message.topics import RETRY_PREFIX, dlq_topic
from fusee.wire.bodies.topic import PERM_READ, PERM_WRITE
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from fusee.broker.groups import GroupTable
    from fusee.broker.queue_locks import QueueLocks
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.message.model import StoredMessage
    from fusee.store.new_record import NewRecord
    from fusee.wire.bodies.group import SubscriptionGroupConfig
    from fusee.wire.command import Command
    from fusee.wire.headers.send import SendMessage

DLQ_QUEUE_NUMS: Final = 1
FIRST_RETRY_LEVEL: Final = 3
READ_WRITE: Final = PERM_READ | PERM_WRITE

# Clients from 3.4.9 on say themselves how many tries there are.
_VERSION_3_4_9: Final = 121
_RETRY_TOPIC: Final = names.RETRY_TOPIC.encode()
_ORIGIN_MESSAGE_ID: Final = names.ORIGIN_MESSAGE_ID.encode()
_WAIT: Final = names.WAIT.encode()


def tries_max(command: Command, group: SubscriptionGroupConfig, wanted: int | None) -> int:
    """How often a message is tried: what the client wants, if it is new enough to say, else what the group has."""
    if wanted is not None and command.version >= _VERSION_3_4_9:
        return wanted
    return group.retry_max_times


def retry_record(message: StoredMessage, topic: str, queue_id: int, level: int, store_host: bytes) -> NewRecord:
    """The next try of a message in this queue, one more counted; level 0 for the dead letters."""
    properties = message.properties_bytes
    if find_property(properties, _RETRY_TOPIC) is None:
        properties = with_property(properties, _RETRY_TOPIC, message.topic)
    properties = with_property(properties, _WAIT, b"false")
    properties = with_property(properties, DELAY, level)
    origin = find_property(properties, _ORIGIN_MESSAGE_ID)
    if origin is None or not origin.strip():
        properties = with_property(properties, _ORIGIN_MESSAGE_ID, message.offset_id)
    record = copy_of(message, topic, queue_id, properties)
    record.store_host = store_host
    record.sys_flag = with_host_families(record.sys_flag, record.born_host, store_host)
    record.reconsume_times += 1
    return record


def group_of_retry_topic(topic: str) -> str:
    """The group that a retry topic belongs to, of POP's second form too (`%RETRY%group+topic`)."""
    group, separator, rest = topic.removeprefix(RETRY_PREFIX).partition("+")
    return group if separator and rest and "+" not in rest else topic.removeprefix(RETRY_PREFIX)


class RetryRules:
    """The rules for messages that clients send to a retry topic themselves."""

    def __init__(
        self, *, groups: GroupTable, topics: TopicTable, locks: QueueLocks, statistics: Statistics | None = None
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._locks = locks
        self._statistics = statistics

    def apply(self, command: Command, header: SendMessage, record: NewRecord) -> Command | None:
        """Let the record go on to its retry topic, or turn it to the dead letters; an answer when it may do neither.

        A group that holds locks consumes in order: there a message comes only after all its tries (Java:
        handleRetryAndDLQ).
        """
        name = group_of_retry_topic(record.topic)
        group = self._groups.find(name)
        if group is None:
            return unknown_group(command, name)
        tries = header.reconsume_times or 0
        if tries <= tries_max(command, group, header.max_reconsume_times) and not self._locks.holds_live_locks(name):
            return None
        if self._statistics is not None:
            self._statistics.dead_letter(name, record.topic)
        record.topic = dlq_topic(name)
        record.queue_id = 0
        # Java leaves this mark of a message that is delayed no more.
        record.properties = with_property(record.properties, DELAY, -1)
        self._topics.create_for_send_back(record.topic, DLQ_QUEUE_NUMS, READ_WRITE)
        return None


def unknown_group(command: Command, group: str) -> Command:
    """The answer when there is no such consumer group."""
    return command.reply(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"subscription group not exist, {group} {FAQ}"
    )
