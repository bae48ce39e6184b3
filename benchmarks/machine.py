"""The machine a figure was measured on, and which of its cores the server and the load get."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fusee.compiled import form

if TYPE_CHECKING:
    from collections.abc import Iterator


class Machine(msgspec.Struct, frozen=True):
    """What must be known to judge an absolute figure."""

    cpu: str
    cores: int
    system: str
    python: str
    uvloop: str
    msgspec: str
    fusee: str
    pinned: bool
    load_average: float

    def line(self, placement: str | None = None) -> str:
        """One line; `placement` says who ran where when a benchmark did not go by the rule."""
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        usual = "server and load on a core each" if self.pinned else "not pinned: server and load share cores"
        pinning = placement or usual
        return (
            f"{self.cpu}, {cores} ({pinning}), {self.system}, Python {self.python}, uvloop {self.uvloop}, "
            f"msgspec {self.msgspec}, fusee {self.fusee}, load average at start {self.load_average:.2f}"
        )

    @property
    def busy(self) -> bool:
        """Whether others were at work on this machine, which makes every figure worse than it is."""
        return self.load_average > 0.25 * self.cores


class Cores(msgspec.Struct, frozen=True):
    """Cores for the server and for the load; None where the machine has too few to tell them apart."""

    server: frozenset[int] | None
    load: frozenset[int] | None
    every: frozenset[int] | None


def cores() -> Cores:
    """One core for the server and another for the load, where this process may use two."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(None, None, None)
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return Cores(None, None, frozenset(usable))
    return Cores(frozenset(usable[:1]), frozenset(usable[1:2]), frozenset(usable))


@contextmanager
def pinned_to(allowed: frozenset[int] | None) -> Iterator[None]:
    """Children started inside run on these cores: affinity is inherited, so no thread escapes."""
    if allowed is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def describe() -> Machine:
    """This machine and the versions that decide the figures."""
    placement = cores()
    return Machine(
        cpu=_cpu_model(),
        cores=len(placement.every) if placement.every is not None else (os.cpu_count() or 1),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_version()} ({sys.implementation.name})",
        uvloop=_version("uvloop"),
        msgspec=_version("msgspec"),
        fusee=f"{_version('fusee')} ({form()})",
        pinned=placement.server is not None,
        load_average=os.getloadavg()[0],
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
