"""The console as a server in a thread of its own, so that a page that is put together never holds up a broker."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

import uvloop

from fusee.errors import ConfigError, ConnectError

if TYPE_CHECKING:
    from collections.abc import Callable

    import uvicorn

    from fusee.console.app import Console
    from fusee.console.config import ConsoleConfig
    from fusee.metrics import Looking

_log = logging.getLogger(__name__)


class ConsoleServer:
    """Listens at once, and is loaded and served in its thread: `start`, or `listen` and later `begin`."""

    def __init__(self, config: ConsoleConfig, *, looking: Callable[[], Looking] | None = None, **options: Any) -> None:
        """`looking` is asked for in the console's thread, when it is loaded."""
        self._config = config
        self._looking = looking
        self._options = options
        self._url = ""
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self._is_ended = threading.Event()
        self.console: Console | None = None
        """The application, once it is loaded."""

    def start(
        self, on_ready: Callable[[str], object] | None = None, on_failure: Callable[[Exception], object] | None = None
    ) -> str:
        """Listen, and begin to serve; its URL. Raises ConnectError when the port is taken."""
        url = self.listen()
        self.begin(on_ready, on_failure)
        return url

    def listen(self) -> str:
        """Listen without answering yet; its URL. Raises ConnectError when the port is taken."""
        config = self._config
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        try:
            self._socket = socket.create_server((config.host, config.port), family=family, backlog=128)
        except OSError as error:
            raise ConnectError(
                f"the console cannot listen on {config.host}:{config.port}: {error.strerror or error}; choose another "
                "port"
            ) from error
        shown = "127.0.0.1" if config.host in ("0.0.0.0", "::") else config.host
        self._url = f"http://{f'[{shown}]' if ':' in shown else shown}:{self._socket.getsockname()[1]}/"
        return self._url

    def fileno(self) -> int:
        """Readable when somebody is at the door."""
        assert self._socket is not None
        return self._socket.fileno()

    def begin(
        self, on_ready: Callable[[str], object] | None = None, on_failure: Callable[[Exception], object] | None = None
    ) -> None:
        """Load the console and serve, in a thread.

        `on_ready` is called with the URL when pages are served, `on_failure` when the console cannot be loaded; both
        in the thread.
        """
        self._thread = threading.Thread(
            target=self._run, args=(on_ready, on_failure), name="fusee-console", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End it; waits a few seconds for pages under way."""
        self._is_ended.set()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
        if self._socket is not None:
            self._socket.close()

    def _run(self, on_ready: Callable[[str], object] | None, on_failure: Callable[[Exception], object] | None) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(on_ready))
        except (ConfigError, ImportError) as error:
            if on_failure is not None:
                on_failure(error)
            else:
                _log.error("the console does not run: %s", error)

    async def _serve(self, on_ready: Callable[[str], object] | None) -> None:
        try:
            import uvicorn

            from fusee.console.app import Console
        except ImportError as error:
            raise ConfigError(
                f"the console needs more packages ({error.name}): pip install 'fusee[console]'"
            ) from error
        logging.getLogger("uvicorn").setLevel(logging.WARNING)  # that it starts and ends is told by whoever runs it
        self.console = console = Console(
            self._config, looking=None if self._looking is None else self._looking(), **self._options
        )
        self._server = server = uvicorn.Server(
            uvicorn.Config(
                console.app,
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=512,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=2,
            )
        )
        if self._is_ended.is_set():
            return
        assert self._socket is not None
        if on_ready is not None:
            on_ready(self._url)
        await server.serve(sockets=[self._socket])
