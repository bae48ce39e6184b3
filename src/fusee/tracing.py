"""Spans of OpenTelemetry for sends and consumption, by the hooks of the clients (extra `otel`).

    from fusee.tracing import OpenTelemetryHook

    hook = OpenTelemetryHook()
    async with mq.producer("shop", hooks=[hook]) as shop:
        ...
    async with mq.consumer("orders", group="billing", hooks=[hook]) as orders:
        ...

A send is a span of kind PRODUCER; its context travels in the message as the properties that the configured propagator
writes (`traceparent`, `tracestate`). A call of a listener is a span of kind CONSUMER; with one message it continues the
sender's trace, with several it links to each. Attributes have the names of OpenTelemetry's messaging conventions.

Without the extra, importing this module raises ConfigError that says what to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.errors import ConfigError

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
except ImportError as missing:  # the extra is not installed
    raise ConfigError("spans need the package opentelemetry-api: pip install 'fusee[otel]'") from missing

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from fusee.client.hooks import ConsumeContext, SendContext

_SYSTEM: Final = "rocketmq"
_SPAN: Final = "fusee.tracing.span"
_LINKS_MAX: Final = 128


class OpenTelemetryHook:
    """A hook for sends and for consumption; one may serve any number of connections."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Spans go to this provider; to the global one unless given."""
        self._tracer = trace.get_tracer("fusee", tracer_provider=tracer_provider)

    # SendHook

    def before_send(self, context: SendContext) -> None:
        span = self._tracer.start_span(
            f"send {context.topic}",
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": _SYSTEM,
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": context.topic,
                "messaging.rocketmq.client_group": context.group,
                "messaging.rocketmq.message.type": context.message_type.name.lower(),
                "messaging.destination.partition.id": str(context.queue.queue_id),
                "messaging.message.body.size": len(context.message.body),
                "server.address": context.broker_address,
            },
        )
        context.notes[_SPAN, id(self)] = span
        propagate.inject(context.added, context=trace.set_span_in_context(span))

    def after_send(self, context: SendContext) -> None:
        span = context.notes.pop((_SPAN, id(self)), None)
        if not isinstance(span, Span):
            return
        if context.result is not None:
            span.set_attribute("messaging.message.id", context.result.message_id)
        if context.error is not None:
            _fail(span, context.error)
        span.end()

    # ConsumeHook

    def before_consume(self, context: ConsumeContext) -> None:
        messages = context.messages
        parents = [
            propagate.extract({str(name): str(value) for name, value in message.properties.items()})
            for message in messages[:_LINKS_MAX]
        ]
        spans = [trace.get_current_span(parent).get_span_context() for parent in parents]
        is_single = len(messages) == 1
        span = self._tracer.start_span(
            f"process {context.queue.topic}",
            context=parents[0] if is_single else None,
            kind=SpanKind.CONSUMER,
            links=None if is_single else [Link(each) for each in spans if each.is_valid],
            attributes={
                "messaging.system": _SYSTEM,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": context.queue.topic,
                "messaging.consumer.group.name": context.group,
                "messaging.destination.partition.id": str(context.queue.queue_id),
                "messaging.batch.message_count": len(messages),
            },
        )
        if is_single:
            span.set_attribute("messaging.message.id", messages[0].message_id)
        context.notes[_SPAN, id(self)] = span

    def after_consume(self, context: ConsumeContext) -> None:
        span = context.notes.pop((_SPAN, id(self)), None)
        if not isinstance(span, Span):
            return
        span.set_attribute("messaging.rocketmq.consume.status", context.status)
        if not context.success:
            span.set_status(StatusCode.ERROR, context.return_type.name)
        span.end()


def _fail(span: Span, error: Exception) -> None:
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, str(error))
