"""Who closes something: the task that asked for it, however many tasks the closing itself takes.

A listener, or a loop over messages, may close its own consumer or the whole connection. Closing waits for listeners and
loops, and must not wait for the one that waits for it.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_asked_by: ContextVar[asyncio.Task[Any] | None] = ContextVar("fusee_closing_asked_by", default=None)


def closer() -> asyncio.Task[Any] | None:
    """The task that asked for what is being closed: this one, unless it closes for another."""
    return _asked_by.get() or asyncio.current_task()


@contextmanager
def for_closer() -> Iterator[None]:
    """Tasks that are made inside close for whoever asked here."""
    token = _asked_by.set(closer())
    try:
        yield
    finally:
        _asked_by.reset(token)
