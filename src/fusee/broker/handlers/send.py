"""Sending: check, build the record, put it, answer when the ack gate says so (Java: SendMessageProcessor).

A message in its usual form takes the short way: its properties are kept as the bytes they came as, with what the
broker adds behind them. Only a few names in the properties make a message unusual (delayed, transactional, inner
batch, sent again after being consumed); they are searched for in the raw bytes.

The answer is formatted before the message is safe and kept by the gate: what it says (ids, queue offset) is known as
soon as the record has its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.broker.ack_gate import UNAVAILABLE, PutStatus
from fusee.broker.delay import schedule_record
from fusee.broker.rewrites import delay_level_of
from fusee.broker.send_checks import remote_host
from fusee.broker.transactions import half_record
from fusee.errors import MessageError, StoreBusyError, StoreError, TooFewReplicasError
from fusee.message import properties as names
from fusee.message.flags import SysFlag, TransactionType, transaction_type, with_host_families
from fusee.message.properties import find_property, find_unique_id, join_properties, remove_property
from fusee.message.topics import RETRY_PREFIX
from fusee.message.usual_properties import usual_unique_id
from fusee.store.batch_body import BatchBody
from fusee.store.new_record import NewRecord
from fusee.transport.router import InTurn
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import ONEWAY_FLAG, Command
from fusee.wire.framing import encode_frame
from fusee.wire.header_json import decode_json_header
from fusee.wire.headers.handover import SendHandedBatch
from fusee.wire.headers.send import SendMessage, SendMessageV1, SendMessageV2
from fusee.wire.send_answers import SendAnswers

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from fusee.broker.ack_gate import AckGate
    from fusee.broker.config import BrokerConfig
    from fusee.broker.handovers import Handovers
    from fusee.broker.log_writer import LogWriter
    from fusee.broker.retry import RetryRules
    from fusee.broker.send_checks import SendChecks
    from fusee.broker.statistics import Statistics
    from fusee.message.ids import UniqueIds
    from fusee.store.results import PutResult
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.bodies.topic import TopicConfig

_UNUSUAL_BITS: Final = SysFlag.TRANSACTION_MASK | SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP | 0x30
_UNIQ_KEY: Final = names.UNIQ_KEY.encode()
_WAIT: Final = names.WAIT.encode()
_TRANSACTION: Final = names.TRANSACTION_PREPARED.encode()
_INNER_NUM: Final = names.INNER_NUM.encode()
_KEYS: Final = names.KEYS.encode()
_TIMER_NAMES: Final = tuple(
    name.encode() for name in (names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC)
)
_PLAIN_MAX: Final = 100_000
_ADDED_NAMES: Final = (b"MSG_REGION", b"TRACE_ON", b"CLUSTER", b"POP_CK")


def is_true(value: bytes | None) -> bool:
    """Java's Boolean.parseBoolean."""
    return value is not None and value.lower() == b"true"


