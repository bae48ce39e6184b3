"""Peeking: look at the next messages of a group without taking them (Java: PeekMessageProcessor).

Messages of the topic come first or, one time in five, those of its POP retry topic, as the reference does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.broker.send_checks import FAQ
from fusee.message.topics import pop_retry_topic
from fusee.store.results import GetStatus
from fusee.wire.bodies.topic import PERM_READ
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.pop import PeekMessage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from fusee.broker.config import BrokerConfig
    from fusee.broker.groups import GroupTable
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.store.results import GetResult
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command


class PeekHandlers:
    """Code 200052."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        writer: LogWriter,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        statistics: Statistics,
        random: Random,
    ) -> None:
        self.config = config
        self._writer = writer
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._statistics = statistics
        self._random = random

    def routes(self) -> dict[RequestCode, Handler]:
        return {RequestCode.PEEK_MESSAGE: self.peek}

    def peek(self, command: Command, link: Link) -> Command:
        header = command.read(PeekMessage)
        refusal = self._refusal(command, header, link)
        if refusal is not None:
            return refusal
        self._writer.make_visible()
        parts: list[memoryview] = []
        count = rest = 0
        for topic, queue_id in self._queues(header):
            queue_offset = self._next_offset(header.consumer_group, topic, queue_id)
            rest += self._writer.store.max_offset(topic, queue_id) - queue_offset
            if count < header.max_messages:
                found = self._get(topic, queue_id, queue_offset, header.max_messages - count)
                count += found.count
                parts += found.slices
        status = GetStatus.FOUND if count else GetStatus.NO_MESSAGE_IN_QUEUE
        answer = command.reply(
            ResponseCode.SUCCESS if count else ResponseCode.PULL_NOT_FOUND,
            remark=status.value,
            body=b"".join(parts),
        )
        answer.ext_fields = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": str(rest)}
        if count:
            self._statistics.got(header.consumer_group, header.topic, header.queue_id, count, len(answer.body))
        return answer

    def _refusal(self, command: Command, header: PeekMessage, link: Link) -> Command | None:
        topic, group_name = header.topic, header.consumer_group
        if not self.config.broker_permission & PERM_READ:
            return command.reply(
                ResponseCode.NO_PERMISSION, remark=f"the broker[{self.config.broker_ip1}] peeking message is forbidden"
            )
        topic_config = self._topics.get(topic)
        if topic_config is None:
            return command.reply(
                ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist, apply first please! {FAQ}"
            )
        if not topic_config.perm & PERM_READ:
            return command.reply(ResponseCode.NO_PERMISSION, remark=f"the topic[{topic}] peeking message is forbidden")
        if header.queue_id >= topic_config.read_queue_nums:
            return command.reply(
                ResponseCode.INVALID_PARAMETER,
                remark=f"queueId[{header.queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{topic_config.read_queue_nums}] consumer:[/{link.remote_address}]",
            )
        group = self._groups.find(group_name)
        if group is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"subscription group [{group_name}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            return command.reply(ResponseCode.NO_PERMISSION, remark=f"subscription group no permission, {group_name}")
        return None

    def _queues(self, header: PeekMessage) -> Iterator[tuple[str, int]]:
        """Every queue that is looked at, in order."""
        chance = self._random.randrange(100)
        retry_topic = pop_retry_topic(header.topic, header.consumer_group)
        retry_first = chance % 5 == 0
        if retry_first:
            yield from self._of_topic(retry_topic, chance)
        if header.queue_id < 0:
            yield from self._of_topic(header.topic, chance)
        else:
            yield header.topic, header.queue_id
        if not retry_first:
            yield from self._of_topic(retry_topic, chance)

    def _of_topic(self, topic: str, chance: int) -> Iterator[tuple[str, int]]:
        topic_config = self._topics.get(topic)
        queues = topic_config.read_queue_nums if topic_config is not None else 0
        for number in range(queues):
            yield topic, (chance + number) % queues

    def _next_offset(self, group: str, topic: str, queue_id: int) -> int:
        queue_offset = self._offsets.query(group, topic, queue_id)
        return queue_offset if queue_offset >= 0 else self._writer.store.min_offset(topic, queue_id)

    def _get(self, topic: str, queue_id: int, queue_offset: int, count: int) -> GetResult:
        store = self._writer.store
        found = store.get(topic, queue_id, queue_offset, count)
        if found.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
            # What was committed is not there any more: from where there is something.
            found = store.get(topic, queue_id, found.next_offset, count)
        return found
