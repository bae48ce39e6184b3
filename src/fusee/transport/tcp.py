"""TCP and TLS: the real network.

With a certificate, TLS and plain connections share one port: the first byte is looked at without taking it (0x16
begins a TLS handshake; the length word of a frame never does) and the socket then becomes a connection of either
kind. Modes as in the reference: `permissive` takes both, `enforcing` only TLS, `disabled` only plain.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fusee.errors import ConfigError, ConnectError
from fusee.transport.link import Link, format_address

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

_TLS_HANDSHAKE: Final = 0x16
_BACKLOG: Final = 4096
_ACCEPTS_PER_EVENT: Final = 128
# What this process, or the machine, has no more of; asking again at once would only burn the processor.
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_ACCEPT_PAUSE: Final = 1.0


class TlsMode(Enum):
    """Which connections a server takes."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS of a server."""

    context: ssl.SSLContext
    mode: TlsMode = TlsMode.PERMISSIVE
    first_byte_timeout: float = 120.0
    handshake_timeout: float = 10.0


def server_context(certificate: Path, key: Path, *, password: str | None = None) -> ssl.SSLContext:
    """A TLS context from PEM files. Raises ConfigError naming the file that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS certificate {certificate} with key {key} cannot be used: {error}") from error
    return context


def server_tls(mode: str, certificate: str, key: str, *, first_byte_timeout: float) -> ServerTls | None:
    """TLS as configured: none without a certificate. Raises ConfigError when the settings contradict."""
    if not certificate:
        if TlsMode(mode) is TlsMode.ENFORCING:
            raise ConfigError("tls_server_mode is enforcing but no certificate is given; set tls_server_cert_path")
        return None
    context = server_context(Path(certificate), Path(key or certificate))
    return ServerTls(context, TlsMode(mode), first_byte_timeout=first_byte_timeout)


class _Listening:
    """Accepts by hand: many connections in one turn of the loop, and with TLS to see the first byte of each.

    (uvloop accepts one connection per turn: on a busy server, whose turns are long, new ones would wait for seconds.)
    """

    def __init__(self, door: socket.socket, factory: Callable[[], asyncio.Protocol], tls: ServerTls | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._door = door
        self._factory = factory
        self._tls = tls
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        name = door.getsockname()
        self.address: tuple[str, int] = (name[0], name[1])
        self._open()

    def close(self) -> None:
        self._loop.remove_reader(self._door.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._door.close()
        for connection in list(self._waiting):
            self._drop(connection)
        for task in self._tasks:
            task.cancel()

    def _open(self) -> None:
        self._pause = None
        self._loop.add_reader(self._door.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_EVENT):
            try:
                connection, _ = self._door.accept()
            except OSError as error:  # nobody more waits, or this one is gone already
                if error.errno in _EXHAUSTED:
                    _log.error("no connection can be accepted now: %s; trying again in %g s", error, _ACCEPT_PAUSE)
                    self._loop.remove_reader(self._door.fileno())
                    self._pause = self._loop.call_later(_ACCEPT_PAUSE, self._open)
                return
            connection.setblocking(False)
            # asyncio's own loop leaves this off on accepted sockets, and small answers then wait 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                self._begin(connection, None)
                continue
            self._waiting[connection] = self._loop.call_later(self._tls.first_byte_timeout, self._drop, connection)
            self._loop.add_reader(connection.fileno(), self._look, connection, self._tls)

    def _drop(self, connection: socket.socket) -> None:
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()
            self._loop.remove_reader(connection.fileno())
            connection.close()

    def _look(self, connection: socket.socket, tls: ServerTls) -> None:
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        is_tls = first[:1] == bytes([_TLS_HANDSHAKE])
        if not first or (not is_tls and tls.mode is TlsMode.ENFORCING):
            self._drop(connection)
            return
        self._waiting.pop(connection).cancel()
        self._loop.remove_reader(connection.fileno())
        self._begin(connection, tls if is_tls else None)

    def _begin(self, connection: socket.socket, tls: ServerTls | None) -> None:
        task = self._loop.create_task(self._adopt(connection, tls))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _adopt(self, connection: socket.socket, tls: ServerTls | None) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=tls.context if tls is not None else None,
                ssl_handshake_timeout=tls.handshake_timeout if tls is not None else None,
            )
        except (OSError, ssl.SSLError):  # a handshake that fails is the peer's loss only
            connection.close()


class TcpNetwork:
    """Listens and connects over TCP, with TLS where contexts are given."""

    def __init__(self, *, server_tls: ServerTls | None = None, client_tls: ssl.SSLContext | None = None) -> None:
        self._server_tls = server_tls
        self._client_tls = client_tls

    async def listen(self, link_factory: Callable[[], asyncio.Protocol], host: str, port: int) -> _Listening:
        """Open a door. Raises ConnectError that names the address when it cannot be had."""
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            door = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            address = format_address((host, port))
            raise ConnectError(
                f"cannot listen on {address}: {error.strerror or error}; is another server running there?",
                address=address,
            ) from error
        door.setblocking(False)
        tls = self._server_tls
        return _Listening(door, link_factory, None if tls is None or tls.mode is TlsMode.DISABLED else tls)

    async def connect(self, link_factory: Callable[[], Link], host: str, port: int) -> Link:
        """Make a connection. Raises OSError."""
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {}
        if self._client_tls is not None:
            options = {"ssl": self._client_tls, "server_hostname": host}
        factory: Callable[[], Any] = link_factory
        _, link = await loop.create_connection(factory, host, port, **options)
        return link  # type: ignore[no-any-return]
