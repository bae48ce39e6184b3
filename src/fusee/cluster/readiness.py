"""When a cluster is ready: every running name server leads to every running broker, and every slave is at its master.

Only nodes that run are looked at: a cluster whose master was killed is ready when the others have settled. Ready does
not mean level: a slave that was away for long may still have much to copy (`behind`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusee.cluster.observation import Observation, Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """How many of the things to be done are done, by kind, and in words what is missing."""

    answering: tuple[int, int]
    registered: tuple[int, int]
    attached: tuple[int, int]
    missing: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        return not self.missing


def readiness(observation: Observation) -> Readiness:
    """What is done and what is missing."""
    missing: list[str] = []
    running = [each for each in observation.seen if each.is_running]
    missing += [f"{each.node.name} does not answer: {each.failure}" for each in running if each.failure]
    registered = _registered(observation, missing)
    attached = _attached(observation, missing)
    return Readiness(
        answering=(sum(each.answers for each in running), len(running)),
        registered=registered,
        attached=attached,
        missing=tuple(missing),
    )


def behind(observation: Observation) -> tuple[str, ...]:
    """The running slaves that do not have all that their running masters have, in words."""
    found: list[str] = []
    for slave in observation.brokers:
        master = observation.group(slave.node.group)[0]
        if slave is master or not (slave.is_running and master.is_running):
            continue
        if slave.state is None or master.state is None:
            silent = slave if slave.state is None else master
            found.append(f"{silent.node.name} does not answer: {silent.failure}")
        elif slave.state.log_max_offset < master.state.log_max_offset:
            lag_bytes = master.state.log_max_offset - slave.state.log_max_offset
            found.append(f"{slave.node.name} is {lag_bytes} bytes behind {master.node.name}")
    return tuple(found)


def _registered(observation: Observation, missing: list[str]) -> tuple[int, int]:
    done = total = 0
    for name_server in observation.name_servers:
        for broker in observation.brokers:
            if not (name_server.is_running and broker.is_running):
                continue
            total += 1
            if name_server.knows(broker.node):
                done += 1
            elif name_server.answers:
                missing.append(f"{broker.node.name} is not registered with {name_server.node.name}")
    return done, total


def _attached(observation: Observation, missing: list[str]) -> tuple[int, int]:
    done = total = 0
    for master in observation.brokers:
        if not master.node.is_master or not master.is_running:
            continue
        slaves = [each for each in observation.group(master.node.group) if each.is_running and each is not master]
        connected = min(_connections(master), len(slaves))
        total += len(slaves)
        done += connected
        if connected < len(slaves) and master.answers:
            names = ", ".join(each.node.name for each in slaves)
            missing.append(f"{connected} of {len(slaves)} slaves ({names}) replicate from {master.node.name}")
    return done, total


def _connections(master: Seen) -> int:
    return 0 if master.replication is None else len(master.replication.ha_connection_info)
