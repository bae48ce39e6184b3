"""The life of a message: born, stored, delayed, delivered to whom, tried again, dead; as far as anybody knows.

Two sources tell it. The store knows where the message and its copies lie: a delayed message was put aside first, a try
is a copy in the group's retry topic, a dead letter one in its topic of dead letters, and all have the producer's unique
id. Traces know who sent and who consumed, and how long that took, where clients write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.admin.delays import DelayCalls, level_delays_ms
from fusee.admin.fan_out import failure_of
from fusee.admin.settings import settings_in
from fusee.admin.views import BrokerAddress, LifeEvent, MessageLife
from fusee.client.hooks import ConsumeReturn
from fusee.client.trace import TraceType
from fusee.errors import FuseeError, NotFoundError, TopicNotFoundError
from fusee.message import properties as names
from fusee.message.topics import SCHEDULE_TOPIC, TIMER_TOPIC, dlq_topic, retry_topic
from fusee.wire.codes import RequestCode

if TYPE_CHECKING:
    from fusee.admin.views import Failure
    from fusee.client.received import ReceivedMessage
    from fusee.client.trace import TraceRecord

# Where delayed messages wait.
_ASIDE: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)


class LifeCalls(DelayCalls):
    """What became of a message."""

    async def message_life(self, message: ReceivedMessage) -> MessageLife:
        """Everything that is known of a message, in order of time.

        What cannot be learnt, because a broker is away or nothing is traced, is missing, and `failures` say so.
        """
        failures: list[Failure] = []
        events = [LifeEvent(at_ms=message.born_timestamp_ms, what="born", where=message.born_host)]
        for topic in _ASIDE:
            for aside in await self._copies(topic, message.message_id, failures):
                events += [_stored(aside, "put aside"), *await self._due(aside, failures)]
        if message.queue.topic not in _ASIDE:
            events.append(_stored(message, "stored"))
        groups = () if message.queue.topic in _ASIDE else await self.message_status(message)
        for status in groups:
            for topic, what in ((retry_topic(status.group), "tried again"), (dlq_topic(status.group), "dead")):
                for copy in await self._copies(topic, message.message_id, failures):
                    times = copy.reconsume_times
                    tries = f"after {times} {'try' if times == 1 else 'tries'}" if times else ""
                    events.append(_stored(copy, what, group=status.group, details=tries))
        traced = await self._traced(message, failures)
        events += traced
        return MessageLife(
            message=message,
            events=tuple(sorted(events, key=lambda event: event.at_ms)),
            groups=groups,
            is_traced=bool(traced),
            failures=tuple(failures),
        )

    async def find_message(self, message_id: str, topic: str) -> ReceivedMessage:
        """The message with this id, in its topic or put aside until it is due. Raises NotFoundError."""
        try:
            return await self.message(message_id, topic)
        except NotFoundError:
            for place in _ASIDE:
                for message in await self._copies(place, message_id, []):
                    if message.properties.get(names.REAL_TOPIC) == topic:
                        return message
            raise

    # Within

    async def _copies(self, topic: str, message_id: str, failures: list[Failure]) -> tuple[ReceivedMessage, ...]:
        try:
            return await self.messages_by_unique_id(topic, message_id)
        except TopicNotFoundError:
            return ()
        except FuseeError as error:
            failures.append(failure_of(BrokerAddress(address=error.address, broker_name=topic), error))
            return ()

    async def _due(self, message: ReceivedMessage, failures: list[Failure]) -> list[LifeEvent]:
        """When a message that was put aside was to be delivered, or will be."""
        properties = message.properties
        due = properties.get(names.TIMER_OUT_MS) or properties.get(names.TIMER_DELIVER_MS, "")
        if due.isdigit():
            return [LifeEvent(at_ms=int(due), what="due", details="it was sent with a delivery time")]
        if not message.delay_level:
            return []
        try:
            place = await self._one_broker(message.broker_name)
            settings = settings_in(await self._ask(place.address, RequestCode.GET_BROKER_CONFIG))
        except FuseeError as error:
            failures.append(failure_of(BrokerAddress(address=error.address, broker_name=message.broker_name), error))
            return []
        delays = list(level_delays_ms(settings.get("messageDelayLevel", "")))
        if message.delay_level > len(delays):
            return []
        due_ms = message.store_timestamp_ms + delays[message.delay_level - 1]
        return [LifeEvent(at_ms=due_ms, what="due", details=f"delay level {message.delay_level}")]

    async def _traced(self, message: ReceivedMessage, failures: list[Failure]) -> list[LifeEvent]:
        try:
            records = await self.trace(message.message_id)
        except TopicNotFoundError:
            return []
        except FuseeError as error:
            failures.append(failure_of(BrokerAddress(address=error.address, broker_name="traces"), error))
            return []
        return [_traced_event(record) for record in records]


def _stored(message: ReceivedMessage, what: str, *, group: str = "", details: str = "") -> LifeEvent:
    place = f"{message.queue.topic} {message.broker_name}/{message.queue_id} at {message.queue_offset}"
    return LifeEvent(at_ms=message.store_timestamp_ms, what=what, where=place, group=group, details=details)


def _traced_event(record: TraceRecord) -> LifeEvent:
    ended = "" if record.success else "failed, "
    cost = f"{ended}{record.cost_ms} ms"
    what, details = {
        TraceType.PUB: ("sent", cost),
        TraceType.SUB_BEFORE: ("delivered", f"try {record.retry_times + 1}"),
        TraceType.SUB_AFTER: ("consumed" if record.success else "not consumed", f"{cost}{_returned(record)}"),
        TraceType.END_TRANSACTION: ("transaction ended", record.transaction_state.name.lower()),
        TraceType.RECALL: ("recalled", "" if record.success else "failed"),
    }[record.kind]
    return LifeEvent(
        at_ms=record.timestamp_ms,
        what=what,
        where=record.client_host,
        group=record.group,
        details=details,
        source="trace",
    )


def _returned(record: TraceRecord) -> str:
    if record.success:
        return ""
    try:
        return f", {ConsumeReturn(record.return_code).name.lower().replace('_', ' ')}"
    except ValueError:
        return f", return code {record.return_code}"
