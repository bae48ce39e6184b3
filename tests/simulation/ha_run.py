"""Runs plans of the simulation of broker groups, and says what came of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from fusee.errors import FuseeError
from tests.simulation.ha_world import HaPlan, HaWorld
from tests.simulation.witness import PromiseBrokenError


@dataclass
class HaOutcome:
    """What came of a run."""

    plan: HaPlan
    shape: str = ""
    digest: str = ""
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    reads: int = 0
    commits: int = 0
    forgiven: int = 0
    skipped: int = 0
    stale_reads: int = 0
    truncations: int = 0

    def __str__(self) -> str:
        acts = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
        return (
            f"seed {self.plan.seed} ({self.shape}): {self.plan.steps} steps, {self.seconds:.0f} s of its own time, "
            f"{self.acknowledged} messages, {self.reads} reads, {self.commits} commits, {self.truncations} "
            f"truncations, {self.forgiven} lost and {self.skipped} skipped by permission, "
            f"{self.stale_reads} stale reads; {acts}; digest {self.digest}"
        )


def simulate(plan: HaPlan, world_type: type[HaWorld] = HaWorld) -> HaOutcome:
    """Run this plan. Raises PromiseBrokenError, or whatever else went wrong, with the command that repeats it."""
    outcome = HaOutcome(plan)

    async def run() -> None:
        world = world_type(plan)
        outcome.shape = "; ".join(
            f"{'SYNC' if group.promises.sync_master else 'ASYNC'}_MASTER with {len(group.slaves)}, "
            f"{'SYNC' if group.promises.sync_flush else 'ASYNC'}_FLUSH"
            for group in world.groups
        )
        try:
            await world.play()
        except (PromiseBrokenError, FuseeError, AssertionError) as error:
            raise PromiseBrokenError(f"{outcome.shape}\n{error}\n\nto see it again: {plan.command}") from error
        finally:
            witness = world.witness
            outcome.digest = witness.digest
            outcome.seconds = world.clock.monotonic()
            outcome.done = world.done
            outcome.acknowledged, outcome.reads = witness.acknowledged, witness.reads
            outcome.commits, outcome.forgiven = witness.commits, witness.forgiven
            outcome.stale_reads = witness.stale_reads
            outcome.skipped, outcome.truncations = witness.skipped, world.truncations

    asyncio.run(run())
    return outcome
