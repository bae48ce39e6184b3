"""What a process holds, sampled at moments when the same work is under way, and whether it grows."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from pathlib import Path
from statistics import median

WARM_UP_SHARE = 0.25
"""The first part of the run, in which caches fill and the allocator settles."""
MEMORY_GROWTH_MAX = 0.05
"""How much larger what the process holds may be at the end than in the middle."""
MEMORY_SLACK_MB = 6.0
COUNT_SLACK = 3
"""How many more tasks, sockets or files there may be at the end: one that is just being opened or closed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    at_s: float
    memory_mb: float
    tasks: int
    sockets: int
    files: int
    objects: int


@dataclass(frozen=True, slots=True)
class Growth:
    """One kind of thing: how much of it there was in the middle and at the end, and whether that is growth."""

    name: str
    before: float
    after: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.after <= self.allowed


def sample(at_s: float) -> Sample:
    """What this process holds now."""
    links = [_target(entry) for entry in Path("/proc/self/fd").iterdir()]
    sockets = sum(link.startswith("socket:") for link in links)
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")
    )
    return Sample(
        at_s,
        int(status["VmRSS"].split()[0]) / 1024,
        len(asyncio.all_tasks()),
        sockets,
        len(links) - sockets,
        len(gc.get_objects()),
    )


def growths(samples: list[Sample]) -> list[Growth]:
    """The middle of the run beside its end, the beginning left out. Needs some samples in each part."""
    kept = samples[int(len(samples) * WARM_UP_SHARE) :]
    half = len(kept) // 2
    before, after = kept[:half], kept[half:]
    found = []
    for name in ("memory_mb", "tasks", "sockets", "files"):
        first = median(getattr(each, name) for each in before)
        last = median(getattr(each, name) for each in after)
        allowed = first + COUNT_SLACK if name != "memory_mb" else first * (1 + MEMORY_GROWTH_MAX) + MEMORY_SLACK_MB
        found.append(Growth(name, first, last, allowed))
    return found


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:  # the descriptor of this very listing
        return ""
