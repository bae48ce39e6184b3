"""What a session asks of the producers and consumers that share it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.message.model import MessageQueue, StoredMessage
    from fusee.wire.bodies.heartbeat import ConsumerData
    from fusee.wire.bodies.stats import ConsumeDirectlyResult, ConsumerRunningInfo
    from fusee.wire.headers.transaction import CheckTransactionState


class ProducerParty(Protocol):
    """A producer group of a session (Java: MQProducerInner)."""

    def published_topics(self) -> Iterable[str]:
        """Topics whose routes are to be kept fresh."""
        ...

    def check_transaction(self, address: str, header: CheckTransactionState, message: StoredMessage) -> None:
        """The broker at this address asks how the transaction of this half message ended."""
        ...


class ConsumerParty(Protocol):
    """A consumer group of a session (Java: MQConsumerInner)."""

    def heartbeat(self) -> ConsumerData:
        """What brokers are told of this consumer."""
        ...

    def subscribed_topics(self) -> Iterable[str]:
        """Topics whose routes are to be kept fresh."""
        ...

    def members_changed(self) -> None:
        """A member of the group came or went: divide the queues again soon."""
        ...

    def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """An operator moved the group: go on from these offsets."""
        ...

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """How far each queue of the topic is consumed, as far as this member knows."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """What an operator wants to see of this member."""
        ...

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult:
        """Consume this one message now and say how it went; it moves no offset."""
        ...

    async def persist_offsets(self) -> None:
        """Tell the brokers how far was consumed."""
        ...
