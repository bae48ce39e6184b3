"""What the actors of the kill test ask a broker, each over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from fusee.clock import SystemClock
from fusee.message.model import StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.record import iterate_records
from fusee.transport import Client, TcpNetwork
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.wire.bodies.heartbeat import HeartbeatData, ProducerData
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.admin import CreateTopic, GetTopicConfig
from fusee.wire.headers.client import Heartbeat
from fusee.wire.headers.offset import QueryConsumerOffset, QueryConsumerOffsetResponse, UpdateConsumerOffset
from fusee.wire.headers.pull import PullMessage, PullMessageResponse
from fusee.wire.headers.send import SendMessageV2
from fusee.wire.headers.transaction import EndTransaction
from fusee.wire.lenient_json import decode_json, dumps_fastjson

TIMEOUT_S = 20.0


def send_command(
    topic: str,
    queue_id: int,
    body: bytes,
    properties: dict[str, str],
    *,
    born_ms: int,
    group: str = "senders",
    sys_flag: int = 0,
    batch: bool = False,
    queues: int = 4,
) -> Command:
    header = SendMessageV2(
        producer_group=group,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=queues,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        flag=7,
        properties=encode_properties(properties).decode(),
        batch=batch,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return Command.request(code, header, body=body)


class BrokerCalls:
    """One client of one broker process. Every method raises a TransportError when the broker is gone."""

    def __init__(self, address: str, *, router: Router | None = None) -> None:
        self.address = address
        self.client = Client(
            network=TcpNetwork(), clock=SystemClock(), timers=asyncio.get_running_loop(), router=router
        )

    async def close(self) -> None:
        await self.client.close()

    async def ask(self, command: Command) -> Command:
        return await self.client.request(self.address, command, timeout=TIMEOUT_S)

    async def pull(
        self, topic: str, queue_id: int, queue_offset: int, *, hold_ms: int = 0
    ) -> tuple[int, list[StoredMessage]]:
        """(where to go on, messages); `hold_ms` waits for some to arrive."""
        header = PullMessage(
            consumer_group="readers",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_messages=32,
            sys_flag=6 if hold_ms else 4,
            commit_offset=0,
            suspend_timeout_ms=hold_ms,
            subscription="*",
            sub_version=0,
        )
        answer = await self.ask(Command.request(RequestCode.PULL_MESSAGE, header))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return queue_offset, []
        assert answer.code in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_OFFSET_MOVED,
        ), answer
        if answer.code != ResponseCode.SUCCESS:
            return queue_offset, []
        return answer.read(PullMessageResponse).next_offset, list(iterate_records(answer.body))

    async def commit_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        header = UpdateConsumerOffset(
            consumer_group="readers", topic=topic, queue_id=queue_id, commit_offset=queue_offset
        )
        answer = await self.ask(Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
        assert answer.code == ResponseCode.SUCCESS, answer

    async def committed_offset(self, topic: str, queue_id: int) -> int:
        """-1 when there is none."""
        header = QueryConsumerOffset(
            consumer_group="readers", topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = await self.ask(Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header))
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer.read(QueryConsumerOffsetResponse).committed_offset

    async def create_topic(self, topic: str, queues: int) -> None:
        header = CreateTopic(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        answer = await self.ask(Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        assert answer.code == ResponseCode.SUCCESS, answer

    async def queues_of(self, topic: str) -> int:
        """0 when there is no such topic."""
        answer = await self.ask(Command.request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic=topic)))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return 0
        assert answer.code == ResponseCode.SUCCESS, answer
        return decode_json(answer.body, TopicConfig).write_queue_nums

    async def introduce_producer(self, group: str) -> None:
        """Heartbeat as a producer of this group, which may then be asked about its transactions."""
        body = HeartbeatData(client_id=f"{group}@kill", producer_data_set=[ProducerData(group_name=group)])
        answer = await self.ask(Command.request(RequestCode.HEART_BEAT, Heartbeat(), body=dumps_fastjson(body)))
        assert answer.code == ResponseCode.SUCCESS, answer


def end_transaction(
    group: str, half_queue_offset: int, log_offset: int, verdict: int, unique_id: str, *, asked: bool, oneway: bool
) -> Command:
    header = EndTransaction(
        producer_group=group,
        half_queue_offset=half_queue_offset,
        log_offset=log_offset,
        commit_or_rollback=verdict,
        from_transaction_check=asked,
        msg_id=unique_id,
        transaction_id=unique_id,
    )
    return Command.request(RequestCode.END_TRANSACTION, header, oneway=oneway)


def router_for_checks(handler: Callable[[Command, Link], None]) -> Router:
    """A router for what a broker pushes to producers."""
    router = Router()
    router.add(RequestCode.CHECK_TRANSACTION_STATE, handler, router.lane("checks", 1000))
    return router


def by_unique_id(messages: Iterable[StoredMessage]) -> dict[str, StoredMessage]:
    """Raises AssertionError when one is there twice."""
    found: dict[str, StoredMessage] = {}
    for message in messages:
        assert message.unique_id is not None
        assert message.unique_id not in found, f"{message.unique_id} is there twice"
        found[message.unique_id] = message
    return found
