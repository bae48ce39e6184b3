"""Where the name server's microseconds go: cProfile of the server while the load asks it for routes."""

from __future__ import annotations

import pstats
import sys
from typing import TYPE_CHECKING, Final

from benchmarks.cluster import RegisteredCluster
from benchmarks.errors import BenchmarkError
from benchmarks.frames import write_frame_file
from benchmarks.loadgen import load_generator
from benchmarks.machine import cores
from benchmarks.plan import REPOSITORY
from benchmarks.server_process import ServerProcess, free_port
from benchmarks.suites.namesrv import BOTH, WORKS, name_server_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.plan import Plan

LINES: Final = 30


def profile_name_server(plan: Plan) -> Path:
    """Prints the costliest functions by their own time; returns the file for pstats or a viewer."""
    profile = plan.results / "namesrv.pstats"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.unlink(missing_ok=True)
    frames = plan.frames / "profile"
    write_frame_file(frames, [WORKS[0].request])
    port = free_port()
    placement = cores()
    server = ServerProcess(
        "Fusee's name server under cProfile",
        [
            *(sys.executable, "-m", "cProfile", "-o", str(profile)),
            *name_server_arguments(port, plan),
        ],
        port=port,
        cores=placement.server,
        log_path=plan.logs / "profile-namesrv.log",
        cwd=REPOSITORY,
    )
    with server, RegisteredCluster(port):
        load_generator(plan.build, cores=placement.load).run(
            port=port,
            frames=frames,
            connections=BOTH.connections,
            outstanding=BOTH.outstanding,
            warm_up_s=plan.warm_up_s,
            record_s=2 * plan.record_s,
            server_pid=server.pid,
            expected_code=WORKS[0].answer_code,
        )
    if not profile.exists():
        raise BenchmarkError(f"{server.name} left no profile: it did not stop in time when it was asked to")
    pstats.Stats(str(profile)).sort_stats("tottime").print_stats(LINES)
    return profile
