"""What a row of the table says: what was done, which bounds had to hold, what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    idle: int
    busy: int
    seconds: float
    flooders: int
    rubbish: int
    held: int
    probes: int
    slack: float
    """By how much times may be longer, where the machine is shared."""


FULL: Final = Scale(idle=5_000, busy=1_000, seconds=5.0, flooders=50, rubbish=2_000, held=2_000, probes=500, slack=1.0)
QUICK: Final = Scale(idle=300, busy=100, seconds=0.7, flooders=10, rubbish=100, held=500, probes=60, slack=20.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """Something measured, and the most it may be."""

    what: str
    measured: float
    most: float
    unit: str

    @property
    def held(self) -> bool:
        return self.measured <= self.most


@dataclass(frozen=True, slots=True)
class Row:
    """What was done to a broker, the bounds it had to keep to, and what else is worth knowing."""

    what: str
    bounds: tuple[Bound, ...]
    notes: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        return all(bound.held for bound in self.bounds)
