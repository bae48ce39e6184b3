"""Groups with members of both languages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import fusee
from fusee.client.consumer.assignment import strategy as strategy_named
from tests.interop.clients.stage import drafts
from tests.interop.harness.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.clients.programs import Draft, Fields
    from tests.interop.clients.stage import Stage
    from tests.interop.python_client.programs import Member, PeerProducer


def await_divided(stage: Stage, group: str, topic: str, members: Sequence[Member], *, strategy: str) -> None:
    """Wait until each member owns exactly what the strategy gives to its client id, in the words of the member."""

    def are_divided() -> bool:
        ids, queues = asyncio.run(_look(stage.name_servers, group, topic))
        if len(ids) != len(members):
            return False
        for member in members:
            [client_id] = [each for each in ids if each.partition("@")[2].split("@")[0] == member.name]
            share = strategy_named(strategy).allocate(group, client_id, queues, ids)
            if member.queue_ids(topic) != {queue.queue_id for queue in share}:
                return False
        return True

    eventually(f"{len(members)} members of both languages divide {topic}", are_divided)
    shares = [member.queue_ids(topic) for member in members]
    assert sum(map(len, shares)) == len(set().union(*shares))


async def _look(name_servers: str, group: str, topic: str) -> tuple[list[str], list[fusee.MessageQueue]]:
    """The ids of a group's members and the queues of a topic, both sorted."""
    async with fusee.connect(name_servers, instance_name="onlooker") as mq:
        try:
            view = await mq.admin.consumers(group)
        except fusee.FuseeError:
            return [], []
        route = await mq.admin.topic_route(topic)
        queues = [
            fusee.MessageQueue(topic, each.broker_name, queue_id)
            for each in route.groups
            for queue_id in range(each.read_queues)
        ]
        return sorted(client.client_id for client in view.clients), sorted(queues)


class Flow:
    """Messages that keep coming while the members of a group come and go."""

    def __init__(self, producer: PeerProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._rounds = 0
        self.sent: list[Draft] = []

    def go_on(self, count: int = 40) -> None:
        """Send some more."""
        messages = drafts(self._topic, count, f"round-{self._rounds}")
        self._rounds += 1
        results = self._producer.send(messages)
        assert all(result["status"] == "SEND_OK" for result in results)
        self.sent += messages

    def await_consumed(self, members: Sequence[Member], *, timeout_s: float = 60.0) -> None:
        """Wait until every message was given to one of these members, living or dead."""
        wanted = {draft.keys for draft in self.sent}
        eventually(
            "nothing is lost",
            lambda: wanted <= set().union(*(member.keys() for member in members)),
            timeout_s=timeout_s,
        )

    def delivered(self, members: Sequence[Member]) -> list[Fields]:
        """What living members were given, each message as it was sent."""
        found = [message for member in members for message in member.poll()]
        bodies = {draft.keys: draft.body for draft in self.sent}
        assert all(message["body"] == bodies[message["keys"]] for message in found)
        return found
