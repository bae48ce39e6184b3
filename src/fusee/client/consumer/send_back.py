"""Messages that a group could not consume, sent back to be tried again later or to become dead letters.

The broker that has the message copies it into the retry topic of the group, delayed. When that broker cannot be asked,
the client sends the copy itself, to any broker of the group. When that fails too the caller keeps the message, and
tries to consume it again here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fusee.client.consumer.offsets import broker_address
from fusee.errors import FuseeError
from fusee.message import properties as names
from fusee.message.flags import SysFlag
from fusee.message.topics import AUTO_CREATE_TOPIC, INNER_PRODUCER_GROUP, retry_topic
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.send import ConsumerSendMessageBack, SendMessageV2

if TYPE_CHECKING:
    from fusee.client.received import ReceivedMessage
    from fusee.client.session import Session

_log = logging.getLogger(__name__)

MAX_RECONSUME_TIMES: Final = 16
_FIRST_RETRY_LEVEL: Final = 3
_TRIES: Final = 3
_STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)


class SendBack:
    """The way back for the messages of one group."""

    def __init__(self, session: Session, group: str, *, max_reconsume_times: int, unit_mode: bool = False) -> None:
        self._session = session
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._unit_mode = unit_mode

    async def send(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Whether a broker has taken the message over; it is then no longer ours."""
        try:
            if not message.is_from_batch:
                return await self._ask_its_broker(message, delay_level)
        except FuseeError as error:
            _log.info(
                "group %s: message %s cannot be sent back by its broker, so it is sent anew: %s",
                self._group,
                message.message_id,
                error,
            )
        return await self.resend(message, delay_level)

    async def resend(self, message: ReceivedMessage, delay_level: int = 0) -> bool:
        """Store a copy in the retry topic; over the limit of tries the broker makes a dead letter of it."""
        try:
            await self._resend(message, delay_level)
        except FuseeError as error:
            _log.warning(
                "group %s: message %s cannot be sent back; it stays here and is tried again here: %s",
                self._group,
                message.message_id,
                error,
            )
            return False
        return True

    async def _ask_its_broker(self, message: ReceivedMessage, delay_level: int) -> bool:
        session = self._session
        address = session.master_address(message.broker_name)
        if address is None:
            return await self.resend(message, delay_level)
        header = ConsumerSendMessageBack(
            log_offset=message.log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            unit_mode=self._unit_mode,
            max_reconsume_times=self._max_reconsume_times,
            broker_name=message.broker_name,
        )
        await session.calls.send_back(address, header)
        return True

    async def _resend(self, message: ReceivedMessage, delay_level: int) -> None:
        session, topic = self._session, retry_topic(self._group)
        tries = message.reconsume_times + 1
        if delay_level < 0:
            tries = max(tries, self._max_reconsume_times + 1)
        properties = dict(message.properties)
        properties[names.ORIGIN_MESSAGE_ID] = properties.get(names.ORIGIN_MESSAGE_ID) or message.message_id
        properties[names.RETRY_TOPIC] = message.topic
        properties[names.DELAY] = str(delay_level if delay_level > 0 else _FIRST_RETRY_LEVEL + message.reconsume_times)
        # They travel in the header; Java's producer moves them there too.
        for name in (names.TRANSACTION_PREPARED, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES):
            properties.pop(name, None)
        text = names.encode_properties(properties).decode()
        stored = message.stored()
        queues = (await session.publish_route(topic)).write_queues
        first = session.random.randrange(len(queues))
        for attempt in range(_TRIES):
            queue = queues[(first + attempt) % len(queues)]
            header = SendMessageV2(
                producer_group=INNER_PRODUCER_GROUP,
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=4,
                queue_id=queue.queue_id,
                # as stored: a compressed body stays so
                sys_flag=stored.sys_flag & (SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK),
                born_timestamp_ms=session.clock.time_ms(),
                flag=stored.flag,
                properties=text,
                reconsume_times=tries,
                unit_mode=self._unit_mode,
                max_reconsume_times=self._max_reconsume_times,
                batch=False,
                broker_name=queue.broker_name,
            )
            try:
                address = await broker_address(session, queue)
                await session.calls.request(
                    address, RequestCode.SEND_MESSAGE_V2, header, body=stored.body, accept=_STORED, topic=topic
                )
            except FuseeError:
                if attempt == _TRIES - 1:
                    raise
            else:
                return
