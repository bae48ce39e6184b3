"""The state of a cluster as people and scripts read it: each node, how far slaves are behind, what a death would cost.

A slave's lag in bytes is from the end of its log to the end of its master's; in seconds, it is the age of the oldest
message that the slave lacks. The log of a master that is down or paused is read from its files instead.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.cluster.backlog import backlog, log_end_of, store_time_after
from fusee.cluster.loss import Copy, Loss, broker_loss, name_server_loss
from fusee.cluster.plan import NodeFiles, Wanted
from fusee.cluster.processes import ProcessState
from fusee.cluster.readiness import readiness

if TYPE_CHECKING:
    from pathlib import Path

    from fusee.cluster.observation import Observation, Seen
    from fusee.cluster.state_file import ClusterState

_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_AMOUNT: Final = re.compile(r"(\d+)(?:\.(\d+))? ([KMGT]?i?B)")
DIED: Final = "died"


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node."""

    name: str
    kind: str
    group: str
    broker_id: int
    role: str
    address: str
    pid: int | None
    state: str
    """`running`, `paused`, `killed`, `stopped`, or `died` when nobody asked for it."""
    registered_with: tuple[str, ...]
    """Of a broker: the name servers that lead to it."""
    log_end_offset: int | None
    lag_bytes: int | None
    lag_seconds: float | None
    loss: Loss
    problem: str
    log: str


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster."""

    cluster: str
    data: str
    shape: str
    name_servers: str
    """For clients: the addresses of all name servers."""
    is_ready: bool
    """Whether every node runs and is where it should be."""
    missing: tuple[str, ...]
    """What is not as it should be, in words."""
    nodes: tuple[NodeStatus, ...]


def cluster_status(state: ClusterState, data: Path, observation: Observation) -> ClusterStatus:
    """Everything there is to tell. Reads files of stores."""
    in_sync = {each.node.group for each in observation.brokers if each.node.role == "SYNC_MASTER"}
    copies = {
        each.node.name: _copy(each, NodeFiles(data, each.node), each.node.group in in_sync)
        for each in observation.brokers
    }
    nodes = tuple(
        _broker_status(each, data, observation, copies)
        if each.node.is_broker
        else _name_server_status(each, data, observation)
        for each in observation.seen
    )
    missing = [_absence(each) for each in nodes if each.state != ProcessState.RUNNING.value]
    missing += readiness(observation).missing
    return ClusterStatus(
        cluster=state.cluster,
        data=str(data),
        shape=state.shape.text,
        name_servers=state.name_server_addresses,
        is_ready=not missing,
        missing=tuple(missing),
        nodes=nodes,
    )


def state_word(seen: Seen) -> str:
    """What a node does, or how it ended."""
    if seen.process is not ProcessState.GONE:
        return str(seen.process.value)
    return DIED if seen.node.wanted is Wanted.UP else str(seen.node.wanted.value)


def unflushed_bytes(text: str) -> int | None:
    """The most that a rounded amount such as `1.7 KiB` can mean; None when it is none."""
    found = _AMOUNT.fullmatch(text)
    if found is None or found[3] not in _UNITS:
        return None
    whole, fraction, unit = found[1], found[2] or "", found[3]
    if unit == "B":
        return int(whole)
    return int((int(whole + fraction) + 1) * _UNITS[unit] / 10 ** len(fraction))


def _absence(node: NodeStatus) -> str:
    return f"{node.name} has died by itself: see {node.log}" if node.state == DIED else f"{node.name} is {node.state}"


def _copy(seen: Seen, files: NodeFiles, is_sync: bool) -> Copy:
    end_offset = seen.state.log_max_offset if seen.state is not None else None
    flushed_offset = None
    if seen.state is not None and end_offset is not None:
        unflushed = unflushed_bytes(seen.state.table.get("remainHowManyDataToFlush", ""))
        flushed_offset = None if unflushed is None else max(end_offset - unflushed, 0)
    elif not seen.is_running:
        end_offset = log_end_of(files.store)
    return Copy(
        name=seen.node.name,
        is_up=seen.process is not ProcessState.GONE,
        is_master=seen.node.is_master,
        is_sync=is_sync,
        end_offset=end_offset,
        flushed_offset=flushed_offset,
    )


def _name_server_status(seen: Seen, data: Path, observation: Observation) -> NodeStatus:
    others = [each.node.name for each in observation.name_servers if each is not seen and each.is_running]
    loss = name_server_loss(is_up=seen.is_running, others_up=others)
    return _status(seen, data, loss=loss)


def _broker_status(seen: Seen, data: Path, observation: Observation, copies: dict[str, Copy]) -> NodeStatus:
    node = seen.node
    group = [each.node for each in observation.group(node.group)]
    master = next(each for each in group if each.is_master)
    copy = copies[node.name]
    others = [copies[each.name] for each in group if each.name != node.name]
    loss = broker_loss(copy, others, count=partial(backlog, NodeFiles(data, node).store))
    lag_bytes, lag_seconds = (None, None)
    if not node.is_master:
        lag_bytes, lag_seconds = _lag(copies[master.name], copy, NodeFiles(data, master).store, observation.time_ms)
    return _status(
        seen,
        data,
        loss=loss,
        registered_with=tuple(each.node.name for each in observation.name_servers if each.knows(node)),
        log_end_offset=copy.end_offset,
        lag_bytes=lag_bytes,
        lag_seconds=lag_seconds,
    )


def _lag(master: Copy, slave: Copy, store: Path, time_ms: int) -> tuple[int | None, float | None]:
    if master.end_offset is None or slave.end_offset is None:
        return None, None
    lag_bytes = max(master.end_offset - slave.end_offset, 0)
    if not lag_bytes:
        return 0, 0.0
    oldest_ms = store_time_after(store, slave.end_offset)
    return lag_bytes, None if oldest_ms is None else max(time_ms - oldest_ms, 0) / 1000


def _status(
    seen: Seen,
    data: Path,
    *,
    loss: Loss,
    registered_with: tuple[str, ...] = (),
    log_end_offset: int | None = None,
    lag_bytes: int | None = None,
    lag_seconds: float | None = None,
) -> NodeStatus:
    node = seen.node
    return NodeStatus(
        name=node.name,
        kind=node.kind.value,
        group=node.group,
        broker_id=node.broker_id,
        role=node.role,
        address=node.address,
        pid=None if node.process is None or seen.process is ProcessState.GONE else node.process.pid,
        state=state_word(seen),
        registered_with=registered_with,
        log_end_offset=log_end_offset,
        lag_bytes=lag_bytes,
        lag_seconds=lag_seconds,
        loss=loss,
        problem=seen.failure,
        log=str(NodeFiles(data, node).log),
    )
