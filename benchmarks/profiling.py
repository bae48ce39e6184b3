"""Where the microseconds go: cProfile of one of our servers under load, interpreted, for it cannot see into C."""

from __future__ import annotations

import pstats
import sys
from typing import TYPE_CHECKING, Final

from benchmarks.broker_frames import batch_frames, send_frames
from benchmarks.brokers import TOPIC, Contender, RunningBroker
from benchmarks.cluster import RegisteredCluster
from benchmarks.errors import BenchmarkError
from benchmarks.frames import write_frame_file
from benchmarks.loadgen import load_generator
from benchmarks.machine import cores
from benchmarks.plan import REPOSITORY
from benchmarks.results import OURS
from benchmarks.server_process import ServerProcess, free_port
from benchmarks.suites.broker import BATCHES, SENDS
from benchmarks.suites.namesrv import BOTH, WORKS, name_server_arguments
from fusee.compiled import PURE_VARIABLE

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.plan import Plan

LINES: Final = 30
# What a profiled broker is sent, and how.
_BROKER_LOADS: Final = {
    "broker": (send_frames, SENDS.shapes[-1]),
    "broker-connections": (send_frames, SENDS.shapes[0]),
    "broker-batches": (batch_frames, BATCHES.shapes[0]),
}
_INTERPRETED: Final = {PURE_VARIABLE: "1"}
PROFILES: Final = ("namesrv", *_BROKER_LOADS)


def profile(server: str, plan: Plan) -> Path:
    """Prints the costliest functions by their own time; returns the file for pstats or a viewer.

    `server` is one of PROFILES. Raises BenchmarkError when the server or the load fails.
    """
    written = plan.results / f"{server}.pstats"
    written.parent.mkdir(parents=True, exist_ok=True)
    written.unlink(missing_ok=True)
    if server == "namesrv":
        _load_name_server(plan, written)
    else:
        _load_broker(server, plan, written)
    if not written.exists():
        raise BenchmarkError(f"{server} left no profile: it did not stop in time when it was asked to")
    pstats.Stats(str(written)).sort_stats("tottime").print_stats(LINES)
    return written


def _load_broker(server: str, plan: Plan, written: Path) -> None:
    content, shape = _BROKER_LOADS[server]
    frames = plan.frames / "profile"
    write_frame_file(frames, content(TOPIC))
    profiler = ("-m", "cProfile", "-o", str(written))
    with RunningBroker(
        Contender(f"{OURS} under cProfile"), plan, python_options=profiler, environment=_INTERPRETED
    ) as broker:
        load_generator(plan.build, cores=cores().every).run(
            port=broker.port,
            frames=frames,
            connections=shape.connections,
            outstanding=shape.outstanding,
            warm_up_s=plan.warm_up_s,
            record_s=5 * plan.record_s,
            server_pid=broker.server.pid,
            expected_code=0,
        )


def _load_name_server(plan: Plan, written: Path) -> None:
    frames = plan.frames / "profile"
    write_frame_file(frames, [WORKS[0].request])
    port = free_port()
    placement = cores()
    server = ServerProcess(
        "Fusee's name server under cProfile",
        [
            *(sys.executable, "-m", "cProfile", "-o", str(written)),
            *name_server_arguments(port, plan),
        ],
        port=port,
        cores=placement.server,
        log_path=plan.logs / "profile-namesrv.log",
        cwd=REPOSITORY,
        environment=_INTERPRETED,
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
