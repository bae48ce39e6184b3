"""What a process uses: CPU time and memory, as /proc tells it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from benchmarks.errors import BenchmarkError


def cpu_s(pid: int) -> float:
    """CPU seconds of all living threads, to the nanosecond: an idle server uses less than a clock tick."""
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            total_ns += int(task.read_text().split()[0])
    return total_ns / 1e9


def resident_mb(pid: int) -> tuple[float, float]:
    """Resident megabytes: everything, and the part that is the process's own and not pages of mapped files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        kilobytes = {
            name: int(rest.split()[0]) for name, _, rest in (one.partition(":") for one in lines) if "kB" in rest
        }
        return kilobytes["VmRSS"] * 1024 / 1e6, kilobytes["RssAnon"] * 1024 / 1e6
    except (OSError, KeyError) as error:
        raise BenchmarkError(f"the memory of process {pid} cannot be read: {error}") from error


def available_mb() -> float:
    """Megabytes that new processes can have without swapping; 0 when it cannot be told."""
    return _system_mb("MemAvailable")


def free_mb() -> float:
    """Megabytes that nobody uses for anything; 0 when it cannot be told."""
    return _system_mb("MemFree")


def _system_mb(name: str) -> float:
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
