"""Forms: what compiling the hot modules is worth, by our own servers in both forms under the same load in turn."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.broker_frames import batch_frames, pull_frames, pulled_depth, queue_depths, send_frames
from benchmarks.brokers import PLACEMENT, TOPIC, Contender, RunningBroker, need_space, only
from benchmarks.cluster import RegisteredCluster
from benchmarks.errors import BenchmarkError
from benchmarks.frames import write_frame_file
from benchmarks.interleaving import interleaved
from benchmarks.loadgen import LoadGenerator, Measurement, load_generator
from benchmarks.machine import cores
from benchmarks.plan import REPOSITORY
from benchmarks.results import OURS, Findings, Row, figure, judged
from benchmarks.server_process import ServerProcess, free_port
from benchmarks.suites.broker import BATCHES, PULLS, SENDS
from benchmarks.suites.namesrv import MANY, WORKS, name_server_arguments
from fusee.compiled import PURE_VARIABLE, form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.plan import Plan

TITLE: Final = "Compiled and interpreted"
COMMAND: Final = "python -m benchmarks --only forms"
INTERPRETED: Final = "interpreted"

# Of free disk: the short form, the full one, which sends for some minutes.
_SPACE_GB: Final = (2.0, 20.0)


def run(plan: Plan) -> Findings:
    """Name server and broker, each in both forms. Raises BenchmarkError when nothing is compiled."""
    if form() != "compiled":
        raise BenchmarkError(f"this installation is {form()}: run `make compile`, which needs a C compiler")
    need_space(plan, _SPACE_GB[0] if plan.quick else _SPACE_GB[1])
    generator = load_generator(plan.build, cores=cores().every)
    rows = [*_name_server_rows(plan, generator), *_broker_rows(plan, generator)]
    return Findings(rows, [generator.note] if generator.note else [], PLACEMENT)


def _environment(name: str) -> dict[str, str]:
    return {PURE_VARIABLE: "1" if name == INTERPRETED else ""}


def _row(plan: Plan, name: str, messages: int, turns: Mapping[str, Callable[[], Measurement]]) -> Row:
    measured = interleaved(turns, plan.repetitions)
    figures = {
        who: figure(
            [one.per_second * messages for one in runs],
            server_cpu_us=median(one.server_cpu_us / messages for one in runs),
            server_cores=median(one.server_cores for one in runs),
            p99_us=median(one.p99_us for one in runs),
            generator_cores=median(one.generator_cores for one in runs),
            other_cores=median(one.other_cores for one in runs),
        )
        for who, runs in measured.items()
    }
    return judged(Row(name, "per second", True, figures, [], COMMAND))


def _name_server_rows(plan: Plan, generator: LoadGenerator) -> list[Row]:
    frames = plan.frames / "forms-namesrv"
    rows = []
    with ExitStack() as stack:
        servers: dict[str, ServerProcess] = {}
        for name in (OURS, INTERPRETED):
            port = free_port()
            servers[name] = stack.enter_context(
                ServerProcess(
                    f"Fusee's name server, {name}",
                    [sys.executable, *name_server_arguments(port, plan)],
                    port=port,
                    cores=cores().every,
                    log_path=plan.logs / f"forms-namesrv-{name}.log",
                    cwd=REPOSITORY,
                    environment=_environment(name),
                )
            )
            stack.enter_context(RegisteredCluster(port))
        for work in WORKS:
            write_frame_file(frames, [work.request])
            turns = {
                name: partial(
                    generator.run,
                    port=server.port,
                    frames=frames,
                    connections=MANY.connections,
                    outstanding=MANY.outstanding,
                    warm_up_s=plan.warm_up_s,
                    record_s=plan.record_s,
                    server_pid=server.pid,
                    expected_code=work.answer_code,
                )
                for name, server in servers.items()
            }
            rows.append(_row(plan, f"name server: {work.name}, {MANY}", 1, turns))
    return rows


def _broker_rows(plan: Plan, generator: LoadGenerator) -> list[Row]:
    contents = {SENDS: send_frames(TOPIC), BATCHES: batch_frames(TOPIC), PULLS: pull_frames(TOPIC)}
    files: dict[str, Path] = {}
    for work, content in contents.items():
        files[work.name] = plan.frames / f"forms-{work.name.replace(' ', '-')}"
        write_frame_file(files[work.name], content)
    rows = []
    with ExitStack() as stack:
        running = [
            stack.enter_context(RunningBroker(Contender(name), plan, environment=_environment(name)))
            for name in (OURS, INTERPRETED)
        ]

        def load(broker: RunningBroker, name: str, connections: int, outstanding: int) -> Measurement:
            only(broker, running)
            if not plan.quick:
                os.sync()
            return generator.run(
                port=broker.port,
                frames=files[name],
                connections=connections,
                outstanding=outstanding,
                warm_up_s=plan.warm_up_s,
                record_s=plan.record_s,
                server_pid=broker.server.pid,
                expected_code=0,
            )

        for broker in running:
            only(broker, running)
            while min(queue_depths(broker.port, TOPIC)) < pulled_depth():
                load(broker, SENDS.name, SENDS.shapes[-1].connections, SENDS.shapes[-1].outstanding)
        for work in (PULLS, SENDS, BATCHES):
            for shape in work.shapes:
                turns = {
                    broker.name: partial(load, broker, work.name, shape.connections, shape.outstanding)
                    for broker in running
                }
                rows.append(_row(plan, f"broker: {work.name}, {shape}", work.messages, turns))
    return rows
