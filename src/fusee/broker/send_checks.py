"""What is checked of a message before it is stored, in the reference's order (Java: AbstractSendMessageProcessor)."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fusee.errors import MessageError
from fusee.message.hosts import pack_host
from fusee.message.topics import DLQ_PREFIX, RETRY_PREFIX, UNSENDABLE_TOPICS
from fusee.transport.link import parse_address
from fusee.wire.bodies.topic import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    UNIT_FLAG,
    UNIT_SUBSCRIPTION_FLAG,
    TopicConfig,
)
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from fusee.broker.config import BrokerConfig
    from fusee.broker.topics import TopicTable
    from fusee.clock import Clock
    from fusee.transport.link import Link
    from fusee.wire.command import Command
    from fusee.wire.headers.send import SendMessage

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"
"""What the reference says when all requests of a kind are refused."""

_NAME_CHARACTERS: Final = frozenset("%|-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@lru_cache(maxsize=8192)
def topic_fault(topic: str) -> str | None:
    """Why this cannot be a topic, in the reference's words; None when it can."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _NAME_CHARACTERS.issuperset(topic):
        return f"The specified topic: {topic}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(topic) > 255:
            return f"The specified topic is DLQ or Retry topic: {topic}, and it's longer than topic max length: 255"
    elif len(topic) > 127:
        return f"The specified topic: {topic}, is longer than topic max length: 127"
    return None


@lru_cache(maxsize=8192)
def group_fault(group: str) -> str | None:
    """Why this cannot be a group, in the reference's words; None when it can."""
    if not group.strip():
        return "The specified group is blank."
    if not _NAME_CHARACTERS.issuperset(group):
        return f"The specified group: {group}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > 120:
        return f"The specified group: {group}, is longer than group max length: 120"
    return None


def describe_topic(config: TopicConfig) -> str:
    """A topic as the reference prints it in remarks."""
    perm = "".join(
        letter if config.perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
    attributes = ", ".join(f"{key}={value}" for key, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )


def remote_host(link: Link) -> bytes:
    """The peer's address as records carry it; kept with the connection."""
    host: bytes | None = link.attachments.get("host")
    if host is None:
        ip, port = parse_address(link.remote_address or "127.0.0.1:0")
        try:
            host = pack_host(ip, port)
        except MessageError:
            host = pack_host("127.0.0.1", port)
        link.attachments["host"] = host
    return host


class SendChecks:
    """Finds the topic of a message, making it where that is allowed."""

    def __init__(self, *, config: BrokerConfig, topics: TopicTable, clock: Clock) -> None:
        self.config = config
        self._topics = topics
        self._clock = clock
        self.find_topic = topics.get

    @property
    def is_open(self) -> bool:
        """Whether the settings refuse nobody: then a topic that passed once passes until it changes."""
        config = self.config
        return (
            not config.broker_id
            and not config.start_accept_send_request_time_stamp
            and config.broker_permission & PERM_WRITE != 0
        )

    def check(self, command: Command, header: SendMessage, link: Link) -> TopicConfig | Command:
        """The topic, or the answer that says why the message is not taken."""
        config = self.config
        if config.start_accept_send_request_time_stamp and (
            self._clock.time_ms() < config.start_accept_send_request_time_stamp
        ):
            until = datetime.fromtimestamp(config.start_accept_send_request_time_stamp / 1000).astimezone()
            text = f"{until:%Y-%m-%d %H:%M:%S},{until.microsecond // 1000:03}"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=f"broker unable to service, until {text}")
        if config.broker_id:
            return command.reply(ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        topic = header.topic
        topic_config = self._topics.get(topic)
        if not config.broker_permission & PERM_WRITE and topic_config is not None and topic_config.order:
            return command.reply(
                ResponseCode.NO_PERMISSION, remark=f"the broker[{config.broker_ip1}] sending message is forbidden"
            )
        fault = topic_fault(topic)
        if fault is not None:
            return command.reply(ResponseCode.INVALID_PARAMETER, remark=fault)
        if topic in UNSENDABLE_TOPICS:
            return command.reply(ResponseCode.NO_PERMISSION, remark=f"Sending message to topic[{topic}] is forbidden.")
        if topic_config is None:
            topic_config = self._make(header)
            if topic_config is None:
                return command.reply(
                    ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist, apply first please!{FAQ}"
                )
        queue_id = header.queue_id
        if queue_id >= topic_config.write_queue_nums and queue_id >= topic_config.read_queue_nums:
            return command.reply(
                ResponseCode.INVALID_PARAMETER,
                remark=f"request queueId[{queue_id}] is illegal, {describe_topic(topic_config)} Producer: "
                f"{link.remote_address}",
            )
        return topic_config

    def _make(self, header: SendMessage) -> TopicConfig | None:
        topic = header.topic
        is_retry = topic.startswith(RETRY_PREFIX)
        flag = 0
        if header.unit_mode:
            flag = UNIT_SUBSCRIPTION_FLAG if is_retry else UNIT_FLAG
        made = self._topics.create_for_send(
            topic, header.default_topic, header.default_topic_queue_nums, topic_sys_flag=flag
        )
        if made is None and is_retry:
            made = self._topics.create_for_send_back(topic, 1, PERM_READ | PERM_WRITE, topic_sys_flag=flag)
        return made
