"""How a class of the asynchronous API gets its blocking twin: method by method, with the same signature.

    class Admin(Facade[AsyncAdmin]):
        lag = blocking(AsyncAdmin.lag)

There is no second implementation to drift from the first: `blocking` awaits the method of that name on the portal's
loop, `on_loop` calls a plain one there, where the state that it touches lives.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from fusee.sync.portal import Portal

A = TypeVar("A")
F = TypeVar("F")
P = ParamSpec("P")
R = TypeVar("R")


class Facade(Generic[A]):
    """An object of the asynchronous API as other threads may use it."""

    def __init__(self, portal: Portal, target: A) -> None:
        self._portal = portal
        self._target = target

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def _adopt(self, made: object) -> None:
        """Hear of what was made."""


class Scoped(Facade[A]):
    """One that is used by `with`, as its asynchronous self is by `async with`."""

    def __enter__(self) -> Self:
        self._portal.call(_async(self._target).__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._portal.call(_async(self._target).__aexit__, kind, error, trace)


def _async(target: object) -> AbstractAsyncContextManager[Any]:
    return cast("AbstractAsyncContextManager[Any]", target)


def blocking(
    method: Callable[Concatenate[Any, P], Awaitable[R]], undo: Callable[[Any, R], object] | None = None
) -> Callable[Concatenate[Any, P], R]:
    """The method, waiting for its outcome; with `undo`, the method that takes a result back which did not arrive."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        target: Callable[P, Awaitable[R]] = getattr(self._target, method.__name__)
        portal: Portal = self._portal
        if undo is not None:
            return portal.deliver(getattr(self._target, undo.__name__), target, *args, **kwargs)
        return portal.call(target, *args, **kwargs)

    functools.update_wrapper(call, method)
    return call


def on_loop(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The method, run on the loop."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        target: Callable[P, R] = getattr(self._target, method.__name__)
        portal: Portal = self._portal
        return portal.run(target, *args, **kwargs)

    functools.update_wrapper(call, method)
    return call


def making(
    method: Callable[Concatenate[Any, P], A], kind: Callable[[Portal, A], F]
) -> Callable[Concatenate[Any, P], F]:
    """The method, run on the loop; what it makes gets a facade of this kind."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> F:
        target: Callable[P, A] = getattr(self._target, method.__name__)
        portal: Portal = self._portal
        made = kind(portal, portal.run(target, *args, **kwargs))
        self._adopt(made)
        return made

    functools.update_wrapper(call, method)
    return call


def iterated(
    method: Callable[Concatenate[Any, P], AsyncIterator[R]],
) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """The method, whose items are waited for one by one."""

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        target: Callable[P, AsyncIterator[R]] = getattr(self._target, method.__name__)
        portal: Portal = self._portal
        items = portal.run(target, *args, **kwargs)
        try:
            while True:
                yield portal.call(items.__anext__)
        except StopAsyncIteration:
            return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                portal.call(close)

    functools.update_wrapper(call, method)
    return call
