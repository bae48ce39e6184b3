"""Figures, health and readiness over HTTP: `/metrics`, `/health`, `/ready`.

The server has threads of its own (a scrape must not hold up the loop while it is written and sent), but it looks at
tables only on the loop that owns them. `/health` says that the loop turns; `/ready` that the servers can do their work,
or with 503 what is missing. Nothing else is served, no request is longer than a few lines, and only so many are
answered at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import TimeoutError as WaitTimeoutError
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.exposition import choose_encoder

from fusee.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from prometheus_client.metrics_core import Metric as Family

    from fusee.metrics.sources import Source

T = TypeVar("T")

_log = logging.getLogger(__name__)

LOOP_TIMEOUT: Final = 10.0
_SOCKET_TIMEOUT: Final = 10.0
_AT_ONCE_MAX: Final = 16
_PLAIN: Final = "text/plain; charset=utf-8"


class _Gathered:
    """Families, as the encoders of Prometheus want a registry."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Family]:
        return self._families


class Looking:
    """Looks at servers from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sources: Sequence[Source]) -> None:
        self._loop = loop
        self._sources = sources

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Everything, in the form that is accepted best, and its content type. Raises TimeoutError."""
        families: dict[str, Family] = {}
        for family in self._on_loop(self._gather()):
            known = families.setdefault(family.name, family)
            if known is not family:
                known.samples.extend(family.samples)
        encode, content_type = choose_encoder(accept)
        return encode(_Gathered(families.values())), content_type

    def missing(self) -> list[str]:
        """What keeps the servers from being ready. Raises TimeoutError when the loop does not turn."""
        return self._on_loop(self._missing())

    async def _gather(self) -> list[Family]:
        return [family for source in self._sources for family in (await source.figures()).families()]

    async def _missing(self) -> list[str]:
        return [text for source in self._sources for text in source.missing()]

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(LOOP_TIMEOUT)
        except WaitTimeoutError:
            future.cancel()
            raise


def answer(looking: Looking, path: str, accept: str) -> tuple[HTTPStatus, str, bytes] | None:
    """The answer to one of the three paths; None for any other."""
    try:
        if path == "/metrics":
            content, content_type = looking.metrics(accept)
            return HTTPStatus.OK, content_type, content
        if path in ("/health", "/ready"):
            missing = looking.missing()
            if path == "/health" or not missing:
                return HTTPStatus.OK, _PLAIN, b"ok\n"
            return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, "".join(f"{text}\n" for text in missing).encode()
    except TimeoutError:
        return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, b"the event loop did not answer in time\n"
    return None


class _Handler(WSGIRequestHandler):
    timeout = _SOCKET_TIMEOUT

    def log_message(self, *_: Any) -> None:
        """Nothing: a scrape is no event."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._turns = threading.Semaphore(_AT_ONCE_MAX)
        super().__init__(*arguments, **options)

    def server_bind(self) -> None:
        # Not HTTPServer's: that asks the resolver for the name of this machine, which may take seconds.
        TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), port
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._turns.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._turns.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a scrape by %s broke off", client_address, exc_info=True)


class Exposition:
    """The HTTP server."""

    def __init__(self, looking: Looking) -> None:
        self._looking = looking
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, host: str, port: int) -> str:
        """Listen; `host:port`. Raises ConnectError."""
        try:
            self._server = server = make_server(host, port, self._answer, _Server, _Handler)
        except OSError as error:
            raise ConnectError(
                f"metrics cannot be served on {host}:{port}: {error.strerror or error}; choose another --metrics-port"
            ) from error
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="fusee-metrics", daemon=True)
        self._thread.start()
        return f"{host}:{server.server_port}"

    def stop(self) -> None:
        """Close the door. Not to be called on the loop that is looked at while a request waits for it."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = self._thread = None

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        found = None
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            found = answer(self._looking, environ["PATH_INFO"], environ.get("HTTP_ACCEPT", ""))
        if found is None:
            found = HTTPStatus.NOT_FOUND, _PLAIN, b"there are /metrics, /health and /ready\n"
        status, content_type, content = found
        start_response(
            f"{status.value} {status.phrase}",
            [("Content-Type", content_type), ("Content-Length", str(len(content))), ("Cache-Control", "no-store")],
        )
        return [content]
