"""How sends get to brokers: a place among those under way, a route, a queue, a connection, and another try.

A send that finds its route known, its connection open and fewer than the permitted number under way is written at once,
without a task. Otherwise it waits, in order, for a place, for the route or for the connection; one task serves all who
wait for the same thing.

What happens when a try fails, as in Java: a network error, or one of the codes that another broker may not give, leads
to a try on another broker, at most `retries` times and while time is left. Unlike Java, a try on the very broker that
just failed waits a moment first, and a send whose queue is fixed is tried again on that queue. A broker without an open
connection is passed over, while the connection is made, for one that has one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fusee.client.config import ServiceState
from fusee.client.in_order import InOrder
from fusee.client.outgoing import Outgoing, WaitingRoom
from fusee.client.outlet import Lane, Outlet
from fusee.client.publication import Publication
from fusee.client.results import STATUS_OF_CODE, SendStatus
from fusee.errors import (
    ClientStateError,
    ConnectError,
    ConnectionLostError,
    FieldError,
    FuseeError,
    ProtocolError,
    RemoteError,
    SendFailedError,
    TooManyRequestsError,
    TransportError,
)
from fusee.message.topics import validate_send_topic
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command

if TYPE_CHECKING:
    from collections.abc import Hashable

    from fusee.client.hooks import SendHook
    from fusee.client.routes import TopicRoute
    from fusee.client.send_watch import SendWatch
    from fusee.client.session import Session
    from fusee.message.model import MessageQueue

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION, ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY,
    }
)  # fmt: skip
"""Answers after which another broker is tried."""

WAITING_MAX: Final = 1 << 18
"""Sends that may wait for a place; further ones fail at once."""

_PUBLICATIONS_MAX: Final = 4096
_DOUBT_INTERVAL: Final = 5.0
# Before the broker that just failed is asked again: it needs time to recover, the sender has little.
_SAME_BROKER_PAUSE: Final = 0.1


class Dispatch:
    """The sends of one producer."""

    def __init__(
        self,
        session: Session,
        *,
        group: str,
        create_topic_key: str,
        queue_nums: int,
        in_flight_max: int,
        bytes_max: int,
        try_timeout: float,
        retries_if_unsafe: bool,
        watch: SendWatch,
    ) -> None:
        """`try_timeout` bounds a try after which there may be another, in seconds, 0 for no such bound.

        With `retries_if_unsafe` an answer that the message is stored, but not as safely as it should be, counts as a
        failure.
        """
        self._session = session
        self._group = group
        self._create_topic_key = create_topic_key
        self._queue_nums = queue_nums
        self._in_flight_max = in_flight_max
        self._bytes_max = bytes_max
        self._try_timeout = try_timeout
        self._retries_if_unsafe = retries_if_unsafe
        self._watch = watch
        self._clock = session.clock
        self._timers = session.timers
        self._monotonic = session.clock.monotonic
        self.publications: dict[str, Publication] = {}
        self._outlets: dict[str, Outlet] = {}
        self._room = WaitingRoom(
            f"a place among the {in_flight_max} that may be under way; await some of them, or raise "
            "back_pressure_for_async_send_num or back_pressure_for_async_send_size",
            clock=session.clock,
            timers=session.timers,
            error=TooManyRequestsError,
        )
        self.in_order = InOrder(self.begin, self._check_idle, clock=session.clock, timers=session.timers)
        self.in_flight = 0
        self._bytes = 0
        self._is_admitting = False
        self._idle: asyncio.Future[None] | None = None
        self.is_watching = watch.is_on

    def start(self) -> None:
        """Follow the routes of the session."""
        self._session.route_listeners.append(self._route_changed)
        self._watch.start(self)
        self.is_watching = self._watch.is_on

    def add_hook(self, hook: SendHook) -> None:
        """Have this hook told of every try from now on."""
        self._watch.hooks.append(hook)
        self.is_watching = True

    async def close(self) -> None:
        """Wait for what is under way, each send within its time-out, and let go of everything."""
        try:
            while self.in_flight or self._room.sends or self.in_order:
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
        finally:
            self._watch.stop()
            for publication in self.publications.values():
                publication.close()
            for outlet in self._outlets.values():
                outlet.close()
            self._room.close()
            self._session.route_listeners.remove(self._route_changed)

    # Topics and brokers

    def publication(self, topic: str) -> Publication:
        """What is known of this topic. Raises MessageError when nobody may send to it."""
        publication = self.publications.get(topic)
        if publication is None:
            validate_send_topic(topic)
            if len(self.publications) >= _PUBLICATIONS_MAX:
                idle = next((name for name, each in self.publications.items() if not each.waiting.sends), None)
                if idle is not None:
                    del self.publications[idle]
            publication = self.publications[topic] = Publication(
                topic,
                self._lane,
                start=self._session.random.getrandbits(16),
                clock=self._clock,
                timers=self._timers,
            )
            route = self._session.cached_route(topic)
            if route is not None:
                publication.adopt(route)
        return publication

    async def route(self, topic: str) -> TopicRoute:
        """The route of this topic. Raises TopicNotFoundError, ConnectError."""
        return await self._session.publish_route(topic, default_queue_nums=self._queue_nums)

    def outlet(self, broker_name: str) -> Outlet:
        """The way to this broker group."""
        outlet = self._outlets.get(broker_name)
        if outlet is None:
            outlet = self._outlets[broker_name] = Outlet(self._session, broker_name)
        return outlet

    def _lane(self, queue: MessageQueue) -> Lane:
        return Lane(
            queue,
            self.outlet(queue.broker_name),
            group=self._group,
            default_topic=self._create_topic_key,
            default_topic_queue_nums=self._queue_nums,
        )

    def _route_changed(self, topic: str) -> None:
        publication = self.publications.get(topic)
        route = self._session.cached_route(topic)
        if publication is not None and route is not None:
            publication.adopt(route)
        for name, outlet in list(self._outlets.items()):
            if name in self._session.routes.brokers:
                outlet.follow_route()
            elif outlet.is_idle:
                del self._outlets[name]

    # A place among the sends under way

    def begin(self, out: Outgoing) -> None:
        """Send this as soon as there is a place for it."""
        in_flight = self.in_flight
        size = self._bytes + len(out.body)
        if self._room.sends or in_flight >= self._in_flight_max or (size > self._bytes_max and in_flight):
            out.is_admitted = False
            if len(self._room.sends) >= WAITING_MAX:
                self._refuse_to_wait(out)
                return
            self._room.add(out)
            return
        out.is_admitted = True
        self.in_flight = in_flight + 1
        self._bytes = size
        publication = out.publication
        if publication.lanes and out.choose is None and not self.is_watching and not self._try_timeout:
            lane = publication.next_lane()
            try:
                if not lane.outlet.transmit(out, lane):
                    self._detour(out, lane)
            except TransportError as error:
                self.try_failed(out, error)
            return
        self._dispatch(out)

    def begin_in_order(self, out: Outgoing, key: Hashable) -> None:
        """The same, but after every earlier send of this topic and key is over."""
        if self.in_order.waiting >= WAITING_MAX:
            out.is_admitted = False
            self._refuse_to_wait(out)
        else:
            self.in_order.add(out, (out.publication.topic, key))

    def _refuse_to_wait(self, out: Outgoing) -> None:
        text = f"{WAITING_MAX} sends wait already behind {self.in_flight} under way; await some before sending more"
        self._fail(out, TooManyRequestsError(text, topic=out.publication.topic))

    def finished(self, out: Outgoing) -> None:
        """The send is over and gives its place free."""
        if out.is_admitted:
            out.is_admitted = False
            self.in_flight -= 1
            self._bytes -= len(out.body)
        elif out.is_in_line:
            self.in_order.left(out)
        if out.order is not None:
            self.in_order.finished(out)
        if self._room.sends:
            self._admit()
        if self._idle is not None:
            self._check_idle()

    def _check_idle(self) -> None:
        if self._idle is not None and not self.in_flight and not self._idle.done():
            self._idle.set_result(None)

    def _admit(self) -> None:
        if self._is_admitting:
            return
        self._is_admitting = True
        try:
            sends = self._room.sends
            while sends and self.in_flight < self._in_flight_max:
                if self.in_flight and self._bytes + len(sends[0].body) > self._bytes_max:
                    break
                out = self._room.take()
                if out is None:
                    break
                out.is_admitted = True
                self.in_flight += 1
                self._bytes += len(out.body)
                self._dispatch(out)
        finally:
            self._is_admitting = False

    # A way to a broker

    def _dispatch(self, out: Outgoing) -> None:
        publication = out.publication
        if not publication.lanes:
            self._await_route(out)
            return
        try:
            if out.choose is None and not self.is_watching and not out.attempts:
                lane = publication.next_lane()
            else:
                lane = self.lane_of(out)
                if self.is_watching:
                    self._watch.before_try(out, lane)
            if self._try_timeout and len(out.attempts) < out.retries:
                out.timeout = min(out.timeout, self._try_timeout)
            if not lane.outlet.transmit(out, lane):
                self._detour(out, lane)
        except TransportError as error:
            self.try_failed(out, error)
        except FuseeError as error:
            self._fail(out, error)

    def lane_of(self, out: Outgoing) -> Lane:
        """Where the next try of this send goes. Raises MessageError when its selector fails."""
        if out.choose is not None:
            return out.lane if out.lane is not None else out.choose(out.publication)
        failed = out.lane.broker_name if out.lane is not None else ""
        return out.publication.lane_avoiding(failed, self._watch.faults, self._monotonic())

    def _detour(self, out: Outgoing, lane: Lane) -> None:
        """The way is not open. While it is being opened, another broker may do."""
        if out.choose is None and not self.is_watching:
            failed = out.lane.broker_name if out.lane is not None else ""
            other = out.publication.open_lane(failed)
            if other is not None and other.outlet.transmit(out, other):
                if lane.outlet.open_again():
                    self._doubt_route(out.publication)
                return
        lane.outlet.park(out, lane)

    def _await_route(self, out: Outgoing) -> None:
        publication = out.publication
        publication.waiting.add(out)
        if publication.asking is None:
            publication.asking = self._session.spawn(self._find_route(publication))

    def _doubt_route(self, publication: Publication) -> None:
        """Ask for the route again, not too often: a broker that is gone, or a topic, may have gone from it too."""
        is_due = self._monotonic() >= publication.asked_at + _DOUBT_INTERVAL
        if is_due and publication.asking is None and self._session.state is ServiceState.RUNNING:
            publication.asking = self._session.spawn(self._find_route(publication, again=True))

    async def _find_route(self, publication: Publication, *, again: bool = False) -> None:
        publication.asked_at = self._monotonic()
        topic = publication.topic
        error: FuseeError | None = None
        try:
            if again:
                await self._session.refresh_route(topic)
            publication.adopt(await self.route(topic))
        except FuseeError as cause:
            error = cause
        except asyncio.CancelledError:
            error = ClientStateError(f"the client was closed before the route of topic {topic!r} was known")
            raise
        finally:
            publication.asking = None
            for out in publication.waiting.take_all():
                if publication.lanes:
                    self._dispatch(out)
                elif error is not None:
                    self._fail(out, _told(error, topic))

    # Answers

    def answered(self, out: Outgoing, response: Command | TransportError) -> None:
        """An answer that is not plainly a success, or that somebody watches."""
        if out.done():
            return
        if not isinstance(response, Command):
            self.try_failed(out, response)
            return
        lane = out.lane
        assert lane is not None
        topic, address = out.publication.topic, lane.outlet.address
        status = STATUS_OF_CODE.get(response.code)
        if status is None:
            if response.code == ResponseCode.GO_AWAY:
                lane.outlet.leave()
            elif response.code == ResponseCode.TOPIC_NOT_EXIST:
                self._doubt_route(out.publication)
            self.try_failed(out, self._session.calls.refusal(response, address, RequestCode.SEND_MESSAGE_V2, topic))
            return
        try:
            result = out.result_of(response, status)
        except FieldError as error:
            cause = ProtocolError(f"{address} answered a send with fields that cannot be read: {error}")
            cause.topic, cause.address = topic, address
            self.try_failed(out, cause)
            return
        if self.is_watching:
            self._watch.after_try(out, result, None)
        if status is not SendStatus.SEND_OK and self._retries_if_unsafe:
            out.stored = result
            out.attempts = (*out.attempts, FuseeError(f"{address} answered {status.name}"))
            if self._may_retry(out):
                self._try_again(out)
                return
        self.finished(out)
        out.deliver(result)

    def try_failed(self, out: Outgoing, error: Exception) -> None:
        """This try came to nothing."""
        if out.done():
            return
        if self.is_watching:
            self._watch.after_try(out, None, error)
        out.attempts = (*out.attempts, error)
        if isinstance(error, ConnectError | ConnectionLostError):
            self._doubt_route(out.publication)
        if _may_help_elsewhere(error) and self._may_retry(out):
            self._try_again(out)
        else:
            self._fail(out, _verdict(out))

    def _may_retry(self, out: Outgoing) -> bool:
        return (
            len(out.attempts) <= out.retries
            and out.is_admitted
            and out.deadline > self._monotonic()
            and self._session.state is ServiceState.RUNNING
        )

    def _try_again(self, out: Outgoing) -> None:
        out.timeout = out.deadline - self._monotonic()
        failed = out.lane
        if failed is not None and (
            out.choose is not None or all(lane.broker_name == failed.broker_name for lane in out.publication.lanes)
        ):
            pause = _SAME_BROKER_PAUSE * len(out.attempts)
            if pause < out.timeout:
                out.timeout -= pause
                self._timers.call_later(pause, self._try_after_pause, out)
                return
        self._dispatch(out)

    def _try_after_pause(self, out: Outgoing) -> None:
        if not out.done():
            self._dispatch(out)

    def _fail(self, out: Outgoing, error: Exception) -> None:
        if out.done():
            return
        self.finished(out)
        if out.stored is not None:
            out.deliver(out.stored)
        else:
            out.refuse(error)

    @property
    def watch(self) -> SendWatch:
        """Who is told of every try."""
        return self._watch

    def published_topics(self) -> list[str]:
        """Topics that were sent to."""
        return list(self.publications)

    def broker_names(self) -> list[str]:
        """Broker groups that were sent to."""
        return list(self._outlets)


def _may_help_elsewhere(error: Exception) -> bool:
    if isinstance(error, TransportError):
        return not isinstance(error, TooManyRequestsError)
    return isinstance(error, FuseeError) and error.code in RETRY_CODES


def _verdict(out: Outgoing) -> Exception:
    topic = out.publication.topic
    attempts = out.attempts
    if len(attempts) == 1:
        return _told(attempts[0], topic)
    causes = "; ".join(f"({number}) {error}" for number, error in enumerate(attempts, 1))
    return SendFailedError(
        f"a message for topic {topic!r} was sent {len(attempts)} times in vain: {causes}",
        attempts=attempts,
        topic=topic,
    )


def _told(error: Exception, topic: str) -> Exception:
    """The error for one sender: those of the network are shared by all who waited for the same thing."""
    if isinstance(error, TransportError):
        return type(error)(str(error), address=error.address, topic=error.topic or topic)
    if isinstance(error, RemoteError):
        return type(error)(str(error), code=error.code, address=error.address, topic=error.topic or topic)
    return error
