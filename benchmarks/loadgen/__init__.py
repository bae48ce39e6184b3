"""The load generator: a small C program compiled on demand, or a slower Python one without a compiler.

Both replay a frame file over some connections with some requests outstanding on each, record after a warm-up,
and print one JSON line. They differ in how much server they can keep busy: the C one has a third of its
core to spare under our name server, the Python one may be the limit itself, which `generator_cores` near 1 shows.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.errors import BenchmarkError, DisturbedError
from benchmarks.machine import pinned_to
from benchmarks.plan import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE: Final = Path(__file__).with_name("loadgen.c")
COMPILE_LIMIT_S: Final = 120.0
RUN_SLACK_S: Final = 30.0
# From here on the generator, not the server, may be what limits the figure.
BUSY_GENERATOR_CORES: Final = 0.93
# What processes outside the measurement may use before its figure is doubtful.
DISTURBED_CORES: Final = 0.15


class Measurement(msgspec.Struct, frozen=True):
    """What one run of the generator printed."""

    generator: str
    connections: int
    outstanding: int
    seconds: float
    requests: int
    unexpected: int
    per_second: float
    server_cpu_us: float
    server_cores: float
    generator_cores: float
    other_cores: float
    p50_us: float
    p99_us: float
    p999_us: float
    megabytes_in: float


class LoadGenerator:
    """Runs the generator as a child on its own core."""

    def __init__(self, command: Sequence[str], *, cores: frozenset[int] | None, note: str | None = None) -> None:
        self._command = list(command)
        self._cores = cores
        self.note = note

    def run(
        self,
        *,
        port: int,
        frames: Path,
        connections: int,
        outstanding: int,
        warm_up_s: float,
        record_s: float,
        server_pid: int,
        expected_code: int | None = None,
    ) -> Measurement:
        """One measured run. Raises BenchmarkError when the server fails it or answers with another code.

        DisturbedError is raised when others left the server no time to answer.
        """
        command = [
            *self._command,
            *("-p", str(port), "-f", str(frames), "-c", str(connections), "-w", str(outstanding)),
            *("-u", str(warm_up_s), "-t", str(record_s), "-P", str(server_pid)),
        ]
        if expected_code is not None:
            command += ["-e", str(expected_code)]
        with pinned_to(self._cores):
            child = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            printed, complaints = child.communicate(timeout=warm_up_s + record_s + RUN_SLACK_S)
        except subprocess.TimeoutExpired as error:
            child.kill()
            child.communicate()
            raise BenchmarkError(
                f"the load generator did not end in time on 127.0.0.1:{port}: {' '.join(command)}"
            ) from error
        if child.returncode != 0:
            raise BenchmarkError(f"the load failed with status {child.returncode}: {complaints.strip()[-500:]}")
        measured = msgspec.json.decode(printed, type=Measurement)
        if not measured.requests and measured.other_cores > DISTURBED_CORES:
            raise DisturbedError(
                f"no response came within {record_s:g} s while other processes used {measured.other_cores:.1f} cores; "
                "measure again on an idle machine"
            )
        if measured.unexpected or not measured.requests:
            raise BenchmarkError(
                f"{measured.unexpected} of {measured.requests} responses were not what the run expects: "
                f"{complaints.strip()[-500:] or 'no response came'}"
            )
        return measured


def load_generator(build: Path, *, cores: frozenset[int] | None) -> LoadGenerator:
    """The C generator, compiled into `build` when it is not there yet; else the Python one, with why."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return _fallback("no C compiler found (set CC, or install gcc or clang)", cores)
    if sys.platform != "linux":
        return _fallback(f"loadgen.c needs Linux's epoll, this is {sys.platform}", cores)
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    program = build / "loadgen" / f"loadgen-{digest}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f"{program.name}.{os.getpid()}")
        try:
            subprocess.run(
                [compiler, "-O2", "-Wall", "-o", str(partial), str(SOURCE)],
                check=True,
                capture_output=True,
                text=True,
                timeout=COMPILE_LIMIT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            return _fallback(f"{compiler} could not compile loadgen.c: {detail.strip()[:300]}", cores)
        partial.replace(program)
    return LoadGenerator([str(program)], cores=cores)


def _fallback(reason: str, cores: frozenset[int] | None) -> LoadGenerator:
    return LoadGenerator(
        [sys.executable, "-m", "benchmarks.loadgen.fallback"],
        cores=cores,
        note=f"load by the Python generator, which may be the bottleneck itself: {reason}",
    )
