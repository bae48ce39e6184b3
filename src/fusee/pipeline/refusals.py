"""What was refused a while ago, and need not be asked for again yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Hashable

    from fusee.clock import Clock

REMEMBERED_S: Final = 300.0


class Refusals:
    """Remembers each for five minutes."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._at: dict[Hashable, float] = {}

    def add(self, what: Hashable) -> None:
        """This was refused now."""
        self._at[what] = self._clock.monotonic()

    def __contains__(self, what: object) -> bool:
        refused_at = self._at.get(what)
        return refused_at is not None and self._clock.monotonic() - refused_at <= REMEMBERED_S
