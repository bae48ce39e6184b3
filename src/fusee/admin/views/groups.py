"""Consumer groups and clients as people see them."""

from __future__ import annotations

import msgspec

from fusee.admin.views.servers import Failure
from fusee.message.model import MessageQueue


class ExponentialRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Waits between tries that grow by a factor up to a limit."""

    initial_ms: int = 5_000
    max_ms: int = 7_200_000
    multiplier: int = 2


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group as one broker has it configured."""

    group: str
    broker_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    retry_delays_ms: tuple[int, ...] = ()
    """The waits between tries where the group has its own; empty for the broker's delay levels."""
    retry_backoff: ExponentialRetry | None = None
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_timeout_minutes: int = 15
    sys_flag: int = 0
    attributes: dict[str, str] = {}


class SubscriptionView(msgspec.Struct, frozen=True, kw_only=True):
    """What a group wants of a topic: tags joined by `||` or `*`, or an SQL92 expression."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    version_ms: int = 0


class ClientView(msgspec.Struct, frozen=True, kw_only=True):
    """One connected client. `version` is the number of its release, e.g. 513 for 5.5.0."""

    client_id: str
    address: str
    language: str
    version: int
    brokers: tuple[str, ...] = ()
    """Names of the brokers it is connected to, of those asked."""


class ConsumerGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a consumer group that are online, and what they want."""

    group: str
    clients: tuple[ClientView, ...]
    subscriptions: tuple[SubscriptionView, ...]
    consume_type: str
    message_model: str
    consume_from: str
    failures: tuple[Failure, ...] = ()

    @property
    def is_pull(self) -> bool:
        return self.consume_type == "CONSUME_ACTIVELY"

    @property
    def is_broadcast(self) -> bool:
        return self.message_model == "BROADCASTING"


class ProducerView(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a producer group."""

    group: str
    client_id: str
    address: str
    language: str
    version: int
    last_update_ms: int = 0
    brokers: tuple[str, ...] = ()


class ProducersView(msgspec.Struct, frozen=True, kw_only=True):
    """Producers that are online."""

    producers: tuple[ProducerView, ...]
    failures: tuple[Failure, ...] = ()


class OwnedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as the consumer that owns it sees it."""

    queue: MessageQueue
    committed_offset: int
    cached_count: int
    cached_mib: int
    cached_min_offset: int
    cached_max_offset: int
    is_locked: bool
    is_dropped: bool
    last_pull_ms: int
    last_consume_ms: int


class PoppedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue as a consumer that pops sees it."""

    queue: MessageQueue
    waiting_acks: int
    is_dropped: bool
    last_pop_ms: int


class TopicRates(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of one topic in one consumer."""

    topic: str
    pull_rt_ms: float
    pull_tps: float
    consume_rt_ms: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_failed_messages: int


class ConsumerView(msgspec.Struct, frozen=True, kw_only=True):
    """What one consumer does: its queues, its rates, its subscriptions (Java: ConsumerRunningInfo)."""

    group: str
    client_id: str
    properties: dict[str, str]
    subscriptions: tuple[SubscriptionView, ...]
    queues: tuple[OwnedQueue, ...]
    popped: tuple[PoppedQueue, ...]
    rates: tuple[TopicRates, ...]
    stack: str | None = None


class ConsumersView(msgspec.Struct, frozen=True, kw_only=True):
    """What every member of a group does; members that did not tell are among the failures."""

    consumers: tuple[ConsumerView, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def owners(self) -> dict[MessageQueue, str]:
        """Client id by queue."""
        return {
            owned.queue: consumer.client_id
            for consumer in self.consumers
            for owned in consumer.queues
            if not owned.is_dropped
        }
