"""How long a run measures and where its files go: the full plan, and the quick one that shows shape only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Plan:
    """Durations and repetitions of every benchmark in one run."""

    quick: bool
    repetitions: int
    warm_up_s: float
    record_s: float
    settle_s: float
    micro_s: float
    build: Path = REPOSITORY / "build"

    @property
    def results(self) -> Path:
        return self.build / "bench"

    @property
    def logs(self) -> Path:
        return self.build / "bench" / "logs"

    @property
    def frames(self) -> Path:
        return self.build / "bench" / "frames"


# settle_s: how long a server is exercised once before its first measured run, for Java's compiler above all.
FULL = Plan(quick=False, repetitions=5, warm_up_s=0.3, record_s=1.0, settle_s=2.5, micro_s=0.2)
QUICK = Plan(quick=True, repetitions=1, warm_up_s=0.1, record_s=0.3, settle_s=0.5, micro_s=0.01)
