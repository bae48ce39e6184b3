"""Who looks on while messages are sent: hooks, and the record of slow and failing brokers.

A producer that nobody watches does not come here. Every try of a send is told to the hooks before and after; its time,
or its failure, is what a broker is judged by. With detection on, brokers that could not be reached are asked every few
seconds whether they are back (Java: the detector of LatencyFaultTolerance).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from fusee.client.hooks import MessageType, SendContext, SendHook, after_send, before_send
from fusee.errors import FuseeError, TransportError
from fusee.service import Periodic
from fusee.wire.codes import RequestCode
from fusee.wire.headers.offset import GetMaxOffset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fusee.client.latency import LatencyFaults
    from fusee.client.outgoing import Outgoing
    from fusee.client.outlet import Lane
    from fusee.client.results import SendResult
    from fusee.client.session import Session

_DETECT_EVERY: Final = 3.0
_DETECT_TIMEOUT_MS: Final = 200


class Published(Protocol):
    """What is sent where."""

    def published_topics(self) -> list[str]: ...

    def broker_names(self) -> list[str]: ...


class SendWatch:
    """Those who look on at one producer."""

    def __init__(
        self,
        session: Session,
        *,
        group: str,
        hooks: Iterable[SendHook] = (),
        faults: LatencyFaults | None = None,
        detects: bool = False,
    ) -> None:
        """With `faults` brokers are judged; `detects` asks those that cannot be reached whether they are back."""
        self._session = session
        self._group = group
        self._monotonic = session.clock.monotonic
        self._published: Published | None = None
        self._detector = Periodic(session.timers, _DETECT_EVERY, self._detect) if detects else None
        self.hooks = list(hooks)
        self.faults = faults

    @property
    def is_on(self) -> bool:
        """Whether anybody looks on."""
        return bool(self.hooks) or self.faults is not None

    def start(self, published: Published) -> None:
        """Begin to look for brokers that are back."""
        self._published = published
        if self._detector is not None:
            self._detector.start()

    def stop(self) -> None:
        """End it."""
        if self._detector is not None:
            self._detector.stop()

    def before_try(self, out: Outgoing, lane: Lane) -> None:
        """A send is about to leave for this queue."""
        out.started = self._monotonic()
        message = out.message
        if not self.hooks or message is None:
            return
        kind = MessageType.NORMAL
        if message.is_transactional:
            kind = MessageType.HALF
        elif message.is_delayed:
            kind = MessageType.DELAY
        out.context = SendContext(
            self._group,
            message.topic,
            message,
            lane.queue,
            lane.outlet.address,
            out.communication,
            kind,
            self._session.clock.time_ms(),
        )
        before_send(self.hooks, out.context)
        if out.context.added:
            out.let_travel(out.context.added)

    def after_try(self, out: Outgoing, result: SendResult | None, error: Exception | None) -> None:
        """It was answered, or it failed."""
        now = self._monotonic()
        cost_ms = (now - out.started) * 1000
        if self.faults is not None and out.lane is not None and out.communication != "oneway":
            was_refused = error is not None and not isinstance(error, TransportError)
            self.faults.update(
                out.lane.broker_name,
                cost_ms,
                now,
                failed=error is not None,
                reachable=error is None or not (was_refused or self._detector is not None),
            )
        context, out.context = out.context, None
        if context is not None:
            context.cost_ms = round(cost_ms)
            context.result = result
            context.error = error
            after_send(self.hooks, context)

    def _detect(self) -> None:
        if self.faults is None or self._published is None:
            return
        self.faults.keep_only(self._published.broker_names())
        topics = self._published.published_topics()
        for broker_name in self.faults.due_for_check(self._monotonic()):
            address = self._session.master_address(broker_name)
            if address is not None and topics:
                self._session.spawn(self._check(self.faults, broker_name, address, topics[0]))

    async def _check(self, faults: LatencyFaults, broker_name: str, address: str, topic: str) -> None:
        try:
            await self._session.calls.request(
                address,
                RequestCode.GET_MAX_OFFSET,
                GetMaxOffset(topic=topic, queue_id=0),
                timeout_ms=_DETECT_TIMEOUT_MS,
            )
        except FuseeError:
            return  # asked again in a while
        faults.found_reachable(broker_name)
