"""One typed coroutine for each thing a client asks of a broker (Java: MQClientAPIImpl).

Each returns what was asked for, or raises: a TransportError when no answer came, the RemoteError of the answer's code
when it is not a success.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.errors import RemoteError, TransportError
from fusee.message.flags import PullSysFlag
from fusee.message.model import MessageQueue
from fusee.wire.bodies.heartbeat import ConsumerIds, HeartbeatData
from fusee.wire.bodies.locks import LockBatchRequest, LockBatchResponse
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.client import GetConsumerListByGroup, UnregisterClient
from fusee.wire.headers.offset import (
    GetEarliestStoreTime,
    GetEarliestStoreTimeResponse,
    GetMaxOffset,
    GetMaxOffsetResponse,
    GetMinOffset,
    GetMinOffsetResponse,
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    SearchOffset,
    SearchOffsetResponse,
    UpdateConsumerOffset,
)
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fusee.transport.client import Client
    from fusee.wire.fields import Header
    from fusee.wire.headers.send import ConsumerSendMessageBack
    from fusee.wire.headers.transaction import EndTransaction

_SUCCESS: Final = (ResponseCode.SUCCESS,)


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "found"
    NO_NEW_MESSAGE = "no new message"
    NO_MATCHED_MESSAGE = "no message matched"
    OFFSET_ILLEGAL = "the offset is outside the queue"


_PULL_STATUS: Final = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MESSAGE,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


class PullAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer to one pull; `body` is records end to end."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes = b""


class BrokerCalls:
    """Asks brokers, by address."""

    def __init__(self, transport: Client, *, timeout_ms: int = 3_000) -> None:
        self._transport = transport
        self._timeout_ms = timeout_ms

    async def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
        accept: Collection[int] = _SUCCESS,
        topic: str = "",
    ) -> Command:
        """The answer, whose code is one of `accept`. `topic` is for the error to carry."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            response = await self._transport.request(
                address, Command.request(code, header, body=body), timeout_ms / 1000
            )
        except TransportError as error:
            error.topic = error.topic or topic
            raise
        if response.code not in accept:
            raise self.refusal(response, address, code, topic)
        return response

    @staticmethod
    def refusal(response: Command, address: str, code: int, topic: str = "") -> RemoteError:
        """The error that this answer means."""
        error = error_for(response.code, response.remark, address, code)
        error.topic = topic
        return error

    async def oneway(self, address: str, code: int, header: Header | None = None, *, body: bytes = b"") -> None:
        """Send what nobody answers."""
        await self._transport.oneway(address, Command.request(code, header, body=body, oneway=True))

    async def pull(self, address: str, header: PullMessage, timeout_ms: int) -> PullAnswer:
        """Messages from one queue; waits as long as the header lets the broker hold the request."""
        is_lite = header.sys_flag & PullSysFlag.LITE_PULL
        response = await self.request(
            address,
            RequestCode.LITE_PULL_MESSAGE if is_lite else RequestCode.PULL_MESSAGE,
            header,
            timeout_ms=timeout_ms,
            accept=_PULL_STATUS,
            topic=header.topic,
        )
        return pull_answer(response)

    async def query_offset(self, address: str, group: str, topic: str, queue_id: int) -> int | None:
        """How far the group has committed; None when it has not, and the broker has no better answer."""
        response = await self.request(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id),
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
            topic=topic,
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return response.read(QueryConsumerOffsetResponse).committed_offset

    async def update_offset(
        self, address: str, group: str, topic: str, queue_id: int, commit_offset: int, *, oneway: bool = False
    ) -> None:
        """Commit for the group."""
        header = UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=commit_offset)
        if oneway:
            await self.oneway(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        else:
            await self.request(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, topic=topic)

    async def max_offset(self, address: str, topic: str, queue_id: int) -> int:
        """The offset that the next message will get."""
        header = GetMaxOffset(topic=topic, queue_id=queue_id)
        response = await self.request(address, RequestCode.GET_MAX_OFFSET, header, topic=topic)
        return response.read(GetMaxOffsetResponse).queue_offset

    async def min_offset(self, address: str, topic: str, queue_id: int) -> int:
        """The first offset that can still be read."""
        header = GetMinOffset(topic=topic, queue_id=queue_id)
        response = await self.request(address, RequestCode.GET_MIN_OFFSET, header, topic=topic)
        return response.read(GetMinOffsetResponse).queue_offset

    async def search_offset(
        self, address: str, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False
    ) -> int:
        """The first offset stored at this time or later; with `upper` the last one at this time or before."""
        header = SearchOffset(
            topic=topic, queue_id=queue_id, timestamp_ms=timestamp_ms, boundary_type="upper" if upper else "lower"
        )
        response = await self.request(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, topic=topic)
        return response.read(SearchOffsetResponse).queue_offset

    async def earliest_store_time(self, address: str, topic: str, queue_id: int) -> int:
        """When the first message that can still be read was stored, in milliseconds."""
        header = GetEarliestStoreTime(topic=topic, queue_id=queue_id)
        response = await self.request(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header, topic=topic)
        return response.read(GetEarliestStoreTimeResponse).timestamp_ms

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """The client ids of the members of this group that the broker knows."""
        response = await self.request(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroup(consumer_group=group)
        )
        return decode_json(response.body, ConsumerIds).consumer_id_list

    async def lock(self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Those of the queues that this client may now consume in order, for the broker's lease of 60 s."""
        body = _lock_body(group, client_id, queues)
        response = await self.request(address, RequestCode.LOCK_BATCH_MQ, body=body)
        locked = decode_json(response.body, LockBatchResponse).locked
        return {MessageQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in locked}

    async def unlock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], *, oneway: bool = True
    ) -> None:
        """Let others have these queues."""
        body = _lock_body(group, client_id, queues)
        if oneway:
            await self.oneway(address, RequestCode.UNLOCK_BATCH_MQ, body=body)
        else:
            await self.request(address, RequestCode.UNLOCK_BATCH_MQ, body=body)

    async def send_back(self, address: str, header: ConsumerSendMessageBack, timeout_ms: int = 5_000) -> None:
        """Have a message delivered to its group again later."""
        await self.request(
            address,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            header,
            timeout_ms=timeout_ms,
            topic=header.origin_topic or "",
        )

    async def end_transaction(self, address: str, header: EndTransaction, remark: str = "") -> None:
        """The verdict on a half message. Nobody answers: when it is lost, the broker asks back."""
        command = Command.request(RequestCode.END_TRANSACTION, header, oneway=True)
        command.remark = remark or None
        await self._transport.oneway(address, command)

    async def heartbeat(self, address: str, heartbeat: HeartbeatData) -> int:
        """Tell the broker that we live, and what we want; its version."""
        response = await self.request(address, RequestCode.HEART_BEAT, body=dumps_fastjson(heartbeat))
        return response.version

    async def unregister(
        self, address: str, client_id: str, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Say good-bye to the broker."""
        header = UnregisterClient(client_id=client_id, producer_group=producer_group, consumer_group=consumer_group)
        await self.request(address, RequestCode.UNREGISTER_CLIENT, header)


def pull_answer(response: Command) -> PullAnswer:
    """What this response to a pull says. Its code is one of those that are answers."""
    header = response.read(PullMessageResponse)
    return PullAnswer(
        _PULL_STATUS[response.code],
        header.next_offset,
        header.min_offset,
        header.max_offset,
        header.suggested_broker_id,
        response.body,
    )


def is_pull_answer(response: Command) -> bool:
    """Whether this response to a pull is an answer and not an error."""
    return response.code in _PULL_STATUS


def _lock_body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    refs = [QueueRef(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id) for queue in queues]
    return dumps_fastjson(LockBatchRequest(client_id=client_id, consumer_group=group, queues=refs))
