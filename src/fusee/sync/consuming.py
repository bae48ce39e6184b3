"""Consuming, blocking: polled, looped over, or by a listener that is called in threads.

A step of a loop is a call to the event loop, some tens of microseconds; `batches` pays that once for many messages.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar
from weakref import WeakSet

from fusee.client.consumer.pull import PullConsumer as AsyncPullConsumer
from fusee.client.consumer.push import Consumer as AsyncConsumer
from fusee.sync.facade import Scoped, blocking, on_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fusee.client.config import ServiceState
    from fusee.client.received import ReceivedMessage
    from fusee.errors import FuseeError
    from fusee.message.model import MessageQueue
    from fusee.sync.portal import Portal

T = TypeVar("T")

_LEAVE_PATIENCE: Final = 3.0


class Steps(Protocol[T]):
    """A loop of the asynchronous API."""

    def __anext__(self) -> Awaitable[T]: ...

    def take_back(self, step: T, /) -> None: ...


class Loop(Generic[T]):
    """One loop over messages, or over batches of them, in one thread. It ends when its consumer is closed.

    A step that Ctrl-C keeps from the loop has not happened: its messages come with the next one.
    """

    def __init__(self, portal: Portal, steps: Steps[T]) -> None:
        self._portal = portal
        self._steps: Steps[T] | None = steps
        self._thread = threading.get_ident()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._steps is None:
            raise StopIteration
        try:
            return self._portal.deliver(self._steps.take_back, self._steps.__anext__)
        except StopAsyncIteration:
            self._steps = None
            raise StopIteration from None

    def leave(self, thread: int | None = None) -> None:
        """Step no more: nobody waits for a step of a loop that was left. With `thread`, only if it runs there."""
        if thread is None or thread == self._thread:
            self._steps = None


class Consumer(Scoped[AsyncConsumer]):
    """A member of a consumer group, for `with`. See `fusee.Consumer`.

        with mq.consumer("orders", group="billing") as messages:
            for message in messages: ...

    Each step says that the message before is done; an exception that leaves the `with` has the last one delivered again
    later. A listener is called in threads. `close` ends the loops of other threads at their next step.
    """

    def __init__(self, portal: Portal, target: AsyncConsumer) -> None:
        super().__init__(portal, target)
        loops: WeakSet[Loop[Any]] = WeakSet()
        self._loops = loops

        async def leave() -> None:
            # The program ends: a loop that did not is not going to step.
            for loop in list(loops):
                loop.leave()
            await target.close(_LEAVE_PATIENCE)

        portal.keep(target, leave)

    start = blocking(AsyncConsumer.start)
    send_back = blocking(AsyncConsumer.send_back)
    position = on_loop(AsyncConsumer.position)
    pause = on_loop(AsyncConsumer.pause)
    resume = on_loop(AsyncConsumer.resume)
    seek = blocking(AsyncConsumer.seek)
    subscribe = blocking(AsyncConsumer.subscribe)
    unsubscribe = on_loop(AsyncConsumer.unsubscribe)

    def close(self, timeout: float | None = None) -> None:
        """Wait for listeners that are at work, commit what is done, and leave the group. See `fusee.Consumer.close`."""
        self._leave_loops()
        self._portal.call(self._target.close, timeout)
        self._release()

    def _release(self) -> None:
        """It is closed, and need not be at the end of the program."""
        self._portal.release(self._target)

    def _leave_loops(self) -> None:
        """End the loops of this thread, which cannot step while it closes something."""
        for loop in list(self._loops):
            loop.leave(threading.get_ident())

    def __iter__(self) -> Loop[ReceivedMessage]:
        return self._loop(self._target.__aiter__)

    def batches(self, most: int = 32) -> Loop[list[ReceivedMessage]]:
        """A loop over lists of up to `most` messages, of any queues, as they are there; a step finishes a list."""
        return self._loop(lambda: self._target.batches(most))

    def _loop(self, begin: Callable[[], Steps[T]]) -> Loop[T]:
        loop = Loop(self._portal, self._portal.run(begin))
        self._loops.add(loop)
        return loop

    @property
    def group(self) -> str:
        return self._target.group

    @property
    def state(self) -> ServiceState:
        """Where in its life it is."""
        return self._target.state

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are ours now, the retry topic's among them."""
        return self._portal.run(lambda: self._target.assignment)

    @property
    def faults(self) -> dict[MessageQueue, FuseeError]:
        """Queues that cannot be pulled now, and why."""
        return self._portal.run(lambda: self._target.faults)


class PullConsumer(Scoped[AsyncPullConsumer]):
    """A member of a group that polls, or a reader of queues by hand, for `with`. See `fusee.PullConsumer`."""

    start = blocking(AsyncPullConsumer.start)
    close = blocking(AsyncPullConsumer.close)
    subscribe = blocking(AsyncPullConsumer.subscribe)
    unsubscribe = blocking(AsyncPullConsumer.unsubscribe)
    assign = blocking(AsyncPullConsumer.assign)
    queues = blocking(AsyncPullConsumer.queues)
    watch_queues = blocking(AsyncPullConsumer.watch_queues)
    poll = blocking(AsyncPullConsumer.poll, AsyncPullConsumer._take_back)
    pull = blocking(AsyncPullConsumer.pull)
    pause = on_loop(AsyncPullConsumer.pause)
    resume = on_loop(AsyncPullConsumer.resume)
    seek = blocking(AsyncPullConsumer.seek)
    seek_to_begin = blocking(AsyncPullConsumer.seek_to_begin)
    seek_to_end = blocking(AsyncPullConsumer.seek_to_end)
    position = blocking(AsyncPullConsumer.position)
    committed = blocking(AsyncPullConsumer.committed)
    min_offset = blocking(AsyncPullConsumer.min_offset)
    max_offset = blocking(AsyncPullConsumer.max_offset)
    offset_for_timestamp = blocking(AsyncPullConsumer.offset_for_timestamp)
    earliest_store_time = blocking(AsyncPullConsumer.earliest_store_time)
    commit = blocking(AsyncPullConsumer.commit)

    @property
    def group(self) -> str:
        return self._target.group

    @property
    def state(self) -> ServiceState:
        """Where in its life it is."""
        return self._target.state

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        return self._portal.run(lambda: self._target.assignment)

    @property
    def paused(self) -> frozenset[MessageQueue]:
        """The queues that are paused."""
        return self._portal.run(lambda: self._target.paused)
