"""Start and memory of everything in one process, beside Apache RocketMQ's name server and broker as two.

A start ends when a client that asks the name server has a message acknowledged. Memory is what is resident ten seconds
later, after some messages: all of it, which counts pages of mapped files, and the process's own. RocketMQ has no
console in these processes; ours is measured before anybody has come to it and once more when its overview was shown.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.broker_frames import has_route, send_once
from benchmarks.brokers import BESIDE_HEAP_MB, TEMPLATE_TOPIC, TOPIC, free_broker_port, say
from benchmarks.errors import BenchmarkError
from benchmarks.machine import cores
from benchmarks.peers import rocketmq
from benchmarks.plan import REPOSITORY
from benchmarks.process_usage import available_mb, resident_mb
from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from benchmarks.server_process import ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.plan import Plan

TITLE: Final = "Start and memory of everything: `fusee serve` beside name server and broker of Apache RocketMQ"
COMMAND: Final = "python -m benchmarks --only serve"
PEER: Final = f"RocketMQ {rocketmq.VERSION} as its scripts start it"
SMALL_PEER: Final = f"RocketMQ {rocketmq.VERSION}, 1 GB heaps"
# What the scripts of the release give to name server and broker; the broker touches all of it at its start.
SCRIPT_HEAPS: Final = ("4g", "8g")
SCRIPT_HEAPS_MB: Final = 12_900.0
RATIO_MIN: Final = 10.0
ANSWER_LIMIT_S: Final = 90.0
POLL_S: Final = 0.005
MESSAGES: Final = 100


@dataclass(frozen=True, slots=True)
class Measured:
    """One start."""

    start_s: float
    resident_mb: float
    own_mb: float
    shown_mb: float | None = None
    """All that is resident when the console has been shown; None where there is none."""


def run(plan: Plan) -> Findings:
    """Both, turn by turn."""
    rounds = 1 if plan.quick else 3
    settle_s = 2.0 if plan.quick else 10.0
    notes: list[str] = []
    turns: dict[str, Callable[[Plan, float], Measured]] = {OURS: _ours, SMALL_PEER: partial(_theirs, ("1g", "1g"))}
    if available_mb() >= SCRIPT_HEAPS_MB + BESIDE_HEAP_MB:
        turns[PEER] = partial(_theirs, SCRIPT_HEAPS)
    else:
        notes.append(f"without {PEER}: {available_mb():.0f} MB are available, its heaps are {SCRIPT_HEAPS_MB:.0f}")
    found: dict[str, list[Measured]] = {name: [] for name in turns}
    _ours(plan, 0.0)  # what the first start compiles, the others find
    for _ in range(rounds):
        for name, measure in turns.items():
            try:
                found[name].append(measure(plan, settle_s))
            except BenchmarkError as error:
                if name == OURS:
                    raise
                notes.append(f"without {name}: {error}")
            else:
                say(f"{name}: {found[name][-1]}")
    rows = [
        _row("start until a message is acknowledged", "s", found, lambda one: one.start_s),
        _row("memory, all that is resident", "MB", found, lambda one: one.resident_mb),
        _row("memory, without pages of mapped files", "MB", found, lambda one: one.own_mb),
        _row("memory, with the console loaded and shown", "MB", found, _with_console, is_judged=False),
    ]
    return Findings(rows, list(dict.fromkeys(notes)), "nothing pinned")


def _with_console(one: Measured) -> float:
    return one.resident_mb if one.shown_mb is None else one.shown_mb


def _row(
    name: str,
    unit: str,
    found: dict[str, list[Measured]],
    part: Callable[[Measured], float],
    *,
    is_judged: bool = True,
) -> Row:
    figures = {who: figure([part(one) for one in measured]) for who, measured in found.items() if measured}
    targets = [] if not is_judged else [Target(peer, RATIO_MIN) for peer in (PEER, SMALL_PEER)]
    return judged(Row(name, unit, False, figures, targets, COMMAND))


def _ours(plan: Plan, settle_s: float) -> Measured:
    port, name_server_port, console_port = free_broker_port(), free_port(), free_port()
    with ExitStack() as stack:
        folder = _folder(plan, stack)
        server = ServerProcess(
            "fusee serve",
            [
                *(sys.executable, "-m", "fusee", "serve", "--data", str(folder)),
                *("--namesrv-port", str(name_server_port), "--broker-port", str(port)),
                *("--console-port", str(console_port), "--log-level", "warning"),
            ],
            port=name_server_port,
            cores=cores().every,
            log_path=plan.logs / "serve.log",
            cwd=REPOSITORY,
            stop_limit_s=15.0,
        )
        begin = time.perf_counter()
        stack.enter_context(server)
        start_s = _until_acknowledged(name_server_port, port, begin)
        time.sleep(settle_s)
        before = resident_mb(server.pid)
        with urllib.request.urlopen(f"http://127.0.0.1:{console_port}/", timeout=30) as page:
            page.read()
        time.sleep(settle_s / 2)
        return Measured(start_s, *before, shown_mb=resident_mb(server.pid)[0])


def _theirs(heaps: tuple[str, str], plan: Plan, settle_s: float) -> Measured:
    port = free_broker_port()
    with ExitStack() as stack:
        folder = _folder(plan, stack)
        begin = time.perf_counter()
        name_server = stack.enter_context(rocketmq.name_server(plan, cores=cores().every, heap=heaps[0]))
        settings = folder / "broker.properties"
        settings.write_text(
            f"brokerName=broker-a\nnamesrvAddr=127.0.0.1:{name_server.port}\nbrokerIP1=127.0.0.1\nlistenPort={port}\n"
            f"haListenPort={free_port()}\nstorePathRootDir={folder / 'store'}\n"
            f"storePathCommitLog={folder / 'store' / 'commitlog'}\nautoCreateTopicEnable=true\n"
        )
        broker = stack.enter_context(
            rocketmq.broker(
                settings,
                port=port,
                heap=heaps[1],
                cores=cores().every,
                log_path=plan.logs / "serve-peer.log",
                is_touched=heaps == SCRIPT_HEAPS,
            )
        )
        start_s = _until_acknowledged(name_server.port, port, begin)
        time.sleep(settle_s)
        both = [resident_mb(server.pid) for server in (name_server, broker)]
        return Measured(start_s, sum(one[0] for one in both), sum(one[1] for one in both))


def _folder(plan: Plan, stack: ExitStack) -> Path:
    plan.build.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="serve-", dir=plan.build))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _until_acknowledged(name_server_port: int, port: int, begin: float) -> float:
    """Seconds until a message was acknowledged; then some more are sent."""
    deadline = time.monotonic() + ANSWER_LIMIT_S
    while time.monotonic() < deadline:
        try:
            if has_route(name_server_port, TEMPLATE_TOPIC) and send_once(port, TOPIC) == 0:
                took_s = time.perf_counter() - begin
                for _ in range(MESSAGES):
                    send_once(port, TOPIC)
                return took_s
        except (BenchmarkError, OSError):
            pass
        time.sleep(POLL_S)
    raise BenchmarkError(f"no message was acknowledged within {ANSWER_LIMIT_S:.0f} s")
