"""Closes connections that have gone silent, never finish a frame, or never read (Java: IdleStateHandler)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fusee.clock import Clock, TimerHandle, Timers
    from fusee.transport.interfaces import LinkListener
    from fusee.transport.link import Link


class Sweep:
    """Looks at all links of one owner a few times per time-out; a link lives at most a quarter longer."""

    def __init__(
        self,
        links: Collection[Link],
        *,
        clock: Clock,
        timers: Timers,
        idle_timeout: float,
        frame_timeout: float,
        listeners: Sequence[LinkListener] = (),
    ) -> None:
        self._links = links
        self._clock = clock
        self._timers = timers
        self._idle_timeout = idle_timeout
        self._frame_timeout = frame_timeout
        self._listeners = listeners
        self._interval = min(idle_timeout, frame_timeout) / 4
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._timers.call_later(self._interval, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        now = self._clock.monotonic()
        for link in list(self._links):
            is_idle = now - link.last_activity >= self._idle_timeout
            if is_idle and link.unsent_bytes:
                # To close would wait until the peer has read the rest, and it may never.
                link.fail(
                    ConnectionAbortedError(
                        f"{link.remote_address} left {link.unsent_bytes} bytes unread for {self._idle_timeout:g} s"
                    )
                )
            elif link.partial_since is not None and now - link.partial_since >= self._frame_timeout:
                link.fail(
                    ProtocolError(
                        f"{link.remote_address} began a frame and sent only {link.pending_bytes} bytes of it "
                        f"in {self._frame_timeout:g} s"
                    )
                )
            elif is_idle:
                for listener in self._listeners:
                    listener.on_idle(link)
                link.close()
        self.start()
