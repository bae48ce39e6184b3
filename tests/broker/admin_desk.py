"""A broker as administrators see it: real tables over a real store in a folder, requests in, answers out."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from fusee.broker.config import BrokerConfig
from fusee.broker.consumers import ConsumerTable
from fusee.broker.groups import GroupTable
from fusee.broker.handlers.admin_groups import GroupHandlers
from fusee.broker.handlers.admin_topics import TopicHandlers
from fusee.broker.handlers.consume_stats import ConsumeStatsHandlers
from fusee.broker.handlers.offset import OffsetHandlers
from fusee.broker.handlers.query import QueryHandlers
from fusee.broker.offsets import OffsetTable
from fusee.broker.statistics import Statistics
from fusee.broker.topics import TopicTable
from fusee.clock import ManualClock
from fusee.message.properties import encode_properties
from fusee.store.config import StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.filesystem import OsFileSystem
from fusee.store.new_record import NewRecord
from fusee.store.results import PutResult
from fusee.transport.link import Link
from fusee.transport.router import Router
from fusee.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import LanguageCode, RequestCode
from fusee.wire.command import ONEWAY_FLAG, Command
from fusee.wire.fields import Header, write_fields
from fusee.wire.framing import FrameDecoder, encode_frame
from fusee.wire.lenient_json import loads

BROKER = "broker-a"
ADDRESS = "10.0.0.1:10911"
DELAY_OFFSETS = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":7},"offsetTable":{3:12}}'
STORE_CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=50,
    max_index_num=500,
    max_message_size=4096,
    disk_free_bytes_min=0,
    disk_free_bytes_enough=0,
    file_reserved_time=1,
    transaction_segment_entries=16,
)


class AdminDesk:
    """Tables, store and the handlers of this desk. Close it."""

    def __init__(self, folder: Path, *, start_ms: int = 1_700_000_000_000, name: str = BROKER, **settings: Any) -> None:
        self.clock = clock = ManualClock(start_ms)
        self.config = config = BrokerConfig(broker_name=name, broker_cluster_name="C", **settings)
        files = OsFileSystem()
        tables: dict[str, Any] = {"config": config, "folder": folder / "config", "files": files, "clock": clock}
        self.topics = TopicTable(**tables)
        self.groups = GroupTable(**tables)
        self.offsets = OffsetTable(**tables)
        self.consumers = ConsumerTable(config=config)
        self.statistics = Statistics(clock, "C")
        # Nothing expires by the hour of the day here.
        other_hour = (time.localtime(start_ms / 1000).tm_hour + 12) % 24
        store_config = dataclasses.replace(STORE_CONFIG, delete_when=f"{other_hour:02}")
        self.store = MessageStore(folder, store_config, files=files, clock=clock)
        self.store.open()
        self.pushed: list[Command] = []
        self.link = Link(clock=clock, timers=clock)
        self.link.remote_address = "10.0.0.9:4000"
        parts: dict[str, Any] = {
            "topics": self.topics,
            "offsets": self.offsets,
            "store": self.store,
            "make_visible": self.make_visible,
        }
        seen: dict[str, Any] = {"consumers": self.consumers, "statistics": self.statistics}
        self.offset_handlers = OffsetHandlers(
            **parts, groups=self.groups, delay_offsets=lambda *, is_exact: DELAY_OFFSETS
        )
        self.topic_handlers = TopicHandlers(**parts, **seen, config=config, address=lambda: ADDRESS)
        self.group_handlers = GroupHandlers(
            **parts, **seen, config=config, groups=self.groups, push_reset=self._push_reset
        )
        self.stats_handlers = ConsumeStatsHandlers(
            **parts, **seen, config=config, groups=self.groups, clock=clock, address=lambda: ADDRESS
        )
        self.query_handlers = QueryHandlers(store=self.store, consumers=self.consumers, make_visible=self.make_visible)
        self.router = Router()
        lane = self.router.lane("admin", 10)
        for handlers in (
            self.offset_handlers,
            self.topic_handlers,
            self.group_handlers,
            self.stats_handlers,
            self.query_handlers,
        ):
            self.router.add_all(handlers.routes(), lane)

    def close(self) -> None:
        self.store.close()

    def _push_reset(self, command: Command, link: Link) -> Command:
        self.pushed.append(command)
        return command.reply(remark="pushed")

    def make_visible(self) -> None:
        self.store.write()
        self.store.dispatch()

    # What there is

    def topic(self, name: str, queues: int = 4, **more: Any) -> TopicConfig:
        return self.topics.put(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **more))

    def group(self, name: str) -> None:
        self.groups.find(name)

    def online(self, group: str, *topics: str, expression: str = "*", expression_type: str = "TAG") -> None:
        """A member of the group that subscribes to these topics."""
        wanted = [
            SubscriptionData(topic=topic, expression=expression, expression_type=expression_type, sub_version=5)
            for topic in topics
        ]
        self.consumers.register(
            ConsumerData(group_name=group, subscription_data_set=wanted),
            self.link,
            client_id="client",
            language=LanguageCode.JAVA,
            version=513,
            now_ms=self.clock.time_ms(),
        )

    def put(self, topic: str, queue_id: int = 0, *, body: bytes = b"body", **properties: str) -> PutResult:
        return self.store.put(NewRecord(topic, queue_id, body, encode_properties(properties)))

    def expire_log(self) -> None:
        """Let everything but the last segment of the log expire."""
        self.make_visible()
        self.store.flush_derived()
        self.age_log()
        self.store.retention.delete_by_hand()
        assert self.store.expire()

    def age_log(self) -> None:
        """Let the log have been written long ago."""
        for _, file in self.store.log.segments():
            os.utime(file.path, (0, 0))

    # What is asked

    def ask(
        self,
        code: RequestCode,
        header: Header | dict[str, str] | None = None,
        *,
        body: bytes = b"",
        oneway: bool = False,
    ) -> Command:
        """The answer to this request as a client would read it."""
        fields = write_fields(header) if isinstance(header, Header) else header
        request = Command(code, 77, ONEWAY_FLAG if oneway else 0, ext_fields=fields, body=body)
        return self.answer(encode_frame(request))

    def answer(self, frame: bytes) -> Command:
        """The answer to this frame."""
        answer = self.tell(frame)
        assert answer is not None
        return answer

    def tell(self, frame: bytes) -> Command | None:
        """The answer to this frame, if there is one."""
        (request,) = FrameDecoder().feed(frame)
        answer = self.router.dispatch(request, self.link)
        if answer is None:
            return None
        encoded = answer if isinstance(answer, bytes) else encode_frame(answer)
        (command,) = FrameDecoder().feed(encoded)
        assert command.opaque == request.opaque
        assert command.is_response
        return command


def told(answer: Command) -> Any:
    """The JSON in the body of an answer that went well."""
    assert answer.code == 0, answer.remark
    return loads(answer.body)


def refusal(answer: Command) -> tuple[int, str | None]:
    """Code and remark of an answer without a body."""
    assert not answer.body
    return answer.code, answer.remark
