"""Processes that do nothing, to be signalled, and clusters written down as if they were made of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fusee.cluster.plan import Shape, Wanted, nodes_of
from fusee.cluster.processes import Process, end, launch
from fusee.cluster.state_file import ClusterState, write_state

IDLE = "import signal; signal.pause()"
SHAPE = Shape(groups=1, replicas=2, name_servers=1, first_port=20_000)
NAMES = ("namesrv-1", "broker-a", "broker-a-s1")


@contextmanager
def idle(log: Path, *arguments: str, program: str = IDLE) -> Iterator[Process]:
    process = launch([sys.executable, "-S", "-c", program, *arguments], log=log, environment={})
    try:
        yield process
    finally:
        end([process], grace=0)


@contextmanager
def written_down(data: Path) -> Iterator[ClusterState]:
    """A cluster whose state file names idle processes."""
    state = ClusterState(cluster="c", shape=SHAPE, nodes=nodes_of(SHAPE))
    with idle(data / "1") as first, idle(data / "2") as second, idle(data / "3") as third:
        for node, process in zip(state.nodes, (first, second, third), strict=True):
            state = state.with_node(msgspec.structs.replace(node, process=process, wanted=Wanted.UP))
        write_state(data, state)
        yield state
