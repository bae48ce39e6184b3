"""Dead letters: which groups have some, what they have in common, and giving them again without going in circles.

A replay goes through the dead letters queue by queue in the order in which they were stored, and tells the result of
each. It can be ended at any point: the state that the caller keeps says where it goes on. The state moves on when the
broker has taken a message, so a replay that dies between the two gives that one message twice, and loses none.

A message that was given again carries the property FUSEE_REPLAYS, which counts. It comes back to the dead letters with
it, and one that has been round too often is passed over: a message that kills its consumer would go in circles for
ever otherwise. What a broker refuses for good is told and passed over; when a broker is away, or busy beyond patience,
the replay ends there with its error.

RocketMQ keeps no reason with a dead letter. What can be told is which topic and tag it is of, and whether it was tried
as often as its group allows or given up by its consumer before; any property of the message can be asked for as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.admin.browse import QueueCursor, merged
from fusee.admin.fan_out import ask_all
from fusee.admin.redelivery import RedeliveryCalls, origin_topic
from fusee.admin.views import (
    BrokerAddress,
    DeadLetterCause,
    DeadLetterQueue,
    ReplayOutcome,
    ReplayResult,
    ReplayState,
)
from fusee.errors import ConfigError, FuseeError, GroupNotFoundError, NoPermissionError
from fusee.filter.subscription import parse_subscription
from fusee.message.topics import DLQ_PREFIX, dlq_topic, is_dlq_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import datetime

    from fusee.client.received import ReceivedMessage
    from fusee.message.model import MessageQueue

REPLAYS_PROPERTY: Final = "FUSEE_REPLAYS"
REPLAYS_MAX: Final = 3
CAUSE_NAMES: Final = ("topic", "tag", "why")

_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.2


class DeadLetterCalls(RedeliveryCalls):
    """What groups could not consume."""

    async def dead_letter_queues(self, *, cluster: str | None = None) -> tuple[DeadLetterQueue, ...]:
        """Every group that has dead letters, or had some, sorted."""
        topics = [topic for topic in await self.list_topics(cluster=cluster, retry=True) if is_dlq_topic(topic)]
        places = [BrokerAddress(broker_name=topic, address="") for topic in topics]
        answers = await ask_all(places, lambda place: self._dead_letter_queue(place.broker_name), at_once=8)
        failed = [
            DeadLetterQueue(group=failure.broker_name.removeprefix(DLQ_PREFIX), count=0, failures=(failure,))
            for failure in answers.failures
        ]
        return tuple(sorted([*answers.values, *failed], key=lambda each: each.group))

    async def dead_letter_causes(
        self,
        group: str,
        *,
        by: Sequence[str] = CAUSE_NAMES,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        limit: int = 10_000,
    ) -> tuple[DeadLetterCause, ...]:
        """The dead letters of a group by what they have in common, most first.

        `by` names what counts: `topic`, `tag`, `why`, `tries`, `host` (the producer's), or any property. Raises
        TopicNotFoundError when the group never had dead letters.
        """
        if not by:
            raise ConfigError("dead letters are grouped by nothing; name topic, tag, why, tries, host or a property")
        tries_max = await self._tries_max(group)
        counted: dict[tuple[str, ...], list[ReceivedMessage]] = {}
        async for letter in self._letters(group, ReplayState(group=group), begin, end, limit):
            counted.setdefault(tuple(_value(letter, name, tries_max) for name in by), []).append(letter)
        causes = [
            DeadLetterCause(
                values=dict(zip(by, values, strict=True)),
                count=len(letters),
                first_ms=letters[0].store_timestamp_ms,
                last_ms=letters[-1].store_timestamp_ms,
                sample=letters[0],
            )
            for values, letters in counted.items()
        ]
        return tuple(sorted(causes, key=lambda cause: -cause.count))

    async def replay_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        begin: datetime | int | None = None,
        end: datetime | int | None = None,
        choose: Callable[[ReceivedMessage], bool] | None = None,
        limit: int | None = None,
        rate: float | None = None,
        replays_max: int = REPLAYS_MAX,
        state: ReplayState | None = None,
        dry_run: bool = False,
    ) -> AsyncIterator[ReplayResult]:
        """Give dead letters to their group again, one after the other; the result of each.

        `begin` and `end` are the times at which they died, `choose` may pass over some, `rate` is messages a second.
        With `topic` they go there, where every group gets them, instead of to the group's retry topic: an orderly group
        does not read that. `state` moves on with each result. The dead letters stay where they are.

        Raises TopicNotFoundError when the group never had any, and what a broker said that did not take a letter in
        several tries.
        """
        if rate is not None and rate <= 0:
            raise ConfigError(f"a replay cannot go at {rate} messages a second; give a positive number")
        state = ReplayState(group=group) if state is None else state
        if state.group != group:
            raise ConfigError(f"this state is of a replay for group {state.group!r}, not {group!r}")
        given = 0
        async for letter in self._letters(group, state, begin, end, None):
            if limit is not None and given >= limit:
                return
            if choose is not None and not choose(letter):
                _move_on(state, letter, None)
                continue
            result = await self._replay(letter, group, topic, replays_max, dry_run=dry_run)
            _move_on(state, letter, result)
            if result.outcome in (ReplayOutcome.REPLAYED, ReplayOutcome.WOULD_REPLAY):
                given += 1
            yield result
            if rate is not None and result.outcome is ReplayOutcome.REPLAYED:
                await self._pause(1 / rate)

    # Within

    async def _dead_letter_queue(self, topic: str) -> DeadLetterQueue:
        stats = await self.topic_stats(topic)
        return DeadLetterQueue(
            group=topic.removeprefix(DLQ_PREFIX),
            count=stats.count,
            last_ms=max((queue.last_update_ms for queue in stats.queues if queue.count), default=0),
            failures=stats.failures,
        )

    async def _letters(
        self,
        group: str,
        state: ReplayState,
        begin: datetime | int | None,
        end: datetime | int | None,
        limit: int | None,
    ) -> AsyncIterator[ReceivedMessage]:
        from fusee.admin.reach import to_ms

        name = dlq_topic(group)
        places = await self._places_of_queues(name, None)
        calls = self._session.calls
        cursors: list[QueueCursor] = []
        for queue, place in sorted(places.items()):
            end_offset = await calls.max_offset(place.address, name, queue.queue_id)
            if begin is None:
                first = await calls.min_offset(place.address, name, queue.queue_id)
            else:
                first = await calls.search_offset(place.address, name, queue.queue_id, to_ms(begin))
            cursors.append(
                QueueCursor(
                    calls,
                    place.address,
                    queue,
                    start_offset=max(first, state.next_offsets.get(_key(queue), 0)),
                    end_offset=end_offset,
                    end_ms=None if end is None else to_ms(end),
                    subscription=parse_subscription(name, "*"),
                )
            )
        try:
            async for letter in merged(cursors, limit):
                yield letter
        except NoPermissionError as error:
            # Brokers of older releases make these topics for writing only.
            raise NoPermissionError(
                f"the dead letters of group {group!r} may not be read; allow it: fusee topic update '{name}' --perm rw",
                code=error.code,
                address=error.address,
                topic=name,
            ) from error

    async def _replay(
        self, letter: ReceivedMessage, group: str, topic: str | None, replays_max: int, *, dry_run: bool
    ) -> ReplayResult:
        def result(outcome: ReplayOutcome, **more: str) -> ReplayResult:
            return ReplayResult(
                queue=letter.queue,
                queue_offset=letter.queue_offset,
                message_id=letter.message_id,
                outcome=outcome,
                **more,
            )

        replays = replay_count(letter)
        if replays >= replays_max:
            return result(ReplayOutcome.LOOPED)
        if dry_run:
            return result(ReplayOutcome.WOULD_REPLAY)
        marks = {REPLAYS_PROPERTY: str(replays + 1)}
        pause = _FIRST_PAUSE
        for attempt in range(_TRIES):
            try:
                return result(
                    ReplayOutcome.REPLAYED, offset_id=await self.redeliver(letter, group, topic=topic, marks=marks)
                )
            except FuseeError as error:
                if not error.retryable:
                    return result(ReplayOutcome.REFUSED, cause=str(error))
                if attempt == _TRIES - 1:
                    raise
            await self._pause(pause)
            pause *= 2
        raise AssertionError("the last try returns or raises")

    async def _tries_max(self, group: str) -> int | None:
        try:
            return min(settings.retry_max_times for settings in await self.group_settings(group))
        except GroupNotFoundError:
            return None


def replay_count(letter: ReceivedMessage) -> int:
    """How often a message was given again from the dead letters."""
    text = letter.properties.get(REPLAYS_PROPERTY, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _value(letter: ReceivedMessage, name: str, tries_max: int | None) -> str:
    if name == "topic":
        return origin_topic(letter)
    if name == "tag":
        return letter.tag or ""
    if name == "tries":
        return str(letter.reconsume_times)
    if name == "host":
        return letter.born_host.rpartition(":")[0]
    if name == "why":
        times = letter.reconsume_times
        if tries_max is not None and times < tries_max:
            return f"given up by its consumer at try {max(times, 1)}"
        return f"failed at each of {times} tries"
    return letter.properties.get(name, "")


def _key(queue: MessageQueue) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"


def _move_on(state: ReplayState, letter: ReceivedMessage, result: ReplayResult | None) -> None:
    if result is not None:
        outcome = result.outcome.name.lower()
        state.counts[outcome] = state.counts.get(outcome, 0) + 1
        if result.outcome is ReplayOutcome.WOULD_REPLAY:
            return
    state.next_offsets[_key(letter.queue)] = letter.queue_offset + 1
