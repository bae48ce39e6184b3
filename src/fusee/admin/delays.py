"""Delayed messages that wait: how many in each level, which, and when they are due.

A message with a delay level waits in SCHEDULE_TOPIC_XXXX, queue level - 1; brokers tell how far each level is delivered
(code 45). A message with a delivery time of its own waits on the timer wheel, of which brokers tell how many wait for
each topic (code 61); the messages themselves lie in rmq_sys_wheel_timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.admin.fan_out import ask_all
from fusee.admin.messages import MessageCalls
from fusee.admin.settings import settings_in
from fusee.admin.views import DelayLevel, DelayView, WaitingMessage
from fusee.errors import FuseeError, NotSupportedError, RemoteFailureError
from fusee.message import properties as names
from fusee.message.model import MessageQueue
from fusee.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from fusee.wire.bodies.offsets import DelayOffsetTable
from fusee.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.admin.views import BrokerAddress, Failure
    from fusee.client.received import ReceivedMessage

WAITING_MAX: Final = 1_000

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIMER_QUEUE: Final = 0
# The timer topic keeps what was delivered, too, until it expires; only its newest part is looked through.
_TIMED_SCANNED_MAX: Final = 20_000


class _Metric(msgspec.Struct, rename="camel"):
    count: int = 0


class _TimerMetrics(msgspec.Struct, rename="camel"):
    """Answer to code 61 (Java: TimerMetricsSerializeWrapper)."""

    timing_count: dict[str, _Metric] = {}


class DelayCalls(MessageCalls):
    """Messages that wait."""

    async def delays(self, *, cluster: str | None = None, broker: str | None = None) -> DelayView:
        """How many messages wait in each delay level of each broker, and when the next of each is due."""
        answers = await ask_all(await self.brokers(cluster=cluster, broker=broker), self._delays_at)
        answers.some("tell what is delayed")
        timed: dict[str, int] = {}
        for _, counts in answers.values:
            for topic, count in counts.items():
                timed[topic] = timed.get(topic, 0) + count
        return DelayView(
            levels=tuple(level for levels, _ in answers.values for level in levels),
            timed=dict(sorted(timed.items())),
            failures=answers.failures,
        )

    async def waiting_messages(
        self,
        *,
        level: int | None = None,
        topic: str | None = None,
        limit: int = WAITING_MAX,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[tuple[WaitingMessage, ...], tuple[Failure, ...]]:
        """The messages that wait, in the order in which they are due: of one level, for one topic, or all.

        Also who did not tell. `level` 0 means those with a delivery time of their own.
        """
        brokers = await self.brokers(cluster=cluster, broker=broker)
        answers = await ask_all(brokers, lambda place: self._waiting_at(place, level, topic, limit))
        answers.some("tell what waits")
        found = sorted((each for waiting in answers.values for each in waiting), key=lambda each: each.due_ms)
        return tuple(found[:limit]), answers.failures

    # Within

    async def _delays_at(self, place: BrokerAddress) -> tuple[list[DelayLevel], dict[str, int]]:
        found: list[DelayLevel] = []
        for level, delay_ms, first, end in await self._level_bounds(place):
            next_due_ms: int | None = None
            if first < end:
                queue = MessageQueue(SCHEDULE_TOPIC, place.broker_name, level - 1)
                message = await self._cursor(place, queue, first, end).next()
                next_due_ms = None if message is None else message.store_timestamp_ms + delay_ms
            found.append(
                DelayLevel(
                    broker_name=place.broker_name,
                    level=level,
                    delay_ms=delay_ms,
                    waiting=max(end - first, 0),
                    next_due_ms=next_due_ms,
                )
            )
        return found, await self._timed_counts(place)

    async def _waiting_at(
        self, place: BrokerAddress, level: int | None, topic: str | None, limit: int
    ) -> list[WaitingMessage]:
        found: list[WaitingMessage] = []
        for number, delay_ms, first, end in await self._level_bounds(place):
            if level not in (None, number) or first >= end:
                continue
            queue = MessageQueue(SCHEDULE_TOPIC, place.broker_name, number - 1)
            cursor = self._cursor(place, queue, first, end)
            taken = 0
            while taken < limit and (message := await cursor.next()) is not None:
                if topic in (None, _real_topic(message)):
                    due_ms = message.store_timestamp_ms + delay_ms
                    found.append(
                        WaitingMessage(message=message, topic=_real_topic(message), due_ms=due_ms, level=number)
                    )
                    taken += 1
        if level in (None, 0):
            found += await self._timed_at(place, topic)
        return found

    async def _level_bounds(self, place: BrokerAddress) -> list[tuple[int, int, int, int]]:
        """Level, its delay, the first offset that is not delivered, and the end of the queue."""
        settings = settings_in(await self._ask(place.address, RequestCode.GET_BROKER_CONFIG))
        table = await self._ask_json(place.address, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable)
        calls = self._session.calls
        found: list[tuple[int, int, int, int]] = []
        for level, delay_ms in enumerate(level_delays_ms(settings.get("messageDelayLevel", "")), 1):
            end = await calls.max_offset(place.address, SCHEDULE_TOPIC, level - 1)
            first = await calls.min_offset(place.address, SCHEDULE_TOPIC, level - 1) if end else 0
            found.append((level, delay_ms, min(max(table.offset_table.get(level, 0), first), end), end))
        return found

    async def _timed_counts(self, place: BrokerAddress) -> dict[str, int]:
        try:
            metrics = await self._ask_json(place.address, RequestCode.GET_TIMER_METRICS, _TimerMetrics)
        except (NotSupportedError, RemoteFailureError):
            return {}  # no timer wheel there
        return {topic: metric.count for topic, metric in metrics.timing_count.items() if metric.count > 0}

    async def _timed_at(self, place: BrokerAddress, topic: str | None) -> list[WaitingMessage]:
        calls = self._session.calls
        try:
            end = await calls.max_offset(place.address, TIMER_TOPIC, _TIMER_QUEUE)
            first = await calls.min_offset(place.address, TIMER_TOPIC, _TIMER_QUEUE) if end else 0
        except FuseeError:
            return []
        queue = MessageQueue(TIMER_TOPIC, place.broker_name, _TIMER_QUEUE)
        cursor = self._cursor(place, queue, max(first, end - _TIMED_SCANNED_MAX), end)
        now_ms = self._session.clock.time_ms()
        found: dict[str, WaitingMessage] = {}
        while (message := await cursor.next()) is not None:
            due = message.properties.get(names.TIMER_OUT_MS, "")
            if names.TIMER_DEL_UNIQKEY in message.properties:
                found.pop(message.properties[names.TIMER_DEL_UNIQKEY].rpartition("_")[2], None)
            elif due.isdigit() and int(due) > now_ms and topic in (None, _real_topic(message)):
                found[message.message_id] = WaitingMessage(message=message, topic=_real_topic(message), due_ms=int(due))
        return list(found.values())


def level_delays_ms(text: str) -> Iterable[int]:
    """The delays in a broker's setting messageDelayLevel, `1s 5s 10s 30s 1m ...`, in order."""
    for item in text.split():
        if item[:-1].isdigit() and item[-1] in _UNITS_MS:
            yield int(item[:-1]) * _UNITS_MS[item[-1]]


def _real_topic(message: ReceivedMessage) -> str:
    return message.properties.get(names.REAL_TOPIC, message.queue.topic)
