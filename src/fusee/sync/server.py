"""A name server and a broker in this process, for programs that block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from fusee.in_process.server import EmbeddedServer as AsyncEmbeddedServer
from fusee.sync.connection import Connection
from fusee.sync.facade import Facade, blocking
from fusee.sync.portal import portal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from os import PathLike
    from pathlib import Path
    from types import TracebackType

    from fusee.wire.bodies.topic import TopicConfig


class EmbeddedServer(Facade[AsyncEmbeddedServer]):
    """A running server; a context manager. Every method may be called from any thread."""

    create_topics = blocking(AsyncEmbeddedServer.create_topics)
    advance = blocking(AsyncEmbeddedServer.advance)
    settle = blocking(AsyncEmbeddedServer.settle)
    stop_broker = blocking(AsyncEmbeddedServer.stop_broker)
    start_broker = blocking(AsyncEmbeddedServer.start_broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the connections made here, stop broker and name server, remove a temporary store."""
        self._portal.call(self._target.stop)
        self._portal.release(self._target)

    @property
    def name_server(self) -> str:
        """`host:port` of the name server, for any client."""
        return self._target.name_server

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker."""
        return self._target.broker_address

    @property
    def store_path(self) -> Path:
        """Where the messages are, while it runs."""
        return self._target.store_path

    @property
    def now(self) -> datetime:
        """The time of servers and clients, in UTC."""
        return self._target.now

    def connect(self, **options: Any) -> Connection:
        """A connection to this server, which shares its clock; options as of `fusee.connect`."""
        return Connection.opened(self._portal, lambda: self._target.connect(**options))


def embedded(
    *,
    topics: Iterable[str | TopicConfig] | Mapping[str, int] = (),
    clock: Literal["system", "manual"] = "system",
    store: str | PathLike[str] | None = None,
    start_at: datetime | None = None,
    **options: Any,
) -> EmbeddedServer:
    """Start a name server and a broker in this process; arguments as of `fusee.embedded`.

    They run on the event loop of blocking calls, until `stop`, the end of a `with`, or the end of the program.
    """
    here = portal()
    server = AsyncEmbeddedServer(topics=topics, clock=clock, store=store, start_at=start_at, **options)
    here.call(server.start)
    here.keep(server, server.stop)
    return EmbeddedServer(here, server)
