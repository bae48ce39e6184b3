"""A console beside other servers of a process: it listens from the start, and is loaded when somebody comes.

Most servers are looked at rarely, and what makes pages is larger than the broker. So the broker's own loop watches the
console's door; at the first knock the console is loaded, in a thread of its own, and answers.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fusee.cli.plain_text import bold, say, yellow
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fusee.console.config import ConsoleConfig
    from fusee.console.server import ConsoleServer
    from fusee.metrics import Looking, Source
    from fusee.service import Startable


class Beside:
    """A program, and a console that begins when the program has started and ends before it."""

    def __init__(self, program: Startable, config: ConsoleConfig | None) -> None:
        """Without a config there is no console."""
        self._program = program
        self._config = config
        self._waiting: ConsoleServer | None = None
        self._ending: list[Callable[[], object]] = []

    async def start(self) -> object:
        return await self._program.start()

    async def stop(self) -> None:
        self._stop_waiting()
        for end in self._ending:
            await asyncio.to_thread(end)
        await self._program.stop()

    def begin(self, name_servers: str, sources: Callable[[], Sequence[Source]] | None = None) -> None:
        """Listen, and say where. Nothing that fails here keeps the program from its work.

        `sources` are asked for when figures are first wanted.
        """
        if self._config is None:
            return
        config = replace(self._config, name_servers=name_servers)
        loop = asyncio.get_running_loop()

        def looking() -> Looking:
            from fusee.metrics import Looking

            return Looking(loop, () if sources is None else sources())

        try:
            if any(find_spec(name) is None for name in ("jinja2", "starlette", "uvicorn")):
                from fusee.metrics import Exposition

                exposition = Exposition(looking())
                address = exposition.start(config.host, config.port)
                self._ending.append(exposition.stop)
                say(f"metrics on http://{address}/metrics; the console needs pip install 'fusee[console]'")
                return
            from fusee.console.server import ConsoleServer

            server = ConsoleServer(config, looking=None if sources is None else looking)
            url = server.listen()
            self._ending.append(server.stop)
            self._waiting = server
            loop.add_reader(server.fileno(), self._answer)
            say(f"console on {bold(url)}{f', metrics on {url}metrics' if sources else ''}")
        except FuseeError as error:
            say(yellow(f"no console: {error}"))

    def _answer(self) -> None:
        server = self._stop_waiting()
        if server is not None:
            server.begin()

    def _stop_waiting(self) -> ConsoleServer | None:
        server, self._waiting = self._waiting, None
        if server is not None:
            asyncio.get_running_loop().remove_reader(server.fileno())
        return server
