"""High availability: what the death of a master costs clients, and what replication costs, beside Apache RocketMQ.

Each make has its own name server, brokers and clients, all with RocketMQ's defaults but for slaveReadEnable, without
which a Java slave hands out nothing. For a death there are two groups of a master and a slave; a program sends to both
and reads, one message at a time, and one master is killed. For the cost of replication one group gets sends without a
slave, with one that is not waited for, and with one that is (SYNC_MASTER, inSyncReplicas=2). Every round begins with
new processes and empty stores, the makes in turn.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.broker_frames import send_frames
from benchmarks.broker_groups import ASYNC_MASTER, PEER, SYNC_MASTER, BrokerGroups
from benchmarks.brokers import PLACEMENT, TOPIC, need_space, say
from benchmarks.errors import BenchmarkError, DisturbedError
from benchmarks.failover import GROUP, Noticed, watch_death
from benchmarks.failover import TOPIC as FAILOVER_TOPIC
from benchmarks.frames import write_frame_file
from benchmarks.interleaving import interleaved
from benchmarks.loadgen import LoadGenerator, load_generator
from benchmarks.machine import cores
from benchmarks.peers import rocketmq
from benchmarks.results import OURS, Findings, Row, Target, figure, judged
from benchmarks.suites.namesrv import Shape

if TYPE_CHECKING:
    from benchmarks.plan import Plan

TITLE: Final = "High availability"
COMMAND: Final = "python -m benchmarks --only ha"

# A run in which others left the server no time is made again, at most this often.
ATTEMPTS: Final = 5
BUSY: Final = Shape(8, 32)
ALONE: Final = Shape(1, 1)
NONE: Final = "no slave"
ASYNC: Final = "a slave that is not waited for"
SYNC: Final = "SYNC_MASTER"
SETUPS: Final = {NONE: (0, ASYNC_MASTER), ASYNC: (1, ASYNC_MASTER), SYNC: (1, SYNC_MASTER)}


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations of one run of this benchmark."""

    rounds: int
    warm_up_s: float
    settle_s: float
    record_s: float
    space_gb: float


FULL_PACE: Final = Pace(rounds=2, warm_up_s=5.0, settle_s=5.0, record_s=3.0, space_gb=20.0)
QUICK_PACE: Final = Pace(rounds=1, warm_up_s=0.5, settle_s=1.0, record_s=1.0, space_gb=5.0)


@dataclass(frozen=True, slots=True)
class Sends:
    """What one master did with one kind of replication."""

    per_second: float
    """Of many connections that do not wait for each other."""
    p50_us: float
    """One request after the other."""
    p99_us: float
    catch_up_mb: float | None
    """Megabytes per second that a new slave got of the log that was there."""


def run(plan: Plan) -> Findings:
    """Every row, with both makes when Java is there."""
    pace = QUICK_PACE if plan.quick else FULL_PACE
    need_space(plan, pace.space_gb)
    makes, notes = [OURS], []
    try:
        rocketmq.source(rocketmq.FAILOVER, home=plan.results)
        makes.append(PEER)
    except BenchmarkError as error:
        notes.append(f"without {PEER}: {error}")
    deaths = interleaved({make: partial(_death, make, plan, pace) for make in makes}, pace.rounds)
    generator = load_generator(plan.build, cores=cores().every)
    if generator.note:
        notes.append(generator.note)
    frames = plan.frames / "ha-send"
    write_frame_file(frames, send_frames(TOPIC))
    turns = {(make, setup): partial(_sends, make, setup, plan, pace, generator) for make in makes for setup in SETUPS}
    named = {f"{make}|{setup}": turn for (make, setup), turn in turns.items()}
    measured = interleaved(named, pace.rounds)
    sends = {key: measured[f"{key[0]}|{key[1]}"] for key in turns}
    notes.append(
        "for Java's consumer the time depends on when it next asks for the route, which it does every 30 s "
        "(pollNameServerInterval)"
    )
    return Findings([*_death_rows(deaths), *_send_rows(makes, sends)], notes, PLACEMENT)


def _death(make: str, plan: Plan, pace: Pace) -> Noticed:
    with BrokerGroups(make, plan, groups=2) as groups:
        arguments = (groups.name_server_address, FAILOVER_TOPIC, GROUP)
        if make == OURS:
            command = [sys.executable, "-m", "benchmarks.clients.fusee_failover", *arguments]
        else:
            command = rocketmq.source(rocketmq.FAILOVER, *arguments, home=plan.results)
        printed = plan.logs / f"ha-{make.split(maxsplit=1)[0]}-failover.log"
        seen = watch_death(groups, command, printed, plan, warm_up_s=pace.warm_up_s)
    say(
        f"{make}: read from the slave after {seen.read_s:.3f} s, sent to another group after {seen.sent_s:.3f} s, "
        f"longest send {seen.longest_send_s:.3f} s, {seen.failed} given up"
    )
    return seen


