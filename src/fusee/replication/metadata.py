"""Keeps a slave's topics, groups, offsets and delay progress in step with its master's (Java: SlaveSynchronize).

The log is copied byte for byte (`replica`); what a broker knows beside its log is asked for on the master's port for
clients, one round after the other:

    topics, groups   21 and 201, first one entry only: the answer tells the version of the table. When that is another
                     than the slave's, everything, page by page; a version that changes meanwhile begins it anew.
    offsets          43. Our master tells what has changed since a mark (`ChangesWanted`), every second; another one
                     tells everything, every ten seconds.
    delay progress   45, every ten seconds.

Offsets that consumers have committed here, while the master was away, are told to the master (15) when they are ahead
of its own, but never beyond the end of its queue: a master that has lost messages must not have new ones skipped.
(Java's slave overwrites them with the master's, every minute.)

A round that fails leaves what it has not reached as it was; the next one begins after a second. `tables` decides what a
copy means, and saves it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from fusee.errors import FuseeError, GroupNotFoundError, RemoteError
from fusee.service import Periodic
from fusee.wire.bodies.group import SubscriptionGroupTable
from fusee.wire.bodies.topic import TopicConfigTable, encode_data_version
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.fields import Header, Int32
from fusee.wire.headers.admin import (
    GetAllSubscriptionGroups,
    GetAllSubscriptionGroupsResponse,
    GetAllTopicConfig,
    GetAllTopicConfigResponse,
    GetSubscriptionGroup,
)
from fusee.wire.headers.offset import GetMaxOffset, GetMaxOffsetResponse, UpdateConsumerOffset
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fusee.clock import Clock, Timers
    from fusee.transport.client import Client
    from fusee.wire.bodies.group import SubscriptionGroupConfig
    from fusee.wire.bodies.topic import DataVersion, TopicConfig

_log = logging.getLogger(__name__)

ROUND_INTERVAL: Final = 1.0
WHOLE_INTERVAL: Final = 10.0
"""Seconds between two copies of what a master can only tell as a whole."""
TABLE_SIZE_MAX: Final = 64 * 1024 * 1024
OFFSETS_SIZE_MAX: Final = 512 * 1024 * 1024
"""Bytes of all parts of one copy of the offsets, which are as many as `offsetsMax` allows."""

_TIMEOUT: Final = 3.0
_PAGE_TIMEOUT: Final = 30.0
_PAGE_SIZE: Final = 2_000
_BEGINNINGS_MAX: Final = 5
_COMMITS_MAX: Final = 1_000
_COMMITS_AT_ONCE: Final = 32


class CopyError(FuseeError):
    """The master's tables could not be copied now."""


class OwnCommit(NamedTuple):
    """What a consumer has committed on a slave, and is yet to be told to the master."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    master_offset: int
    """Where the master is; -1 when it has no offset."""


class ChangesWanted(Header, kw_only=True):
    """Beside 43 and 45, of a Fusee slave: changes since this mark are enough. Others do not look at it."""

    mark: str = msgspec.field(name="fuseeMark")
    cursor: Int32 | None = msgspec.field(default=None, name="fuseeCursor")


class ChangesTold(Header, kw_only=True):
    """Beside the answer to 43, of a Fusee master: `cursor` is where the next part begins."""

    mark: str = msgspec.field(name="fuseeMark")
    cursor: Int32 | None = msgspec.field(default=None, name="fuseeCursor")
    is_whole: bool = msgspec.field(name="fuseeWhole")


class CommitMark(Header, kw_only=True):
    """Beside 15, of a Fusee slave: what was committed there moves nobody back who has committed more at the master.

    Others do not look at it, so that a group of theirs may be moved back until its next commit.
    """

    is_aside: bool = msgspec.field(default=False, name="fuseeAside")


class CommitAside(UpdateConsumerOffset, kw_only=True):
    """15 with that mark."""

    is_aside: bool = msgspec.field(default=True, name="fuseeAside")


class CopiedTables(Protocol):
    """The tables of a slave."""

    @property
    def topics_version(self) -> DataVersion: ...

    @property
    def groups_version(self) -> DataVersion: ...

    def take_topics(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Have these topics and no others."""

    def take_groups(self, table: SubscriptionGroupTable) -> None:
        """Have these groups and no others."""

    def take_offsets(self, parts: Sequence[bytes], *, is_whole: bool) -> Sequence[OwnCommit]:
        """Be where these answers to 43 say the master is; what was committed here and is ahead of it."""

    def told(self, commit: OwnCommit, queue_offset: int) -> None:
        """The master was told of this, and is at this offset now."""

    def take_delays(self, body: bytes) -> None:
        """Be where this answer to 45 says."""


