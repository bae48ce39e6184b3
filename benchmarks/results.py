"""Rows of a benchmark: our figure, the peers' figures of the same run, ratios, targets and verdicts."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS: Final = "fusee"


class Figure(msgspec.Struct, frozen=True):
    """The median of one contender's repetitions, and what else the run said about it."""

    median: float
    low: float
    high: float
    repetitions: int
    server_cpu_us: float | None = None
    server_cores: float | None = None
    p99_us: float | None = None
    generator_cores: float | None = None
    other_cores: float | None = None
    note: str | None = None


class Target(msgspec.Struct, frozen=True):
    """We must be at least `ratio_min` times as fast as this peer."""

    peer: str
    ratio_min: float


class Verdict(msgspec.Struct, frozen=True):
    """A target, the ratio that was measured, and whether it was met."""

    target: Target
    ratio: float
    met: bool


class Row(msgspec.Struct, frozen=True):
    """One piece of work and the figure of each contender; ratios are always 'times as fast as the peer'."""

    name: str
    unit: str
    higher_is_better: bool
    figures: dict[str, Figure]
    targets: list[Target]
    command: str
    ratios: dict[str, float] = {}
    verdicts: list[Verdict] = []

    @property
    def met(self) -> bool | None:
        """Whether every target was met; None when the row has no target whose peer took part."""
        return all(verdict.met for verdict in self.verdicts) if self.verdicts else None


class Report(msgspec.Struct, frozen=True):
    """Everything one benchmark found in one run: what is written to build/bench/<name>.json."""

    name: str
    title: str
    quick: bool
    measured_at: str
    machine: str
    command: str
    rows: list[Row]
    notes: list[str]


def figure(values: Sequence[float], **extra: float | str | None) -> Figure:
    """The figure of these repetitions; at least one."""
    return msgspec.convert(
        {
            "median": median(values),
            "low": min(values),
            "high": max(values),
            "repetitions": len(values),
            **extra,
        },
        Figure,
    )


def judged(row: Row) -> Row:
    """The row with ratios against each peer, and a verdict for each target whose peer took part."""
    ours = row.figures.get(OURS)
    if ours is None:
        return row
    ratios: dict[str, float] = {}
    for peer, theirs in row.figures.items():
        if peer == OURS:
            continue
        better, worse = (ours, theirs) if row.higher_is_better else (theirs, ours)
        ratios[peer] = better.median / worse.median if worse.median else float("inf")
    verdicts = [
        Verdict(target, ratios[target.peer], ratios[target.peer] >= target.ratio_min)
        for target in row.targets
        if target.peer in ratios
    ]
    return msgspec.structs.replace(row, ratios=ratios, verdicts=verdicts)


def beside_better(row: Row, ratio_min: float) -> Row:
    """The row judged against whichever of its peers did better; the target falls away without a peer."""
    peers = {name: one.median for name, one in row.figures.items() if name != OURS}
    if not peers:
        return judged(row)
    best = (max if row.higher_is_better else min)(peers, key=peers.__getitem__)
    return judged(msgspec.structs.replace(row, targets=[Target(best, ratio_min)]))


class Findings(msgspec.Struct, frozen=True):
    """What a suite returns: its rows, and what a reader must know to judge them."""

    rows: list[Row]
    notes: list[str]
    placement: str | None = None
    """Who ran on which cores, when it was not the server on one and the load on another."""
