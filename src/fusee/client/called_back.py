"""Who is called with the result of a message, where nobody awaits it: takes the place of a future in a batch.

A future has a loop, a state, and a task that it wakes, and costs as much as the rest of a send. A result is handed on
in the step of the loop in which it came; an error in the next, so that a callback which sends again is never called
from inside its own send.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fusee.errors import ClientStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.client.results import SendResult

    Callback = Callable[[SendResult | None, Exception | None], object]

_log = logging.getLogger(__name__)


class CalledBack:
    """Gets a result or an error, once."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callback) -> None:
        self._callback: Callback | None = callback

    def cancelled(self) -> bool:
        """Nobody can cancel it."""
        return False

    def done(self) -> bool:
        """Whether it has what it was waiting for."""
        return self._callback is None

    def set_result(self, result: SendResult) -> None:
        """Call it with this result."""
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback(result, None)
            except Exception:  # noqa: BLE001  the call of a user's listener
                _log.exception("the callback of a send failed")

    def set_exception(self, error: type | BaseException) -> None:
        """Call it with this error, in the next step of the loop."""
        callback, self._callback = self._callback, None
        if callback is not None:
            told = error if isinstance(error, Exception) else ClientStateError(repr(error))
            asyncio.get_running_loop().call_soon(call_with_error, callback, told)


def call_with_error(callback: Callback, error: Exception) -> None:
    """Call it with this error; what it raises is logged."""
    try:
        callback(None, error)
    except Exception:  # noqa: BLE001  the call of a user's listener
        _log.exception("the callback of a send failed")
