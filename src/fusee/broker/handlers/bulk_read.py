"""Bulk reads, Fusee's own request: ranges of a topic's queues in log order, for whoever reads whole topics.

Who may read is who may pull: the checks and their answers are those of a pull that carries its subscription. What is
given is what a pull would give; nothing is held, and no offset is committed.

An answer is large, so a connection gets one at a time: the next is read when the peer has taken the last one. What it
asks for meanwhile waits, up to `_WAITING_MAX` requests. Other connections are served between two answers, each of which
keeps the loop for a few milliseconds at most (`bulkReadBytesMax`); of records that are hardly in memory any more fewer
bytes are given at once (`bulkReadBytesMaxInDisk`).

A reader on the same machine may ask for places in place of bytes: it is told the file and where in it the records lie,
and reads them itself (`local_mark`). All else is the same.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from fusee.broker.send_checks import FAQ, REJECTED
from fusee.broker.standing import Standing
from fusee.errors import FilterError, ProtocolError
from fusee.filter import parse_subscription
from fusee.store.bulk_reader import QueueSpan, is_bulk_readable, read_bulk
from fusee.store.layout import segment_name
from fusee.store.reader import in_memory_size
from fusee.wire.bodies.bulk_read import decode_ranges, encode_reads
from fusee.wire.bodies.topic import PERM_READ
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.header_json import encode_json_header
from fusee.wire.headers.bulk_read import BulkReadRequest, BulkReadResponse

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fusee.broker.config import BrokerConfig
    from fusee.broker.consumers import ConsumerTable
    from fusee.broker.groups import GroupTable
    from fusee.broker.local_mark import LocalMark
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.statistics import Statistics
    from fusee.broker.topics import TopicTable
    from fusee.filter import Subscription
    from fusee.store.bulk_reader import BulkRead
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command

_WORDS: Final = Struct(">iI")
_WAITING_MAX: Final = 8
_TAKEN_TIMEOUT_S: Final = 60.0
_FORGET_BYTES: Final = 64 * 1024 * 1024
_GATE: Final = "bulk reads"


class _Gate:
    """Lets one bulk read of a connection through at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class BulkReadHandlers:
    """Code 60011."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        writer: LogWriter,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        consumers: ConsumerTable,
        statistics: Statistics,
        standing: Standing | None = None,
        local_mark: LocalMark | None = None,
    ) -> None:
        """Without `local_mark` nobody is told where records lie."""
        self.config = config
        self._standing = standing or Standing(config=config)
        self._writer = writer
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._statistics = statistics
        self._read_bytes = 0
        self.local_mark = local_mark

    def routes(self) -> dict[RequestCode, Handler]:
        return {RequestCode.BULK_READ: self.bulk_read}  # type: ignore[dict-item]

    async def bulk_read(self, command: Command, link: Link) -> Command | list[bytes | memoryview]:
        if not self.config.bulk_read_enable:
            return command.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="bulk reads are off here (bulkReadEnable); pull instead"
            )
        gate: _Gate = link.attachments.setdefault(_GATE, _Gate())
        if gate.waiting >= _WAITING_MAX:
            return command.reply(
                ResponseCode.SYSTEM_BUSY,
                remark=f"{gate.waiting} bulk reads of this connection wait already; ask for the next when one is there",
            )
        gate.waiting += 1
        try:
            async with gate.lock:
                await link.writable(_TAKEN_TIMEOUT_S)
                return self._answer(command, link)
        finally:
            gate.waiting -= 1

    def _answer(self, command: Command, link: Link) -> Command | list[bytes | memoryview]:
        header = command.read(BulkReadRequest)
        try:
            spans = [QueueSpan(*each) for each in decode_ranges(command.body)]
        except ProtocolError as error:
            return command.reply(ResponseCode.INVALID_PARAMETER, remark=str(error))
        refusal = self._refusal(command, header, spans, link)
        if refusal is not None:
            return refusal
        try:
            subscription = _parsed(header.topic, header.subscription or "*")
        except FilterError:
            return command.reply(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="parse the consumer's subscription failed"
            )
        store = self._writer.store
        if self._writer.has_unseen and any(
            span.end_offset > store.max_offset(header.topic, span.queue_id) for span in spans
        ):
            self._writer.make_visible()
        if not is_bulk_readable(store.queues, header.topic, spans):
            return command.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"topic[{header.topic}] has queues of batches, which cannot be read in bulk; pull instead",
            )
        return self._found(command, header, spans, subscription)

    def _found(
        self, command: Command, header: BulkReadRequest, spans: list[QueueSpan], subscription: Subscription
    ) -> list[bytes | memoryview]:
        store, config, topic = self._writer.store, self.config, header.topic
        memory_size = in_memory_size(store.config)
        log_end = store.log.end_offset
        first = min(
            (
                log_offset
                for span in spans
                if (queue := store.queues.get(topic, span.queue_id)) is not None
                and (log_offset := queue.log_offset_of(span.start_offset)) is not None
            ),
            default=log_end,
        )
        from_disk = log_end - first > memory_size
        mark = self.local_mark if header.local and config.bulk_read_local_enable else None
        is_local = mark is not None and bool(mark.text())
        limit = config.bulk_read_bytes_max_in_disk if from_disk and not is_local else config.bulk_read_bytes_max
        read = read_bulk(
            store.log,
            store.queues,
            topic,
            spans,
            bytes_max=min(max(header.max_bytes, 1), limit),
            tags_codes=subscription.tags_codes,
            places=is_local,
        )
        group = header.consumer_group
        for each in read.queues:
            if each.record_count:
                self._statistics.got(group, topic, each.queue_id, each.record_count, each.size, from_disk)
                self._offsets.set_pull_offset(group, topic, each.queue_id, each.next_offset)
        if mark is not None and read.log_offsets is not None:
            return self._place_frame(command, read, read.log_offsets, mark)
        answer = _frame(command, read)
        self._forget_pages(read.size)
        return answer

    def _place_frame(
        self, command: Command, read: BulkRead, log_offsets: NDArray[np.int64], mark: LocalMark
    ) -> list[bytes | memoryview]:
        """The frame of an answer that says where the records lie."""
        log = self._writer.store.log
        file_offset = read.first_log_offset - read.first_log_offset % log.segment_size
        header = BulkReadResponse(
            range_count=len(read.queues),
            record_count=len(read.sizes),
            log_file=str(log.folder.absolute() / segment_name(file_offset)),
            log_file_offset=file_offset,
            mark_file=str(mark.path),
            mark=mark.text(),
        )
        places = (log_offsets - file_offset).astype(">i8").tobytes()
        return _framed(command, header, read, [memoryview(places)])

    def _forget_pages(self, size: int) -> None:
        """Give mapped pages back now and then, as gets do: the machine's cache keeps them."""
        self._read_bytes += size
        if self._read_bytes >= _FORGET_BYTES:
            self._read_bytes = 0
            log = self._writer.store.log
            log.forget(log.min_offset, log.written_offset)

    def _refusal(self, command: Command, header: BulkReadRequest, spans: list[QueueSpan], link: Link) -> Command | None:
        config, topic, group_name = self.config, header.topic, header.consumer_group
        if self._standing.refuses_reads:
            return command.reply(ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        if not config.broker_permission & PERM_READ:
            return command.reply(
                ResponseCode.NO_PERMISSION, remark=f"the broker[{config.broker_ip1}] pulling message is forbidden"
            )
        group = self._groups.find(group_name)
        if group is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"subscription group [{group_name}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            return command.reply(ResponseCode.NO_PERMISSION, remark=f"subscription group no permission, {group_name}")
        topic_config = self._topics.get(topic)
        if topic_config is None:
            return command.reply(
                ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist, apply first please! {FAQ}"
            )
        if not topic_config.perm & PERM_READ:
            return command.reply(ResponseCode.NO_PERMISSION, remark=f"the topic[{topic}] pulling message is forbidden")
        queue_ids = [span.queue_id for span in spans]
        if min(queue_ids) < 0 or max(queue_ids) >= topic_config.read_queue_nums or len(set(queue_ids)) < len(queue_ids):
            return command.reply(
                ResponseCode.INVALID_PARAMETER,
                remark=f"queueId {queue_ids} is illegal or repeats, topic:[{topic}] topicConfig.readQueueNums:"
                f"[{topic_config.read_queue_nums}] consumer:[/{link.remote_address}]",
            )
        if config.reject_pull_consumer_enable and self._consumers.group(group_name) is None:
            return command.reply(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                remark=f"the consumer's group info not exist, or the pull consumer is rejected by server.{FAQ}",
            )
        return None


@lru_cache(maxsize=1024)
def _parsed(topic: str, expression: str) -> Subscription:
    return parse_subscription(topic, expression, "TAG")


def _frame(command: Command, read: BulkRead) -> list[bytes | memoryview]:
    """The frame of an answer: a head, and the memory of the log."""
    header = BulkReadResponse(range_count=len(read.queues), record_count=len(read.sizes))
    return _framed(command, header, read, read.parts)


def _framed(
    command: Command, response: BulkReadResponse, read: BulkRead, parts: list[memoryview]
) -> list[bytes | memoryview]:
    header = encode_json_header(command.reply(ResponseCode.SUCCESS, response))
    ranges = encode_reads([each[:4] for each in read.queues])
    sizes = read.sizes.astype(">i4").tobytes()
    body_size = len(ranges) + len(sizes) + sum(map(len, parts))
    return [_WORDS.pack(4 + len(header) + body_size, len(header)) + header + ranges + sizes, *parts]
