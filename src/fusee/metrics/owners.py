"""Who owns a queue: a broker does not decide that, consumers do among themselves, so they are asked.

They are asked when somebody looks, over the connections that they hold, all at once and for a short time; the answer
serves for a while. A consumer that does not answer leaves its queues without an owner, which is not the same as a
queue that nobody owns: how many did not answer is told beside.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from fusee.errors import FuseeError
from fusee.wire.bodies.stats import ConsumerRunningInfo
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.client import GetConsumerRunningInfo
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from fusee.broker.consumers import ConsumerTable, Member
    from fusee.clock import Clock

ASKED_MAX: Final = 256
TIMEOUT: Final = 1.0
_KEPT_SECONDS: Final = 15.0

Key = tuple[str, str, int]


class Owned(NamedTuple):
    """Client id by (group, topic, queue), and how many consumers did not tell."""

    owner_of: dict[Key, str]
    untold: int


class QueueOwners:
    """The owners of one broker's queues."""

    def __init__(self, broker_name: str, consumers: ConsumerTable, clock: Clock) -> None:
        self._broker_name = broker_name
        self._consumers = consumers
        self._clock = clock
        self._known = Owned({}, 0)
        self._known_at: float | None = None

    async def ask(self) -> Owned:
        """What is known, at most a few seconds old."""
        now = self._clock.monotonic()
        if self._known_at is not None and now - self._known_at < _KEPT_SECONDS:
            return self._known
        members = [
            (group.name, member)
            for group in self._consumers.all().values()
            if group.message_model == "CLUSTERING"
            for member in group.members.values()
        ]
        answers = await asyncio.gather(*(self._queues_of(group, member) for group, member in members[:ASKED_MAX]))
        owner_of: dict[Key, str] = {}
        for (group, member), queues in zip(members, answers, strict=False):
            for topic, queue_id in queues or ():
                owner_of[group, topic, queue_id] = member.client_id
        untold = sum(queues is None for queues in answers) + max(len(members) - ASKED_MAX, 0)
        self._known, self._known_at = Owned(owner_of, untold), now
        return self._known

    async def _queues_of(self, group: str, member: Member) -> list[tuple[str, int]] | None:
        header = GetConsumerRunningInfo(consumer_group=group, client_id=member.client_id)
        question = Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        try:
            answer = await member.link.request(question, TIMEOUT)
            if answer.code != ResponseCode.SUCCESS:
                return None
            info = decode_json(answer.body, ConsumerRunningInfo)
        except FuseeError:
            return None
        return [
            (queue.topic, queue.queue_id)
            for queue, process in info.queues.items()
            if queue.broker_name == self._broker_name and not process.dropped
        ]