def _death_rows(deaths: dict[str, list[Noticed]]) -> list[Row]:
    def row(name: str, values: dict[str, list[float]], *, judge: bool = True) -> Row:
        figures = {make: figure(each) for make, each in values.items()}
        return judged(Row(name, "s", False, figures, [Target(PEER, 1.0)] if judge else [], COMMAND))

    return [
        row(
            "master killed: first message read from the slave",
            {make: [one.read_s for one in seen] for make, seen in deaths.items()},
        ),
        row(
            "master killed: first send accepted by another group",
            {make: [one.sent_s for one in seen] for make, seen in deaths.items()},
        ),
        row(
            "master killed: longest send in the 5 s after",
            {make: [one.longest_send_s for one in seen] for make, seen in deaths.items()},
            judge=False,
        ),
    ]


def _sends(make: str, setup: str, plan: Plan, pace: Pace, generator: LoadGenerator) -> Sends:
    slaves, role = SETUPS[setup]
    with BrokerGroups(make, plan, slaves=slaves, role=role) as groups:
        groups.create_topic(TOPIC, queues=4)
        (master,) = groups.masters

        def load_once(shape: Shape, record_s: float) -> tuple[float, float, float]:
            measured = generator.run(
                port=master.port,
                frames=plan.frames / "ha-send",
                connections=shape.connections,
                outstanding=shape.outstanding,
                warm_up_s=0.2,
                record_s=record_s,
                server_pid=master.pid,
                expected_code=0,
            )
            return measured.per_second, measured.p50_us, measured.p99_us

        def load(shape: Shape, record_s: float) -> tuple[float, float, float]:
            for _ in range(ATTEMPTS - 1):
                with suppress(DisturbedError):
                    return load_once(shape, record_s)
            return load_once(shape, record_s)

        def settle() -> None:
            # A Java master answers FLUSH_SLAVE_TIMEOUT until the connection of its slave has carried something.
            for _ in range(ATTEMPTS - 1):
                with suppress(BenchmarkError):
                    load(BUSY, pace.settle_s)
                    return
            load(BUSY, pace.settle_s)

        settle()
        groups.wait_level(master)
        _, p50_us, p99_us = load(ALONE, pace.record_s)
        per_second, _, _ = load(BUSY, pace.record_s)
        catch_up = None
        if setup == NONE:
            log_end_offset = master.log_end_offset()
            groups.start(master.name, 1)
            began = time.perf_counter()
            groups.wait_level(master)
            catch_up = log_end_offset / 1e6 / (time.perf_counter() - began)
    say(
        f"{make}, {setup}: {per_second:.0f} messages/s with {BUSY}, {p50_us:.0f} us with {ALONE}"
        + (f", a new slave gets {catch_up:.0f} MB/s" if catch_up is not None else "")
    )
    return Sends(per_second, p50_us, p99_us, catch_up)


def _send_rows(makes: list[str], sends: dict[tuple[str, str], list[Sends]]) -> list[Row]:
    target = [Target(PEER, 1.0)]
    rows: list[Row] = []
    for setup in SETUPS:
        figures = {make: figure([one.per_second for one in sends[make, setup]]) for make in makes}
        rows.append(judged(Row(f"send, {BUSY}, {setup}", "messages/s", True, figures, [], COMMAND)))
    for setup in (ASYNC, SYNC):
        ratios = {
            make: figure(
                [one.per_second / median(none.per_second for none in sends[make, NONE]) for one in sends[make, setup]]
            )
            for make in makes
        }
        rows.append(judged(Row(f"throughput with {setup}, of that without", "", True, ratios, target, COMMAND)))
    for setup in SETUPS:
        figures = {
            make: figure(
                [one.p50_us for one in sends[make, setup]], p99_us=median(one.p99_us for one in sends[make, setup])
            )
            for make in makes
        }
        rows.append(judged(Row(f"latency of a send, {ALONE}, {setup}", "us", False, figures, [], COMMAND)))
    for setup in (ASYNC, SYNC):
        ratios = {
            make: figure([one.p50_us / median(none.p50_us for none in sends[make, NONE]) for one in sends[make, setup]])
            for make in makes
        }
        rows.append(judged(Row(f"latency with {setup}, of that without", "", False, ratios, target, COMMAND)))
    figures = {make: figure([one.catch_up_mb or 0.0 for one in sends[make, NONE]]) for make in makes}
    rows.append(judged(Row("a new slave catches up, from when it listens", "MB/s", True, figures, target, COMMAND)))
    return rows
