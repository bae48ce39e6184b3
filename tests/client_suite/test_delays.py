"""Messages that are delivered later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fusee.errors import MessageError, SendFailedError
from tests.client_suite.inbox import Inbox
from tests.client_suite.stage import DELAYS_S, Stage, scene

# Most that a delivery may come after its time, on a machine that is busy.
LATENESS_MAX_MS = 5_000


@pytest.mark.quick
@scene
async def test_delay_level_when_given_delivers_after_its_time(stage: Stage) -> None:
    topic = await stage.topic()
    inbox = Inbox()
    await stage.mq.send(topic, b"level 2", delay_level=2)
    await stage.mq.send(topic, b"level 1", delay_level=1, tag="late", key="k", properties={"p": "v"})
    await stage.mq.send(topic, b"at once")
    async with stage.mq.consumer(topic, group=stage.group(), consume_from="first", listener=inbox.take):
        await inbox.holds([b"at once", b"level 1", b"level 2"])
    assert sorted(inbox.bodies) == [b"at once", b"level 1", b"level 2"]
    for body, delay_s in ((b"at once", 0), (b"level 1", DELAYS_S[0]), (b"level 2", DELAYS_S[1])):
        [message] = inbox.of(body)
        late_ms = message.store_timestamp_ms - message.born_timestamp_ms - delay_s * 1000
        assert 0 <= late_ms <= LATENESS_MAX_MS, body
    [message] = inbox.of(b"level 1")
    assert (message.topic, message.tag, message.keys, message.properties["p"]) == (topic, "late", ("k",), "v")


@scene
async def test_deliver_in_when_given_delivers_after_so_many_seconds(stage: Stage) -> None:
    topic = await stage.topic()
    if not stage.has_timer_wheel:
        with pytest.raises(SendFailedError, match="timerWheelEnable"):
            await stage.mq.send(topic, b"seconds", deliver_in=1.5)
        return
    inbox = Inbox()
    await stage.mq.send(topic, b"seconds", deliver_in=1.5)
    await stage.mq.send(topic, b"timedelta", deliver_in=timedelta(seconds=2))
    await stage.mq.send(topic, b"datetime", deliver_at=stage.now() + timedelta(seconds=2))
    async with stage.mq.consumer(topic, group=stage.group(), consume_from="first", listener=inbox.take):
        await inbox.holds([b"seconds", b"timedelta", b"datetime"])
    for body, delay_s in ((b"seconds", 1.5), (b"timedelta", 2), (b"datetime", 2)):
        [message] = inbox.of(body)
        # The wheel turns once a second.
        late_ms = message.store_timestamp_ms - message.born_timestamp_ms - delay_s * 1000
        assert -1_000 <= late_ms <= LATENESS_MAX_MS, body


@scene
async def test_delay_when_two_ways_contradict_is_refused(stage: Stage) -> None:
    topic = await stage.topic()
    with pytest.raises(MessageError, match="only one"):
        await stage.mq.send(topic, b"x", delay_level=1, deliver_in=3)
