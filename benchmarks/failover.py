"""What clients notice when a master is killed: a program sends and reads, and its times count from the death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.broker_frames import send_frames
from benchmarks.cluster import ANSWER_LIMIT_S, exchange
from benchmarks.errors import BenchmarkError
from benchmarks.machine import cores, pinned_to

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.broker_groups import BrokerGroups, GroupBroker
    from benchmarks.plan import Plan

TOPIC: Final = "BenchmarkFailover"
GROUP: Final = "benchmark_failover"
DEAD: Final = "broker-a"
# One message is read every 5 ms: this lasts for a minute.
BACKLOG: Final = 12_000
# A consumer that is told to hold one message may hold one more, and have asked for a third.
HELD_MAX: Final = 3
BEGIN_LIMIT_S: Final = 60.0
NOTICE_LIMIT_S: Final = 150.0
STOP_LIMIT_S: Final = 10.0
POLL_S: Final = 0.02
# How long sends are watched for the longest wait.
AFTERMATH_S: Final = 5.0


class Event(NamedTuple):
    """A line of the program: a message read at a queue offset, or a send that began at a time and was accepted."""

    what: str
    at_ns: int
    broker_name: str
    number: int


@dataclass(frozen=True, slots=True)
class Noticed:
    """Seconds from the death of a master."""

    read_s: float
    """Until the first message of its queue was read from the slave."""
    sent_s: float
    """Until a send that was under way at the death, or began after it, was accepted by another group."""
    longest_send_s: float
    """The longest that a send took in the time after it, with the client's own new tries."""
    failed: int
    """Sends that the client gave up."""


def watch_death(groups: BrokerGroups, command: list[str], printed: Path, plan: Plan, *, warm_up_s: float) -> Noticed:
    """Lets the program send to all groups and read, kills a master, and tells when the program noticed what."""
    groups.create_topic(TOPIC, queues=1)
    master = groups.brokers[DEAD, 0]
    _store(master, BACKLOG // 2 if plan.quick else BACKLOG)
    groups.wait_level(master)
    groups.wait_known(TOPIC)
    printed.parent.mkdir(parents=True, exist_ok=True)
    with printed.open("wb") as log, pinned_to(cores().every):
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for_traffic(child, printed)
        time.sleep(warm_up_s)
        killed_at_ns = time.time_ns()
        os.kill(master.pid, signal.SIGKILL)
        return _noticed(child, printed, killed_at_ns)
    finally:
        child.terminate()
        try:
            child.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def events_of(text: str) -> list[Event]:
    """What the program has told, in whole lines; what else it prints is passed over."""
    events: list[Event] = []
    for line in text.splitlines(keepends=True):
        words = line.split()
        if line.endswith("\n") and len(words) == 4 and words[0] in ("read", "sent", "failed"):
            events.append(Event(words[0], int(words[1]), words[2], int(words[3])))
    return events


def noticed(events: list[Event], killed_at_ns: int) -> Noticed | None:
    """What these events tell about a death at this time; None while they do not tell all of it."""
    reads = [one for one in events if one.what == "read" and one.broker_name == DEAD]
    last_before = max((one.number for one in reads if one.at_ns < killed_at_ns), default=-1)
    from_slave = next((one for one in reads if one.number > last_before + HELD_MAX), None)
    sends = [one for one in events if one.what != "read" and one.at_ns >= killed_at_ns]
    accepted = next((one for one in sends if one.what == "sent" and one.broker_name != DEAD), None)
    if from_slave is None or accepted is None:
        return None
    return Noticed(
        read_s=(from_slave.at_ns - killed_at_ns) / 1e9,
        sent_s=(accepted.at_ns - killed_at_ns) / 1e9,
        longest_send_s=max(one.at_ns - one.number for one in sends) / 1e9,
        failed=sum(one.what == "failed" for one in sends),
    )


def _store(master: GroupBroker, count: int) -> None:
    with socket.create_connection(("127.0.0.1", master.port), timeout=ANSWER_LIMIT_S) as connection:
        for frame in send_frames(TOPIC, queues=1, count=count):
            code, _ = exchange(connection, frame)
            if code:
                raise BenchmarkError(f"{master.label} does not take the backlog: code {code}")


def _wait_for_traffic(child: subprocess.Popen[bytes], printed: Path) -> None:
    deadline = time.monotonic() + BEGIN_LIMIT_S
    while True:
        events = events_of(printed.read_text(errors="replace"))
        sent_to = {one.broker_name for one in events if one.what == "sent"}
        if len(sent_to) > 1 and any(one.what == "read" and one.broker_name == DEAD for one in events):
            return
        if child.poll() is not None or time.monotonic() > deadline:
            raise BenchmarkError(
                f"the program does not send to all groups and read: {printed.read_text(errors='replace')[-1000:]}"
            )
        time.sleep(POLL_S)


def _noticed(child: subprocess.Popen[bytes], printed: Path, killed_at_ns: int) -> Noticed:
    begin = time.monotonic()
    while True:
        found = noticed(events_of(printed.read_text(errors="replace")), killed_at_ns)
        waited_s = time.monotonic() - begin
        if found is not None and waited_s > AFTERMATH_S:
            return found
        if child.poll() is not None or waited_s > NOTICE_LIMIT_S:
            raise BenchmarkError(
                f"{waited_s:.0f} s after the death of a master not all had gone on: "
                f"{printed.read_text(errors='replace')[-1000:]}"
            )
        time.sleep(POLL_S)
