"""The tables of a slave, as its copies of the master's fill them (see `fusee.replication.metadata`).

How far the master has delivered delayed messages is taken only when the slave has the log up to where that was true:
a slave that acts for its master would otherwise leave out messages whose delivered copies have not reached it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.broker.delay_progress import decode_delay_offsets
from fusee.broker.documents import decode_document
from fusee.wire.bodies.offsets import ConsumerOffsetTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fusee.broker.delay import DelayDelivery
    from fusee.broker.groups import GroupTable
    from fusee.broker.offsets import OffsetTable
    from fusee.broker.topics import TopicTable
    from fusee.replication.metadata import OwnCommit
    from fusee.store.engine import MessageStore
    from fusee.wire.bodies.group import SubscriptionGroupTable
    from fusee.wire.bodies.topic import DataVersion, TopicConfig


class SlaveTables:
    """Takes over what the master has."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        delay: DelayDelivery,
        store: MessageStore,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delay = delay
        self._store = store

    @property
    def topics_version(self) -> DataVersion:
        return self._topics.version

    @property
    def groups_version(self) -> DataVersion:
        return self._groups.version

    def take_topics(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        self._topics.take_over(topics, version)

    def take_groups(self, table: SubscriptionGroupTable) -> None:
        self._groups.take_over(table)

    def take_offsets(self, parts: Sequence[bytes], *, is_whole: bool) -> list[OwnCommit]:
        tables = [decode_document(part, ConsumerOffsetTable) for part in parts]
        table: dict[str, Mapping[int, int]] = {}
        for each in tables:
            table.update(each.offset_table)
        return self._offsets.take_over(table, tables[-1].data_version, is_whole=is_whole)

    def told(self, commit: OwnCommit, queue_offset: int) -> None:
        self._offsets.told(commit, queue_offset)

    def take_delays(self, body: bytes) -> None:
        offsets = decode_delay_offsets(body)
        if (offsets.log_offset or 0) <= self._store.written_offset:
            self._delay.take_over(offsets)
