"""What a byte stream is to us, so that TCP and memory are the same thing seen from above.

A `ByteTransport` is the part of asyncio's Transport that we use; a `StreamProtocol` is what receives its events. The
asyncio and uvloop transports satisfy this as they are; `transport.memory` has one of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from fusee.transport.link import Link


class ByteTransport(Protocol):
    """One end of a connection."""

    def write(self, data: bytes) -> None: ...

    def writelines(self, list_of_data: Iterable[bytes | memoryview], /) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class Listening(Protocol):
    """A door that is open; `address` is the real one, with the port that was chosen."""

    @property
    def address(self) -> tuple[str, int]: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Opens doors and connections."""

    async def listen(self, link_factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Listening: ...

    async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link: ...


class LinkListener(Protocol):
    """Hears of connections. Called on the loop; must not block."""

    def on_connect(self, link: Link) -> None: ...

    def on_close(self, link: Link) -> None: ...

    def on_exception(self, link: Link, error: Exception) -> None: ...

    def on_idle(self, link: Link) -> None: ...
