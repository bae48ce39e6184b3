"""What happens now, as server-sent events: samples of the cluster, and messages of a topic as they come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusee.console.views.messages import form_of, line_of
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fusee.console.context import Asked, Context

STREAMS_MAX: Final = 64
_BUFFERED_MAX: Final = 100
_TAIL_MAX: Final = 10_000
_PAUSE_SECONDS: Final = 0.02
_BEAT_SECONDS: Final = 15.0


class Streams:
    """How many are open."""

    def __init__(self, streams_max: int = STREAMS_MAX) -> None:
        self._max = streams_max
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1

    @property
    def is_full(self) -> bool:
        return self.count >= self._max


def event(name: str, value: Any) -> bytes:
    """One event."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


async def samples(context: Context, streams: Streams) -> AsyncIterator[bytes]:
    """Every new sample of the cluster."""
    news: asyncio.Queue[Any] = asyncio.Queue(_BUFFERED_MAX)

    def put(sample: Any) -> None:
        if not news.full():
            news.put_nowait(sample)

    end = context.history.listen(put)
    with streams:
        try:
            yield b": begun\n\n"
            while True:
                try:
                    async with asyncio.timeout(_BEAT_SECONDS):
                        sample = await news.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                yield event("sample", sample)
        finally:
            end()


async def tail(context: Context, asked: Asked, streams: Streams) -> AsyncIterator[bytes]:
    """Messages of a topic as they come, at most some thousands; `form` is how their bodies are shown."""
    topic, tags, form = asked.text("topic"), asked.text("tags") or "*", form_of(asked)
    with streams:
        yield b": begun\n\n"
        try:
            admin = await context.link.admin()
            count = 0
            async for message in admin.follow(topic, "last", tags=tags):
                yield event("message", line_of(message, form))
                count += 1
                if count >= _TAIL_MAX:
                    break
                await asyncio.sleep(_PAUSE_SECONDS)  # a person reads; the topic may be faster than any browser
        except FuseeError as error:
            yield event("failed", {"error": str(error)})
            return
        yield event("ended", {"count": count})
