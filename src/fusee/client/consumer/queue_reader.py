"""Reading one queue of a broker: the pull itself, and where the queue begins and ends.

A broker group is found by its name; when no route tells where it is, the name servers are asked once more. When its
master cannot be reached, its slave is asked to pull; where that refuses, the first failure is the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.client.consumer.offsets import broker_address
from fusee.errors import RemoteError, TransportError
from fusee.message.flags import PullSysFlag
from fusee.wire.headers.pull import PullMessage

if TYPE_CHECKING:
    from fusee.client.broker_calls import PullAnswer
    from fusee.client.session import Session
    from fusee.filter.subscription import Subscription
    from fusee.message.model import MessageQueue

# What Java's client writes when it sets no limit; the broker has its own.
_BYTES_MAX: Final = 0x7FFF_FFFF


class QueueReader:
    """Asks brokers on behalf of a group. Every call raises TransportError or RemoteError when there is no answer."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def pull(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        queue_offset: int,
        max_messages: int,
        *,
        hold_ms: int = 0,
        timeout_ms: int,
        broker_id: int = 0,
        is_lite: bool = False,
    ) -> PullAnswer:
        """What lies at this offset; with `hold_ms` the broker waits so long for a message before it answers."""
        session = self._session
        found = session.read_address(queue.broker_name, broker_id)
        address, is_slave = found if found is not None else (await broker_address(session, queue), False)
        sys_flag = PullSysFlag.SUBSCRIPTION
        if hold_ms:
            sys_flag |= PullSysFlag.SUSPEND
        if is_lite:
            sys_flag |= PullSysFlag.LITE_PULL
        header = PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_messages=max_messages,
            sys_flag=sys_flag,
            commit_offset=0,
            suspend_timeout_ms=hold_ms,
            subscription=subscription.expression,
            sub_version=0 if subscription.is_by_tag else subscription.version,
            expression_type=subscription.expression_type,
            max_bytes=_BYTES_MAX,
            broker_name=queue.broker_name,
        )
        try:
            return await session.calls.pull(address, header, timeout_ms)
        except TransportError as error:
            slave_id = None if is_slave else session.slave_id(queue.broker_name)
            slave = None if slave_id is None else session.read_address(queue.broker_name, slave_id, only_this=True)
            if slave is None:
                raise
            session.look_for_master(queue.broker_name, queue.topic)
            try:
                return await session.calls.pull(slave[0], header, timeout_ms)
            except (TransportError, RemoteError):
                raise error from None

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that can still be read."""
        address = await broker_address(self._session, queue)
        return max(await self._session.calls.min_offset(address, queue.topic, queue.queue_id), 0)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        address = await broker_address(self._session, queue)
        return await self._session.calls.max_offset(address, queue.topic, queue.queue_id)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at this time or later."""
        address = await broker_address(self._session, queue)
        return await self._session.calls.search_offset(address, queue.topic, queue.queue_id, timestamp_ms)

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """When the first message that can still be read was stored, in milliseconds."""
        address = await broker_address(self._session, queue)
        return await self._session.calls.earliest_store_time(address, queue.topic, queue.queue_id)
