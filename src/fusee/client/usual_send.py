"""`send` and `send_async` as they are called most: bytes for a topic, perhaps with a tag and a key.

The properties of such a message are put together without a dictionary in between.

A message in any other form goes the long way of `Producer`, which is the only subclass. This module holds what is done
for every message of an automatic batch, so that it can be compiled as it is; its types are in `usual_send.pxd`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fusee.client.called_back import CalledBack
from fusee.client.config import ServiceState
from fusee.client.content import order_text, plain_property_text

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime, timedelta

    from fusee.client.accumulator import Accumulator
    from fusee.client.called_back import Callback
    from fusee.client.dispatch import Dispatch
    from fusee.client.publication import Publication
    from fusee.client.results import SendResult
    from fusee.client.selection import Selector
    from fusee.message.model import Message, MessageQueue

_RUNNING: Final = ServiceState.RUNNING


class UsualSends:
    """What a producer has at hand for every message, and its `send`."""

    state: ServiceState
    max_message_size: int
    _dispatch: Dispatch
    _publications: dict[str, Publication]
    _accumulator: Accumulator | None
    _next_id: Callable[[], str]
    _threshold: int
    _timeout: float

    def send(
        self,
        topic: str | Message,
        body: object = None,
        *,
        tag: str | None = None,
        key: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        order_by: object = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        selector_argument: object = None,
        delay_level: int = 0,
        deliver_in: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        wait_stored: bool = True,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send a message; await the future for its result.

        The body is bytes, text, or any value with a JSON form. `key`, or several `keys`, is what the message can be
        looked up by. At most one of these fixes the queue: `order_by` (messages of equal key go to one queue, each when
        the one before it is answered), `queue` (this very queue), `selector` (called with the queues, the message and
        `selector_argument`). At most one of these puts the delivery off: `delay_level` (1 to 18), `deliver_in`
        (seconds), `deliver_at`. With `wait_stored` False the broker answers before the message is flushed and
        replicated. Instead of all this a `Message` may be given.

        Raises MessageError or PayloadError at once for what cannot be sent, ClientStateError when the producer is not
        running. The future fails with a TransportError or RemoteError, or with SendFailedError after several tries.
        Cancelling it forgets the send; if the message had left already, it may be stored all the same.
        """
        producer: Any = self  # the subclass, which does the rest
        if self.state is not _RUNNING:
            producer._refuse_state()
        dispatch = self._dispatch
        if (
            type(topic) is str
            and type(body) is bytes
            and properties is None
            and selector is None
            and wait_stored
            and not (keys or delay_level or flag or deliver_in is not None or deliver_at is not None)
            and not dispatch.is_watching
        ):
            # The usual message: its properties are put together without a dictionary in between.
            unique_id = self._next_id()
            order = None
            if tag is None and key is None and order_by is None:
                text: str | None = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02"
            else:
                order = None if order_by is None else order_text(order_by)
                text = plain_property_text(unique_id, tag, key, order)
            size = len(body)
            if text is not None and 0 < size <= self.max_message_size:
                publication = self._publications.get(topic) or dispatch.publication(topic)
                choose = None
                if order_by is not None or queue is not None:
                    choose = producer._choice(None, order_by, queue, None, None)
                timeout = self._timeout if timeout_ms is None else producer._timeout_of(timeout_ms)
                accumulator = self._accumulator
                if (
                    accumulator is not None
                    and size < self._threshold
                    and (choose is None or (publication.lanes and (topic, order) not in dispatch.in_order))
                ):
                    future = accumulator.new_future()
                    accumulator.add(
                        publication, None if choose is None else choose(publication).queue, True, tag,
                        unique_id, 0, body, text, key, timeout, future,
                    )  # fmt: skip
                    return future
                alone: asyncio.Future[SendResult] = producer._send_alone(
                    publication, unique_id, body, text, choose, order, timeout
                )
                return alone
        sent: asyncio.Future[SendResult] = producer._send_unusual(
            topic, body, order_by, queue, selector, selector_argument, timeout_ms,
            {
                "tag": tag, "key": key, "keys": keys, "properties": properties, "flag": flag,
                "delay_level": delay_level, "deliver_in": deliver_in, "deliver_at": deliver_at,
                "wait_stored": wait_stored,
            },
        )  # fmt: skip
        return sent

    def send_async(
        self,
        topic: str | Message,
        body: object = None,
        *,
        callback: Callback,
        tag: str | None = None,
        key: str | None = None,
        **options: Any,
    ) -> None:
        """Send a message; `callback(result, error)` is called on the loop, once, with one of the two and None.

        Takes the options of `send`, and is tried again `retry_times_when_send_async_failed` times. What the callback
        raises is logged. It may send the next message. With automatic batching this is the form that costs least.
        """
        producer: Any = self
        if self.state is not _RUNNING:
            producer._refuse_state()
        dispatch, accumulator = self._dispatch, self._accumulator
        if (
            accumulator is not None
            and not options
            and type(topic) is str
            and type(body) is bytes
            and not dispatch.is_watching
        ):
            unique_id = self._next_id()
            if tag is None and key is None:
                text: str | None = f"UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02"
            else:
                text = plain_property_text(unique_id, tag, key, None)
            size = len(body)
            if text is not None and 0 < size <= self.max_message_size and size < self._threshold:
                publication = self._publications.get(topic) or dispatch.publication(topic)
                accumulator.add(
                    publication, None, True, tag, unique_id, 0, body, text, key, self._timeout, CalledBack(callback)
                )
                return
        if tag is not None:
            options["tag"] = tag
        if key is not None:
            options["key"] = key
        producer._call_back_unusual(topic, body, callback, options)