class SendHandlers:
    """Codes 10, 310, 320 and 60022."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        writer: LogWriter,
        gate: AckGate,
        checks: SendChecks,
        retry: RetryRules,
        statistics: Statistics,
        unique_ids: UniqueIds,
        store_host: bytes,
        random: Random,
        handovers: Handovers,
        soon: Callable[[Callable[[], object]], object],
    ) -> None:
        """`soon` runs a function when the present turn of the loop is over."""
        # Topics whose last look showed nothing out of the ordinary; any change of topic or settings ends that.
        self._plain: dict[str, TopicConfig] = {}
        self.config = config
        self._writer = writer
        self._gate = gate
        self._checks = checks
        self._retry = retry
        self._statistics = statistics
        self._unique_ids = unique_ids
        self._store_host = store_host
        self._random = random
        self._handovers = handovers
        self._soon = soon
        self._levels_max = len(writer.store.config.message_delay_level.split())
        self._added = (
            f"MSG_REGION\x01{config.region_id}\x02TRACE_ON\x01{'true' if config.trace_on else 'false'}\x02"
            f"CLUSTER\x01{config.broker_cluster_name}\x02"
        ).encode()
        self._answers = SendAnswers(store_host, config.region_id, config.trace_on)
        self._find_topic = checks.find_topic
        self._count_put = statistics.put

    @property
    def config(self) -> BrokerConfig:
        """Settings; they may be replaced at any time."""
        return self._config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._config = config
        self._plain.clear()

    def routes(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send_v1,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_v2,
            RequestCode.SEND_HANDED_BATCH: InTurn(self.send_handed, self._soon),
        }

    def send_v1(self, command: Command, link: Link) -> Command | None:
        header = command.read(SendMessageV1)
        if header.batch and command.all_fields().get("batch", "").lower() != "true":
            header.batch = False  # the C++ client says 1, which is not true to the reference
        return self._send(command, header, link)

    def send_v2(self, command: Command, link: Link) -> Command | None:
        header = command.fields
        if type(header) is not SendMessageV2:
            header = command.read(SendMessageV2)
        topic_config = self._find_topic(header.topic)
        if topic_config is None or topic_config is not self._plain.get(header.topic) or header.batch:
            return self._send(command, header, link)
        properties = header.properties
        queue_id = header.queue_id
        sys_flag = header.sys_flag
        if (
            properties is None
            or queue_id < 0
            or queue_id >= topic_config.write_queue_nums
            or sys_flag & _UNUSUAL_BITS
            or command.flag & ONEWAY_FLAG
        ):
            return self._send(command, header, link)
        unique_id = usual_unique_id(properties)
        if unique_id is None:
            return self._send(command, header, link)
        born_host = link.attachments.get("host") or remote_host(link)
        if len(born_host) != 8:
            return self._send(command, header, link)
        try:
            result = self._writer.put(
                NewRecord(
                    header.topic,
                    queue_id,
                    command.body,
                    properties.encode() + self._added,
                    header.flag,
                    sys_flag,
                    header.born_timestamp_ms,
                    born_host,
                    self._store_host,
                    header.reconsume_times or 0,
                )
            )
        except (MessageError, StoreError) as error:
            return self._with_region(self.refusal(command, error))
        log_offset = result.log_offset
        end_offset = result.end_offset
        self._count_put(header.topic, queue_id, 1, end_offset - log_offset)
        self._gate.add_answer(
            end_offset,
            True,
            link,
            self._answers.frame(command.opaque, log_offset, queue_id, result.queue_offset, unique_id),
        )
        return None

    def send_handed(self, command: Command, link: Link) -> Command | None:
        header = command.read(SendHandedBatch)
        body = self._handovers.view(link, header.handed_at, header.handed_size)
        header.batch = True
        topic_config = self._checks.check(command, header, link)
        if isinstance(topic_config, Command):
            return self._with_region(topic_config)
        return self._send_batch(command, header, link, topic_config, body)

    def _send(self, command: Command, header: SendMessage, link: Link) -> Command | None:
        """The long way, for every message."""
        topic_config = self._checks.check(command, header, link)
        if isinstance(topic_config, Command):
            return self._with_region(topic_config)
        if header.batch:
            return self._send_batch(command, header, link, topic_config, command.body)
        topic = header.topic
        if self._is_plain(topic_config):
            self._plain[topic] = topic_config
        properties = header.properties.encode() if header.properties else b""
        for name in _ADDED_NAMES:
            properties = remove_property(properties, name)
        properties = join_properties(properties, self._added)
        unique_id = find_unique_id(properties)
        if unique_id is None:
            unique_id = self._unique_ids.next_id().encode()
            properties = b"%bUNIQ_KEY\x01%b\x02" % (remove_property(properties, _UNIQ_KEY), unique_id)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(topic_config.write_queue_nums)
        record = NewRecord(
            topic,
            queue_id,
            command.body,
            properties,
            header.flag,
            header.sys_flag,
            header.born_timestamp_ms,
            remote_host(link),
            self._store_host,
            header.reconsume_times or 0,
        )
        changed = self._rewritten(command, header, record, topic_config)
        if isinstance(changed, Command):
            return self._with_region(changed)
        try:
            result = self._writer.put(changed)
        except (MessageError, StoreError) as error:
            return self._with_region(self.refusal(command, error))
        self._count_put(changed.topic, changed.queue_id, 1, result.end_offset - result.log_offset)
        if not command.flag & ONEWAY_FLAG:
            frame = self._answers.frame(command.opaque, result.log_offset, queue_id, result.queue_offset, unique_id)
            wait = is_true(find_property(properties, _WAIT) or b"true")
            self._gate.add_answer(result.end_offset, wait, link, frame)
        return None

    def _is_plain(self, topic_config: TopicConfig) -> bool:
        """Whether messages of this topic need no more looking at than that the topic is still the same."""
        return (
            topic_config.topic_filter_type == "SINGLE_TAG"
            and not topic_config.attributes
            and not topic_config.topic_name.startswith("%")
            and len(self._store_host) == 8
            and self._checks.is_open
            and len(self._plain) < _PLAIN_MAX
        )

    def _rewritten(
        self, command: Command, header: SendMessage, record: NewRecord, topic_config: TopicConfig
    ) -> NewRecord | Command:
        """The record as its kind of message is stored, or why it cannot be."""
        if record.topic.startswith(RETRY_PREFIX):
            answer = self._retry.apply(command, header, record)
            if answer is not None:
                return answer
        properties = record.properties
        if topic_config.topic_filter_type == "MULTI_TAG":
            record.sys_flag |= SysFlag.MULTI_TAGS
        record.sys_flag = with_host_families(record.sys_flag, record.born_host, record.store_host)
        if "COMPACTION" in topic_config.attributes.get("cleanup.policy", "") and not find_property(properties, _KEYS):
            return command.reply(ResponseCode.MESSAGE_ILLEGAL, remark="Required message key is missing")
        is_inner = record.sys_flag & SysFlag.INNER_BATCH
        claims_inner = is_inner or find_property(properties, _INNER_NUM) is not None
        if claims_inner and not (is_inner and topic_config.attributes.get("queue.type") == "BatchCQ"):
            return self._illegal(command)
        level = delay_level_of(properties)
        if level is None:
            return self._illegal(command)
        if is_true(find_property(properties, _TRANSACTION)) and not (record.reconsume_times > 0 and level > 0):
            if self.config.reject_transaction_message:
                return command.reply(
                    ResponseCode.NO_PERMISSION,
                    remark=f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden",
                )
            return half_record(record)
        if transaction_type(record.sys_flag) in (TransactionType.NOT, TransactionType.COMMIT):
            if level > 0:
                for name in _TIMER_NAMES:
                    record.properties = remove_property(record.properties, name)
                return schedule_record(record, level, self._levels_max)
            if any(find_property(properties, name) is not None for name in _TIMER_NAMES):
                return command.reply(
                    ResponseCode.SYSTEM_ERROR,
                    remark="accurate timer message is not enabled, timerWheelEnable is false",
                )
        return record

    def _send_batch(
        self,
        command: Command,
        header: SendMessage,
        link: Link,
        topic_config: TopicConfig,
        body: bytes | memoryview,
    ) -> Command | None:
        topic = header.topic
        if len(topic) > 127:
            return self._with_region(
                command.reply(ResponseCode.MESSAGE_ILLEGAL, remark=f"message topic length too long {len(topic)}")
            )
        if topic.startswith(RETRY_PREFIX):
            return self._with_region(
                command.reply(
                    ResponseCode.MESSAGE_ILLEGAL, remark=f"batch request does not support retry group {topic}"
                )
            )
        properties = header.properties.encode() if header.properties else b""
        body_size_max = self._writer.store.config.max_message_size
        level = delay_level_of(properties)
        is_unusual = header.sys_flag & SysFlag.TRANSACTION_MASK or level is None or level > 0
        if is_unusual or len(body) > body_size_max:
            return self._with_region(self._illegal(command))
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._random.randrange(topic_config.write_queue_nums)
        sys_flag = header.sys_flag
        if topic_config.topic_filter_type == "MULTI_TAG":
            sys_flag |= SysFlag.MULTI_TAGS
        born_host = link.attachments.get("host") or remote_host(link)
        unique_id = find_unique_id(properties) or b""
        is_inner = unique_id and topic_config.attributes.get("queue.type") == "BatchCQ"
        if is_inner:
            body = bytes(body)  # which is stored as it is
        record = NewRecord(
            topic,
            queue_id,
            body if isinstance(body, bytes) else b"",
            properties,
            header.flag,
            with_host_families(sys_flag, born_host, self._store_host),
            header.born_timestamp_ms,
            born_host,
            self._store_host,
            header.reconsume_times or 0,
        )
        is_handed = type(header) is SendHandedBatch
        try:
            batch = BatchBody(body)
            if is_inner:
                for name in (*_ADDED_NAMES, _INNER_NUM):
                    properties = remove_property(properties, name)
                properties = join_properties(properties, b"%bINNER_NUM\x01%d\x02" % (self._added, len(batch)))
                record.properties = properties
                record.sys_flag |= SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
                result = self._writer.put(record)
            else:
                result = self._writer.put_batch(record, batch, is_large=is_handed)
        except (MessageError, StoreError) as error:
            return self._with_region(self.refusal(command, error))
        self._statistics.put(topic, queue_id, len(batch), result.end_offset - result.log_offset)
        if not command.flag & ONEWAY_FLAG:
            if is_handed:
                frame = self._answers.frame(command.opaque, result.log_offset, queue_id, result.queue_offset, unique_id)
            else:
                frame = self._batch_frame(command.opaque, result, queue_id, unique_id, is_inner=bool(is_inner))
            wait = is_true(find_property(properties, _WAIT) or b"true")
            self._gate.add_answer(result.end_offset, wait, link, frame)
        return None

    def _batch_frame(self, opaque: int, result: PutResult, queue_id: int, unique_id: bytes, *, is_inner: bool) -> bytes:
        if not is_inner:
            return self._answers.batch_frame(opaque, result.log_offsets, queue_id, result.queue_offset, unique_id)
        frame = self._answers.frame(opaque, result.log_offset, queue_id, result.queue_offset, unique_id)
        answer = decode_json_header(frame[8:])
        (answer.ext_fields or {})["batchUniqId"] = unique_id.decode("utf-8", "replace")
        return encode_frame(answer)

    # Answers other than success

    def refusal(self, command: Command, error: MessageError | StoreError) -> Command:
        """The answer to a message that the store does not take."""
        self._statistics.put_failed()
        if isinstance(error, MessageError):
            return self._illegal(command)
        if isinstance(error, StoreBusyError):
            return command.reply(
                ResponseCode.SYSTEM_BUSY, remark="[PC_SYNCHRONIZED]broker busy, start flow control for a while"
            )
        if isinstance(error, TooFewReplicasError):
            return command.reply(ResponseCode.SYSTEM_ERROR, remark="in-sync replicas not enough")
        return command.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"{UNAVAILABLE} {error}"[:1024])

    def _illegal(self, command: Command) -> Command:
        return command.reply(
            ResponseCode.MESSAGE_ILLEGAL,
            remark="the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._writer.store.config.max_message_size}B, msg properties length limit 32KB.",
        )

    def _with_region(self, answer: Command) -> Command:
        answer.ext_fields = {
            "MSG_REGION": self.config.region_id,
            "TRACE_ON": "true" if self.config.trace_on else "false",
        }
        return answer


def amend_answer(frame: bytes, status: PutStatus) -> bytes:
    """The answer that tells of another outcome than success."""
    answer = decode_json_header(frame[8:])
    answer.code = status.code
    if not status.is_stored:
        answer.remark = UNAVAILABLE
        fields = answer.ext_fields or {}
        answer.ext_fields = {name: fields[name] for name in ("MSG_REGION", "TRACE_ON") if name in fields}
    return encode_frame(answer)
