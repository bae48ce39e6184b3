"""Every member of a group gets every message, and keeps its own offsets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import fusee
from fusee.client.consumer.offsets import LocalOffsets
from tests.client_suite.inbox import Inbox, bodies
from tests.client_suite.stage import Stage, scene


@scene
async def test_broadcast_when_two_listen_both_get_all_and_nothing_is_committed(stage: Stage, tmp_path: Path) -> None:
    topic, group = await stage.topic(), stage.group()
    connections = [await stage.connect(instance_name=stage.name("member")) for _ in range(2)]
    inboxes = [Inbox(), Inbox()]
    consumers = [
        connection.consumer(
            topic,
            group=group,
            broadcast=True,
            consume_from="first",
            listener=inbox.take,
            offsets=LocalOffsets(tmp_path / f"{number}.json"),
        )
        for number, (connection, inbox) in enumerate(zip(connections, inboxes, strict=True))
    ]
    async with consumers[0], consumers[1]:
        for body in bodies(20):
            await stage.mq.send(topic, body)
        for inbox in inboxes:
            await inbox.holds(bodies(20))
    for inbox in inboxes:
        assert Counter(inbox.bodies) == Counter(bodies(20))


@scene
async def test_broadcast_when_started_again_goes_on_where_it_was(stage: Stage, tmp_path: Path) -> None:
    topic, group = await stage.topic(), stage.group()

    def member(inbox: Inbox) -> fusee.Consumer:
        return stage.mq.consumer(
            topic,
            group=group,
            broadcast=True,
            consume_from="first",
            listener=inbox.take,
            offsets=LocalOffsets(tmp_path / "offsets.json"),
        )

    first, second = Inbox(), Inbox()
    for body in bodies(12, "old"):
        await stage.mq.send(topic, body)
    async with member(first):
        await first.holds(bodies(12, "old"))
    for body in bodies(12, "new"):
        await stage.mq.send(topic, body)
    async with member(second):
        await second.holds(bodies(12, "new"))
    assert Counter(second.bodies) == Counter(bodies(12, "new"))


@scene
async def test_broadcast_when_listener_fails_is_not_tried_again(stage: Stage, tmp_path: Path) -> None:
    topic, group = await stage.topic(queues=1), stage.group()
    inbox = Inbox(fails=lambda message: message.body == b"bad")
    async with stage.mq.consumer(
        topic,
        group=group,
        broadcast=True,
        consume_from="first",
        listener=inbox.take,
        offsets=LocalOffsets(tmp_path / "offsets.json"),
    ):
        await stage.mq.send(topic, b"bad")
        await stage.mq.send(topic, b"good")
        await inbox.holds([b"good"])
    assert Counter(inbox.bodies) == Counter([b"bad", b"good"])
