"""A simulated cluster that is watched: time goes on when nothing is at work, and the first objection ends the run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.client.world import ClusterWorld
from tests.simulation.witness import PromiseBrokenError


class WatchedWorld(ClusterWorld):
    """What every simulated run is made of."""

    def __init__(self, *, brokers: int, name_servers: int, seed: int) -> None:
        super().__init__(brokers=brokers, name_servers=name_servers, seed=seed)
        self.broken: PromiseBrokenError | None = None
        self.done: Counter[str] = Counter()

    def tell(self, note: Callable[..., None], *arguments: Any, **more: Any) -> None:
        """Tell the witness; the first objection ends the run, wherever it was raised."""
        try:
            note(*arguments, **more)
        except PromiseBrokenError as broken:
            self.broken = self.broken or broken

    async def settle(self) -> None:
        """Until nothing is at work: the loop has nothing ready, so there is no need to guess."""
        ready: Any = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
        while True:
            due = self.clock.next_due
            if due is not None and due <= self.clock.monotonic():
                self.clock.advance(0.0)
            elif not ready:
                return
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let this much time pass. Raises PromiseBrokenError."""
        target = self.clock.monotonic() + seconds
        await self.settle()
        while (due := self.clock.next_due) is not None and due <= target and self.broken is None:
            self.clock.advance(max(due - self.clock.monotonic(), 0.0))
            await self.settle()
        self.clock.advance(max(target - self.clock.monotonic(), 0.0))
        await self.settle()
        if self.broken is not None:
            raise self.broken
