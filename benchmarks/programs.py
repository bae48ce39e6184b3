"""Runs a benchmark program against a broker until it reports, and tells what both used meanwhile.

A program says how many messages it moved per second over its last nine seconds, and only once it has run for ten. It
shares every core with the broker.
"""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.machine import cores, pinned_to
from benchmarks.process_usage import cpu_s, resident_mb

if TYPE_CHECKING:
    from pathlib import Path

# The programs compare the first and the last of ten snapshots, one a second.
REPORT_SPAN_S: Final = 9.0
REPORT_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 10.0
SAMPLE_S: Final = 0.2

_RATE: Final = re.compile(r"(?:Send MPS|Send TPS|Consume TPS): (\d+)")
_FAILURES: Final = re.compile(r"(?:Failed|Fail): (\d+)")


@dataclass(frozen=True, slots=True)
class Reported:
    """What a program said, CPU time per message of broker and program meanwhile, and the program's memory."""

    per_second: float
    broker_cpu_us: float
    program_cpu_us: float
    program_mb: float


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    broker_cpu_s: float
    program_cpu_s: float


def run_program(command: list[str], printed: Path, broker_pid: int, read_after_s: float) -> Reported:
    """Starts the program, waits for its first report after `read_after_s`, and stops it."""
    begin = time.monotonic()
    samples: list[_Sample] = []
    printed.parent.mkdir(parents=True, exist_ok=True)
    with printed.open("wb") as log, pinned_to(cores().every):
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        already = None
        while time.monotonic() < begin + read_after_s + REPORT_LIMIT_S:
            samples.append(_Sample(time.monotonic(), cpu_s(broker_pid), cpu_s(child.pid)))
            time.sleep(SAMPLE_S)
            if child.poll() is not None:
                raise BenchmarkError(f"it ended with status {child.returncode}: {printed.read_text()[-1000:]}")
            # A consumer may take longer to find its queues than to make its first report, of nothing.
            lines = [
                line
                for line in printed.read_text(errors="replace").splitlines()
                if (rates := _RATE.findall(line)) and float(rates[-1])
            ]
            if already is None and time.monotonic() >= begin + read_after_s:
                already = len(lines)
            if already is not None and len(lines) > already:
                samples.append(_Sample(time.monotonic(), cpu_s(broker_pid), cpu_s(child.pid)))
                return _figures(lines[-1], samples, resident_mb(child.pid)[0])
    finally:
        child.terminate()
        try:
            child.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    raise BenchmarkError(f"it reported nothing within {REPORT_LIMIT_S:.0f} s: {printed.read_text()[-1000:]}")


def _figures(line: str, samples: list[_Sample], program_mb: float) -> Reported:
    """The last rate in a report is per message; a report with failed requests is no figure."""
    per_second = float(_RATE.findall(line)[-1])
    failed = sum(int(count) for count in _FAILURES.findall(line))
    if failed or not per_second:
        raise BenchmarkError(f"{failed} requests failed: {line}")
    last = samples[-1]
    first = min(samples, key=lambda one: abs(one.at - (last.at - REPORT_SPAN_S)))
    messages = per_second * (last.at - first.at)
    return Reported(
        per_second,
        (last.broker_cpu_s - first.broker_cpu_s) * 1e6 / messages,
        (last.program_cpu_s - first.program_cpu_s) * 1e6 / messages,
        program_mb,
    )
