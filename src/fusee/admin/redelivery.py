"""Giving a message to a group again: at once to one member, or anew through the retry topic; dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.admin.messages import BROWSE_LIMIT, MessageCalls
from fusee.admin.reach import RELAY_TIMEOUT_MS
from fusee.admin.views import DirectResult
from fusee.client.results import STATUS_OF_CODE
from fusee.errors import ConfigError, ConsumerOfflineError, NotFoundError, RemoteFailureError
from fusee.message import properties as names
from fusee.message.flags import SysFlag
from fusee.message.properties import encode_properties
from fusee.message.topics import (
    AUTO_CREATE_TOPIC,
    CHECK_MAX_TIME_TOPIC,
    INNER_PRODUCER_GROUP,
    dlq_topic,
    is_dlq_topic,
    retry_topic,
)
from fusee.wire.bodies.stats import ConsumeDirectlyResult
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.client import ConsumeMessageDirectly
from fusee.wire.headers.send import SendMessageResponse, SendMessageV2
from fusee.wire.headers.transaction import ResumeCheckHalfMessage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fusee.admin.views import BrokerAddress
    from fusee.client.received import ReceivedMessage

_RETRY_QUEUES: Final = 1

# Of the way a message took so far; one that is given again starts anew, and at once.
_NOT_GIVEN_AGAIN: Final = frozenset(
    {
        names.CRC32,
        names.DELAY,
        names.MAX_RECONSUME_TIMES,
        names.REAL_QUEUE_ID,
        names.REAL_TOPIC,
        names.RECONSUME_TIME,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SEC,
        names.TIMER_DELIVER_MS,
        names.TRANSACTION_PREPARED,
    }
)


class RedeliveryCalls(MessageCalls):
    """Messages that are given again."""

    async def consume_directly(
        self, group: str, message: ReceivedMessage | str, *, client_id: str | None = None, topic: str | None = None
    ) -> DirectResult:
        """Let a member of a group consume one message now; its offsets stay as they are (mqadmin queryMsgById -g -d).

        `message` is a message or its id. Without `client_id` any member that the message's broker knows is chosen.
        Raises ConsumerOfflineError when none is online or it does not answer in time.
        """
        if isinstance(message, str):
            message = await self.message(message, topic)
        place = await self._one_broker(message.broker_name)
        if client_id is None:
            client_id = await self._any_member(group, place)
        header = ConsumeMessageDirectly(
            consumer_group=group, client_id=client_id, msg_id=message.offset_id, topic=message.queue.topic
        )
        try:
            result = await self._ask_json(
                place.address,
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                ConsumeDirectlyResult,
                header,
                timeout_ms=RELAY_TIMEOUT_MS,
            )
        except RemoteFailureError as error:
            raise ConsumerOfflineError(str(error), code=error.code, address=error.address) from error
        return DirectResult(
            client_id=client_id,
            result=result.consume_result or "",
            remark=result.remark or "",
            spent_ms=result.spent_time_ms,
            is_ordered=result.order,
        )

    async def dead_letters(
        self,
        group: str,
        *,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        limit: int = BROWSE_LIMIT,
    ) -> tuple[ReceivedMessage, ...]:
        """The messages that a group could not consume, oldest first; `origin_topic` tells where one came from.

        Raises TopicNotFoundError when the group never had any.
        """
        return await self.messages_between(dlq_topic(group), begin, end, limit=limit)

    async def redeliver(
        self,
        message: ReceivedMessage,
        group: str,
        *,
        topic: str | None = None,
        marks: Mapping[str, str] | None = None,
    ) -> str:
        """Give a message, e.g. a dead letter, to a group again, as if it had not been tried yet; the new offset id.

        It goes to the group's retry topic, so that no other group gets it, and keeps its id, tag, keys and properties.
        An orderly group does not read its retry topic: name the `topic` then, and every group of that topic gets it.
        `marks` are properties that it gets in addition. The message stays where it was found. A RequestTimeoutError
        means that it may have been given nevertheless.
        """
        stored = message.stored()
        properties = {name: value for name, value in stored.properties.items() if name not in _NOT_GIVEN_AGAIN}
        properties |= marks or {}
        if topic is None:
            properties[names.RETRY_TOPIC] = origin_topic(message)
        else:
            properties.pop(names.RETRY_TOPIC, None)
        place = await self._one_broker(message.broker_name)
        header = SendMessageV2(
            producer_group=INNER_PRODUCER_GROUP,
            topic=retry_topic(group) if topic is None else topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=_RETRY_QUEUES,
            queue_id=0,
            sys_flag=stored.sys_flag & (SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | SysFlag.COMPRESSION_MASK),
            born_timestamp_ms=stored.born_timestamp_ms,
            flag=stored.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        answer = await self._ask(
            place.address, RequestCode.SEND_MESSAGE_V2, header, body=stored.body, accept=STATUS_OF_CODE
        )
        return answer.read(SendMessageResponse).msg_id

    async def resume_half_message(self, message: ReceivedMessage) -> None:
        """Let the producer be asked again about a transaction that was given up.

        The message is one of topic TRANS_CHECK_MAX_TIME_TOPIC. Raises ConfigError when it is not, NotFoundError when
        the broker has it no more.
        """
        if message.queue.topic != CHECK_MAX_TIME_TOPIC:
            # A broker of the reference takes any message and stores it as the half of a transaction that never was.
            raise ConfigError(
                f"{message.message_id} is a message of {message.queue.topic!r}; transactions that were given up are in "
                f"{CHECK_MAX_TIME_TOPIC}"
            )
        place = await self._one_broker(message.broker_name)
        header = ResumeCheckHalfMessage(topic=message.queue.topic, msg_id=message.offset_id)
        try:
            await self._ask(place.address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        except RemoteFailureError as error:
            raise NotFoundError(str(error), code=error.code, address=error.address, topic=message.topic) from error

    # Within

    async def _any_member(self, group: str, place: BrokerAddress) -> str:
        online = await self.consumers(group)
        for client in online.clients:
            if place.broker_name in client.brokers:
                return client.client_id
        raise ConsumerOfflineError(
            f"no member of group {group!r} is connected to {place}, where the message lies",
            code=ResponseCode.CONSUMER_NOT_ONLINE,
            address=place.address,
        )


def origin_topic(message: ReceivedMessage) -> str:
    """The topic that a message was sent to first, also when it is a dead letter."""
    if is_dlq_topic(message.topic):
        properties = message.properties
        return properties.get(names.RETRY_TOPIC) or properties.get(names.DLQ_ORIGIN_TOPIC) or message.topic
    return message.topic