class MetadataCopy:
    """The rounds of one slave."""

    def __init__(
        self,
        *,
        tables: CopiedTables,
        master: Callable[[], str | None],
        client: Client,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """`master` gives the address to ask, None while there is none."""
        self._tables = tables
        self._master = master
        self._client = client
        self._clock = clock
        self._rounds = Periodic(timers, ROUND_INTERVAL, self.soon)
        self._task: asyncio.Task[None] | None = None
        self._asked: str | None = None
        self._mark = ""
        self._offsets_due = self._delays_due = 0.0
        self._is_stopped = False
        self.copied_at: float | None = None
        """When the last round was done, by the monotonic clock; None before the first."""
        self.failure: FuseeError | None = None
        """Why the last round failed; None when it did not."""

    def start(self) -> None:
        """Begin the rounds, with the first one now."""
        self._rounds.start()
        self.soon()

    def stop(self) -> None:
        self._is_stopped = True
        self._rounds.stop()
        if self._task is not None:
            self._task.cancel()

    def soon(self) -> None:
        """Begin a round, unless one is under way or there is nobody to ask."""
        master = self._master()
        if self._is_stopped or self._task is not None or master is None:
            return
        self._task = asyncio.get_running_loop().create_task(self._run(master))

    async def _run(self, master: str) -> None:
        try:
            await self._round(master)
        except FuseeError as error:
            if self.failure is None:
                _log.warning("topics, groups and offsets of master %s were not copied: %s", master, error)
            self.failure = error
        else:
            if self.failure is not None or self.copied_at is None:
                _log.info("topics, groups and offsets are those of master %s", master)
            self.failure = None
            self.copied_at = self._clock.monotonic()
        finally:
            self._task = None

    async def _round(self, master: str) -> None:
        if master != self._asked:
            self._asked = master
            self._mark = ""
            self._offsets_due = self._delays_due = 0.0
        await self._copy_topics(master)
        await self._copy_groups(master)
        now = self._clock.monotonic()
        if now >= self._offsets_due:
            await self._copy_offsets(master)
        if now >= self._delays_due:
            await self._copy_delays(master)

    # Topics and groups

    async def _copy_topics(self, master: str) -> None:
        for _ in range(_BEGINNINGS_MAX):
            table, total = await self._topic_page(master, None, 0, 1)
            version = table.data_version
            if version == self._tables.topics_version:
                return
            topics: dict[str, TopicConfig] = dict(table.topic_config_table)
            while total is not None and len(topics) < total:
                table, total = await self._topic_page(master, version, len(topics), _PAGE_SIZE)
                if table.data_version != version or not table.topic_config_table:
                    break
                topics.update(table.topic_config_table)
            else:
                self._tables.take_topics(topics, version)
                return
        raise CopyError(f"the topics of master {master} change faster than they can be copied; it is tried again")

    async def _topic_page(
        self, master: str, version: DataVersion | None, first: int, count: int
    ) -> tuple[TopicConfigTable, int | None]:
        header = GetAllTopicConfig(topic_seq=first, data_version=_text(version), max_topics=count)
        answer = await self._ask(master, RequestCode.GET_ALL_TOPIC_CONFIG, header, timeout=_PAGE_TIMEOUT)
        table = decode_json(answer.body, TopicConfigTable, size_max=TABLE_SIZE_MAX)
        return table, answer.read(GetAllTopicConfigResponse).total_topics

    async def _copy_groups(self, master: str) -> None:
        for _ in range(_BEGINNINGS_MAX):
            table, total = await self._group_page(master, None, 0, 1)
            version = table.data_version
            if version == self._tables.groups_version:
                return
            groups: dict[str, SubscriptionGroupConfig] = dict(table.subscription_group_table)
            forbidden = dict(table.forbidden_table)
            while total is not None and len(groups) < total:
                table, total = await self._group_page(master, version, len(groups), _PAGE_SIZE)
                if table.data_version != version or not table.subscription_group_table:
                    break
                groups.update(table.subscription_group_table)
                forbidden.update(table.forbidden_table)
            else:
                whole = SubscriptionGroupTable(
                    data_version=version, forbidden_table=forbidden, subscription_group_table=groups
                )
                self._tables.take_groups(whole)
                return
        raise CopyError(f"the groups of master {master} change faster than they can be copied; it is tried again")

    async def _group_page(
        self, master: str, version: DataVersion | None, first: int, count: int
    ) -> tuple[SubscriptionGroupTable, int | None]:
        header = GetAllSubscriptionGroups(group_seq=first, data_version=_text(version), max_groups=count)
        answer = await self._ask(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header, timeout=_PAGE_TIMEOUT)
        table = decode_json(answer.body, SubscriptionGroupTable, size_max=TABLE_SIZE_MAX)
        return table, answer.read(GetAllSubscriptionGroupsResponse).total_groups

    # Offsets

    async def _copy_offsets(self, master: str) -> None:
        parts: list[bytes] = []
        mark, cursor = self._mark, None
        while True:
            header = ChangesWanted(mark=mark, cursor=cursor)
            answer = await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET, header, timeout=_PAGE_TIMEOUT)
            fields = answer.all_fields()
            if "fuseeMark" not in fields:
                self._offsets_due = self._clock.monotonic() + WHOLE_INTERVAL
                parts, mark, is_whole = [answer.body], "", True
                break
            told = answer.read(ChangesTold)
            if told.mark != mark:
                parts.clear()
            parts.append(answer.body)
            if sum(map(len, parts)) > OFFSETS_SIZE_MAX:
                raise CopyError(f"the offsets of master {master} have more than {OFFSETS_SIZE_MAX} bytes")
            mark, cursor, is_whole = told.mark, told.cursor, told.is_whole
            if cursor is None:
                break
        ahead = self._tables.take_offsets(parts, is_whole=is_whole)
        self._mark = mark
        for first in range(0, min(len(ahead), _COMMITS_MAX), _COMMITS_AT_ONCE):
            await asyncio.gather(*(self._tell(master, commit) for commit in ahead[first : first + _COMMITS_AT_ONCE]))

    async def _tell(self, master: str, commit: OwnCommit) -> None:
        """Let the master be where a consumer has come to here, as far as its queue goes."""
        topic, queue_id = commit.topic, commit.queue_id
        try:
            asked = GetMaxOffset(topic=topic, queue_id=queue_id)
            answer = await self._ask(master, RequestCode.GET_MAX_OFFSET, asked)
            queue_offset = min(commit.queue_offset, answer.read(GetMaxOffsetResponse).queue_offset)
            if queue_offset > commit.master_offset:
                header = CommitAside(
                    consumer_group=commit.group, topic=topic, queue_id=queue_id, commit_offset=queue_offset
                )
                await self._commit(master, header)
        except RemoteError as error:
            _log.warning("master %s does not take what was committed here while it was away: %s", master, error)
            queue_offset = commit.master_offset
        else:
            _log.info(
                "group %s is at %d in %s queue %d, as was committed here while the master was away",
                commit.group, queue_offset, topic, queue_id,
            )  # fmt: skip
        self._tables.told(commit, max(queue_offset, commit.master_offset))

    async def _commit(self, master: str, header: CommitAside) -> None:
        try:
            await self._ask(master, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        except GroupNotFoundError:
            # A group that began while the master was away: asking about it makes it, where groups are made by use.
            await self._ask(
                master, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroup(group=header.consumer_group)
            )
            await self._ask(master, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    # Delays

    async def _copy_delays(self, master: str) -> None:
        answer = await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET, ChangesWanted(mark=""))
        self._delays_due = self._clock.monotonic() + WHOLE_INTERVAL
        if answer.body:
            self._tables.take_delays(answer.body)

    async def _ask(self, master: str, code: RequestCode, header: Header, *, timeout: float = _TIMEOUT) -> Command:
        answer = await self._client.request(master, Command.request(code, header), timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, master, code)
        return answer


def _text(version: DataVersion | None) -> str:
    return "" if version is None else encode_data_version(version).decode()
