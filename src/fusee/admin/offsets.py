"""Offsets of groups: show, move in time or by number, skip, copy.

There are two ways to move a group. A broker that resets offsets itself (useServerSideResetOffset, the default of 5.x)
keeps the new offset, hands it to whoever pulls next, and ignores commits until then: members that run follow, and a
commit by hand would be ignored too. A broker that does not tells the members, and says so when none is online; then
the offset is written as a commit, which only lasts because nobody runs who would commit over it.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from fusee.admin.fan_out import ask_all
from fusee.admin.lag import LagCalls
from fusee.admin.reach import queue_of, to_ms
from fusee.admin.settings import settings_in
from fusee.admin.views import BrokerAddress, CommittedOffset, OffsetChange, OffsetChanges
from fusee.errors import ConfigError, ConsumerOfflineError, NotFoundError, UnavailableError
from fusee.message.model import MessageQueue
from fusee.wire.bodies.offsets import QueueOffsets
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.offset import (
    CloneGroupOffset,
    QueryConsumerOffset,
    QueryConsumerOffsetResponse,
    ResetOffset,
)

if TYPE_CHECKING:
    from fusee.wire.bodies.route import TopicRouteData

Target: TypeAlias = datetime | int | Literal["first", "last"]
"""Where to go on: a time (a datetime, or milliseconds), the first message still there, or after the last."""

_END_MS: Final = -1


class OffsetCalls(LagCalls):
    """Offsets that groups have committed."""

    async def committed_offsets(self, group: str, topic: str) -> tuple[CommittedOffset, ...]:
        """What a group has committed in each queue of a topic, sorted. Raises when a broker is away or silent."""
        queues = await self._queues_at_masters(topic)
        found = await self._committed(group, queues)
        return tuple(CommittedOffset(queue=queue, committed_offset=found[queue]) for queue in sorted(queues))

    async def offset_at_time(self, queue: MessageQueue, when: datetime | int, *, upper: bool = False) -> int:
        """The first offset stored at this time or later; with `upper`, the last one at this time or before."""
        place = await self._one_broker(queue.broker_name)
        return await self._session.calls.search_offset(
            place.address, queue.topic, queue.queue_id, to_ms(when), upper=upper
        )

    async def reset_offsets(self, group: str, topic: str, to: Target, *, dry_run: bool = False) -> OffsetChanges:
        """Let a group go on elsewhere in every queue of a topic, members running or not (mqadmin resetOffsetByTime).

        With `dry_run` nothing is changed. Raises TopicNotFoundError, GroupNotFoundError, UnavailableError when a master
        is away (then nothing is done), or AdminError naming the brokers that did not follow; on the others it is done.
        """
        timestamp_ms = _target_ms(to)
        queues = await self._queues_at_masters(topic)
        before = await self._committed(group, queues)
        if dry_run:
            after, is_told = await self._targets(queues, timestamp_ms), False
        else:
            after, is_told = await self._reset_at_brokers(group, topic, queues, timestamp_ms)
        return OffsetChanges(
            group=group,
            topic=topic,
            changes=tuple(
                OffsetChange(queue=queue, before=before.get(queue), after=after[queue]) for queue in sorted(after)
            ),
            is_told=is_told,
            is_dry_run=dry_run,
        )

    async def skip_messages(self, group: str, topic: str) -> OffsetChanges:
        """Let a group go on after the last message of every queue (mqadmin skipAccumulatedMessage)."""
        return await self.reset_offsets(group, topic, "last")

    async def set_offset(self, group: str, queue: MessageQueue, queue_offset: int) -> OffsetChanges:
        """Let a group go on at this offset of one queue (mqadmin resetOffsetByTime -q -o).

        Members that run follow only where the broker resets offsets itself; elsewhere the offset is written as a
        commit and `is_told` is False. Raises ConfigError when the queue does not have the offset.
        """
        place = await self._one_broker(queue.broker_name)
        calls = self._session.calls
        first = await calls.min_offset(place.address, queue.topic, queue.queue_id)
        end = await calls.max_offset(place.address, queue.topic, queue.queue_id)
        if not first <= queue_offset <= end:
            raise ConfigError(
                f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} has the offsets {first} to {end}, "
                f"not {queue_offset}"
            )
        before = (await self._committed(group, {queue: place}))[queue]
        # Where the broker does not reset offsets itself it would take this as an order to move every queue.
        is_told = await self._resets_itself(place)
        if is_told:
            header = ResetOffset(
                group=group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                timestamp_ms=0,
                is_force=True,
            )
            await self._ask(place.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        else:
            await self._commit(group, {queue: place}, {queue: queue_offset})
        return OffsetChanges(
            group=group,
            topic=queue.topic,
            changes=(OffsetChange(queue=queue, before=before, after=queue_offset),),
            is_told=is_told,
        )

    async def clone_offsets(
        self, source_group: str, target_group: str, topic: str | None = None, *, offline: bool = False
    ) -> tuple[str, ...]:
        """Let a group be where another one is, in one topic or in all (mqadmin cloneGroupOffset); the topics.

        Topics that the source group is online without subscribing to are left out unless `offline`. (A broker of the
        reference copies nothing when no topic is named; so each is named.)
        """
        topics = (topic,) if topic is not None else await self.group_topics(source_group)
        for name in topics:
            header = CloneGroupOffset(source_group=source_group, target_group=target_group, topic=name, offline=offline)
            answers = await self._ask_brokers(await self._brokers_of(name), RequestCode.CLONE_GROUP_OFFSET, header)
            answers.complete(f"copy the offsets of group {source_group!r}", topic=name)
        return topics

    # Within

    async def _queues_at_masters(self, topic: str) -> dict[MessageQueue, BrokerAddress]:
        """Every queue of a topic, and the master that keeps its offsets. Raises UnavailableError when one has none."""
        queues = queues_in(topic, await self._route(topic))
        masters = {place.broker_name: place for place in await self.brokers()}
        without = sorted({queue.broker_name for queue in queues} - masters.keys())
        if without:
            raise UnavailableError(
                f"{', '.join(without)} has queues of topic {topic!r} but no master now, and masters keep the offsets; "
                "start it, or promote a slave",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
                topic=topic,
            )
        return {queue: masters[queue.broker_name] for queue in queues}

    async def _committed(self, group: str, queues: dict[MessageQueue, BrokerAddress]) -> dict[MessageQueue, int | None]:
        async def ask(place: BrokerAddress) -> dict[MessageQueue, int | None]:
            return {queue: await self._committed_at(place, group, queue) for queue in by_broker[place]}

        by_broker = _by_broker(queues)
        answers = await ask_all(by_broker, ask)
        answers.complete(f"tell the offsets of group {group!r}")
        return {queue: at for found in answers.values for queue, at in found.items()}

    async def _committed_at(self, place: BrokerAddress, group: str, queue: MessageQueue) -> int | None:
        header = QueryConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        try:
            answer = await self._ask(place.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except NotFoundError:
            return None
        return answer.read(QueryConsumerOffsetResponse).committed_offset

    async def _targets(self, queues: dict[MessageQueue, BrokerAddress], timestamp_ms: int) -> dict[MessageQueue, int]:
        calls = self._session.calls

        async def ask(place: BrokerAddress) -> dict[MessageQueue, int]:
            found: dict[MessageQueue, int] = {}
            for queue in by_broker[place]:
                if timestamp_ms == _END_MS:
                    found[queue] = await calls.max_offset(place.address, queue.topic, queue.queue_id)
                else:
                    found[queue] = await calls.search_offset(place.address, queue.topic, queue.queue_id, timestamp_ms)
            return found

        by_broker = _by_broker(queues)
        answers = await ask_all(by_broker, ask)
        answers.complete("find the offsets")
        return {queue: at for found in answers.values for queue, at in found.items()}

    async def _commit(
        self, group: str, queues: dict[MessageQueue, BrokerAddress], targets: dict[MessageQueue, int]
    ) -> None:
        calls = self._session.calls

        async def write(place: BrokerAddress) -> None:
            for queue in by_broker[place]:
                await calls.update_offset(place.address, group, queue.topic, queue.queue_id, targets[queue])

        by_broker = _by_broker(queues)
        (await ask_all(by_broker, write)).complete(f"write the offsets of group {group!r}")

    async def _reset_at_brokers(
        self, group: str, topic: str, queues: dict[MessageQueue, BrokerAddress], timestamp_ms: int
    ) -> tuple[dict[MessageQueue, int], bool]:
        """The new offsets, and whether every broker hands them on to the members that run."""
        by_broker = _by_broker(queues)
        header = ResetOffset(group=group, topic=topic, timestamp_ms=timestamp_ms, is_force=True)

        async def reset(place: BrokerAddress) -> tuple[dict[MessageQueue, int], bool]:
            try:
                table = await self._ask_json(
                    place.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, QueueOffsets, header
                )
            except ConsumerOfflineError:
                here = dict.fromkeys(by_broker[place], place)
                targets = await self._targets(here, timestamp_ms)
                await self._commit(group, here, targets)
                return targets, False
            return {queue_of(ref): at for ref, at in table.offset_table.items()}, True

        answers = await ask_all(by_broker, reset)
        answers.complete(f"reset the offsets of group {group!r}", topic=topic)
        after = {queue: at for found, _ in answers.values for queue, at in found.items()}
        return after, all(told for _, told in answers.values)

    async def _resets_itself(self, place: BrokerAddress) -> bool:
        settings = settings_in(await self._ask(place.address, RequestCode.GET_BROKER_CONFIG))
        return settings.get("useServerSideResetOffset", "false").lower() == "true"


def _target_ms(to: Target) -> int:
    """The time that stands for this target on the wire."""
    if isinstance(to, str):
        ends = {"first": 0, "last": _END_MS}
        if to not in ends:
            raise ConfigError(f"offsets cannot be reset to {to!r}; give a time, 'first' or 'last'")
        return ends[to]
    timestamp_ms = to_ms(to)
    if timestamp_ms < 0:
        raise ConfigError(f"time {timestamp_ms} ms is negative; for the end of the queues say 'last'")
    return timestamp_ms


def queues_in(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Every queue of a topic that this route has, sorted."""
    return sorted(
        MessageQueue(topic, queues.broker_name, queue_id)
        for queues in route.queue_datas
        for queue_id in range(queues.read_queue_nums)
    )


def _by_broker(queues: dict[MessageQueue, BrokerAddress]) -> dict[BrokerAddress, list[MessageQueue]]:
    found: dict[BrokerAddress, list[MessageQueue]] = {}
    for queue, place in queues.items():
        found.setdefault(place, []).append(queue)
    return found
