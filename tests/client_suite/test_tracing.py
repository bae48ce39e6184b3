"""Traces: who sent and who consumed a message."""

from __future__ import annotations

from fusee.client.trace import TraceType
from tests.client_suite.inbox import Inbox
from tests.client_suite.stage import Stage, scene


@scene
async def test_trace_when_enabled_tells_who_sent_and_who_consumed(stage: Stage) -> None:
    topic, group = await stage.topic(), stage.group()
    traced = await stage.connect(instance_name=stage.name("traced"), enable_trace=True)
    inbox = Inbox(fails=lambda message: message.reconsume_times == 0)
    sent = await traced.send(topic, b"hello", tag="t", key="k")
    async with traced.consumer(topic, group=group, consume_from="first", listener=inbox.take):
        await inbox.until("it comes again", lambda: len(inbox.messages) == 2)

    async def is_told() -> bool:
        kinds = [record.kind for record in await stage.admin.trace(sent.message_id)]
        return kinds.count(TraceType.PUB) >= 1 and kinds.count(TraceType.SUB_AFTER) >= 2

    await stage.eventually("the traces are stored", is_told)
    records = await stage.admin.trace(sent.message_id)
    [published] = [record for record in records if record.kind is TraceType.PUB]
    assert (published.topic, published.tags, published.keys) == (topic, "t", "k")
    assert (published.offset_id, published.body_size, published.success) == (sent.offset_id, 5, True)
    before = [record for record in records if record.kind is TraceType.SUB_BEFORE]
    after = [record for record in records if record.kind is TraceType.SUB_AFTER]
    assert {record.group for record in before} == {group}
    assert sorted(record.retry_times for record in before) == [0, 1]
    assert sorted(record.success for record in after) == [False, True]
