"""Replies of the request-reply mode: handed to the client that asked, then stored (Java: ReplyMessageProcessor).

A reply names its requester by client id in the property REPLY_TO_CLIENT. It is pushed over the connection on which
that client produces (code 326) and the requester's answer is waited for, 10 seconds at most. Then, unless
storeReplyMessageEnable is off, it is stored in the reply topic, whether the push succeeded or not. The replier's answer
tells of the push; ids and offset in it are those of the stored message, or zeros when there is none.

Java forgets the system flag of a stored reply, so that a compressed body cannot be read again; here the compression
bits are kept.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fusee.broker.send_checks import remote_host
from fusee.errors import MessageError, StoreError, TransportError
from fusee.message import properties as names
from fusee.message.flags import SysFlag, with_host_families
from fusee.message.hosts import host_text
from fusee.message.ids import encode_offset_id
from fusee.message.properties import find_property, join_properties, remove_property
from fusee.store.new_record import NewRecord
from fusee.transport.router import Reply
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.send import PushReplyMessage, SendMessageResponse, SendMessageV1, SendMessageV2

if TYPE_CHECKING:
    from random import Random

    from fusee.broker.ack_gate import PutStatus
    from fusee.broker.config import BrokerConfig
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.producers import ProducerTable
    from fusee.broker.send_checks import SendChecks
    from fusee.broker.statistics import Statistics
    from fusee.clock import Clock
    from fusee.store.results import PutResult
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.headers.send import SendMessage

_log = logging.getLogger(__name__)

PUSH_TIMEOUT: Final = 10.0

_REPLY_TO_CLIENT: Final = names.REPLY_TO_CLIENT.encode()
_WAIT: Final = names.WAIT.encode()
_KEPT_FLAGS: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK


class ReplyHandlers:
    """Codes 324 and 325. `config` may be replaced at any time."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        checks: SendChecks,
        producers: ProducerTable,
        writer: LogWriter,
        statistics: Statistics,
        store_host: bytes,
        clock: Clock,
        random: Random,
    ) -> None:
        """`store_host` is the packed address of this broker as records carry it."""
        self.config = config
        self._checks = checks
        self._producers = producers
        self._writer = writer
        self._statistics = statistics
        self._store_host = store_host
        self._clock = clock
        self._random = random

    def routes(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.send_reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.send_short_reply,
        }

    def send_reply(self, request: Command, link: Link) -> Command | Reply:
        """324: a reply, its header in long names."""
        return self._take(request, request.read(SendMessageV1), link)

    def send_short_reply(self, request: Command, link: Link) -> Command | Reply:
        """325: a reply, its header in letters."""
        return self._take(request, request.read(SendMessageV2), link)

    def _take(self, request: Command, header: SendMessage, link: Link) -> Command | Reply:
        topic = self._checks.check(request, header, link)
        if isinstance(topic, Command):
            topic.ext_fields = self._where_and_trace() | (topic.ext_fields or {})
            return topic
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(max(topic.write_queue_nums, 1))
        properties = (header.properties or "").encode("utf-8", "replace")
        for name, value in self._where_and_trace().items():
            properties = join_properties(remove_property(properties, name.encode()), f"{name}\x01{value}\x02".encode())
        record = NewRecord(
            topic=header.topic,
            queue_id=queue_id,
            body=request.body,
            properties=properties,
            flag=header.flag,
            sys_flag=with_host_families(header.sys_flag & _KEPT_FLAGS, remote_host(link), self._store_host),
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=remote_host(link),
            store_host=self._store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        reply = Reply(request, link)
        self._push(reply, header, record)
        return reply

    # To the requester

    def _push(self, reply: Reply, header: SendMessage, record: NewRecord) -> None:
        client = find_property(record.properties, _REPLY_TO_CLIENT)
        if client is None:
            self._pushed(reply, record, f"reply message properties[{names.REPLY_TO_CLIENT}] is null")
            return
        client_id = client.decode("utf-8", "replace")
        requester = self._producers.link_of(client_id)
        if requester is None:
            self._pushed(reply, record, f"push reply message fail, channel of <{client_id}> not found.")
            return

        def settle(answer: Command | TransportError) -> None:
            if isinstance(answer, TransportError):
                _log.warning("the reply to %s was not delivered: %s", client_id, answer)
            elif answer.code == ResponseCode.SUCCESS:
                self._pushed(reply, record, None)
                return
            else:
                _log.warning("%s did not take a reply: %s", client_id, answer.remark)
            self._pushed(reply, record, f"push reply message to {client_id}fail.")

        try:
            requester.call(self._push_command(header, record), PUSH_TIMEOUT, settle)
        except TransportError as error:
            settle(error)

    def _push_command(self, header: SendMessage, record: NewRecord) -> Command:
        now_ms = self._clock.time_ms()
        properties = join_properties(
            remove_property(record.properties, names.PUSH_REPLY_TIME.encode()),
            f"{names.PUSH_REPLY_TIME}\x01{now_ms}\x02".encode(),
        )
        push = PushReplyMessage(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            flag=header.flag,
            properties=properties.decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode or False,
            born_host=host_text(record.born_host),
            store_host=host_text(self._store_host),
            store_timestamp_ms=now_ms,
        )
        return Command.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, body=record.body)

    # Into the store, and back to the replier

    def _pushed(self, reply: Reply, record: NewRecord, failure: str | None) -> None:
        result: PutResult | None = None
        if self.config.store_reply_message_enable:
            try:
                result = self._writer.put(record)
            except (MessageError, StoreError) as error:
                # The requester has its reply already; a record of it less is no reason to have it sent again.
                _log.warning("a reply in %s was not stored: %s", record.topic, error)
        if result is None:
            self._answer(reply, record, failure, None)
            return
        stored = result

        def settle(status: PutStatus) -> None:
            self._answer(reply, record, failure, stored if status.is_stored else None)

        wait = (find_property(record.properties, _WAIT) or b"true").lower() == b"true"
        self._writer.when_stored(stored, settle, wait=wait)

    def _answer(self, reply: Reply, record: NewRecord, failure: str | None, stored: PutResult | None) -> None:
        header: SendMessageResponse | None = None
        if stored is not None:
            self._statistics.put(record.topic, record.queue_id, 1, stored.end_offset - stored.log_offset)
            header = SendMessageResponse(
                msg_id=encode_offset_id(self._store_host, stored.log_offset),
                queue_id=record.queue_id,
                queue_offset=stored.queue_offset,
            )
        elif failure is None:
            header = SendMessageResponse(msg_id="0", queue_id=record.queue_id, queue_offset=0)
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        answer = reply.request.reply(code, header, remark=failure)
        answer.ext_fields = self._where_and_trace() | (answer.ext_fields or {})
        reply.send(answer)

    def _where_and_trace(self) -> dict[str, str]:
        return {
            names.MSG_REGION: self.config.region_id,
            names.TRACE_SWITCH: "true" if self.config.trace_on else "false",
        }
