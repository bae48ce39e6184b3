"""Spans of OpenTelemetry: a send, and a consumption that continues its trace."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import fusee
from fusee.service import run
from fusee.tracing import OpenTelemetryHook


def test_a_consumption_continues_the_trace_of_its_send() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    hook = OpenTelemetryHook(provider)

    async def story() -> None:
        async with fusee.embedded(topics=["orders"]) as server, server.connect() as mq:
            async with mq.producer("shop", hooks=[hook]) as shop:
                sent = await shop.send("orders", b"order 1", properties={"region": "eu"})
            async with mq.consumer("orders", group="billing", consume_from="first", hooks=[hook]) as messages:
                async for message in messages:
                    assert message.properties["region"] == "eu"
                    assert message.message_id == sent.message_id
                    break

    run(story())
    send, process = exporter.get_finished_spans()
    assert (send.name, send.kind) == ("send orders", SpanKind.PRODUCER)
    assert (process.name, process.kind) == ("process orders", SpanKind.CONSUMER)
    assert send.attributes is not None
    assert process.attributes is not None
    assert send.attributes["messaging.system"] == "rocketmq"
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert process.attributes["messaging.message.id"] == send.attributes["messaging.message.id"]
    assert process.context.trace_id == send.context.trace_id
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id


def test_a_send_that_fails_is_an_error_with_its_cause() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def story() -> None:
        async with (
            fusee.embedded(topics=["orders"]) as server,
            server.connect() as mq,
            mq.producer("shop", hooks=[OpenTelemetryHook(provider)]) as shop,
        ):
            await shop.send("orders", b"fine")
            await server.stop_broker()
            with pytest.raises(fusee.errors.FuseeError):
                await shop.send("orders", b"refused", timeout_ms=3_000)

    run(story())
    last = exporter.get_finished_spans()[-1]
    assert last.status.status_code is StatusCode.ERROR
    assert last.events[0].name == "exception"
