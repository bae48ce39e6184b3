"""The file in which a cluster is written down, so that one command can end what another one began.

`cluster.json` in the cluster's folder: its shape, its nodes, and the process of each that was started. It is replaced
as a whole and synced, so a reader sees the old or the new one. Whoever changes it, or the processes in it, holds the
lock of `cluster.lock` meanwhile; readers need no lock.

A crash between the start of a process and its entry here leaves a process that the file does not know; it is found by
its command line, which names a file in this folder (`processes.started_as`).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.cluster.errors import ClusterError
from fusee.cluster.patience import Patience, breathe
from fusee.cluster.plan import Node, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATE_NAME: Final = "cluster.json"
LOCK_NAME: Final = "cluster.lock"
FORMAT: Final = 1
_SIZE_MAX: Final = 4 * 1024 * 1024
_LOCK_PATIENCE: Final = 15.0
_LOCK_LOOK: Final = 0.05


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster as it is written down."""

    format: int = FORMAT
    cluster: str
    shape: Shape
    nodes: tuple[Node, ...]

    @property
    def name_servers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.is_broker)

    @property
    def brokers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def name_server_addresses(self) -> str:
        """For clients: all name servers, joined by `;`."""
        return ";".join(node.address for node in self.name_servers)

    def with_node(self, changed: Node) -> ClusterState:
        """The same with another state of one node."""
        nodes = tuple(changed if node.name == changed.name else node for node in self.nodes)
        return msgspec.structs.replace(self, nodes=nodes)


def read_state(data: Path) -> ClusterState | None:
    """The cluster that is written down in this folder; None when there is none. Raises ClusterError."""
    path = data / STATE_NAME
    try:
        with path.open("rb") as file:
            text = file.read(_SIZE_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        found = msgspec.json.decode(text, type=_Head)
        if found.format != FORMAT:
            raise ClusterError(
                f"{path} has format {found.format}, this version of Fusee knows {FORMAT}: use the version that wrote it"
            )
        return msgspec.json.decode(text, type=ClusterState)
    except msgspec.MsgspecError as error:
        raise ClusterError(
            f"{path} is no description of a cluster ({error}). If its processes are gone, delete the folder and start "
            "a new cluster"
        ) from error


def write_state(data: Path, state: ClusterState) -> None:
    """Replace what is written down. Raises ClusterError."""
    path = data / STATE_NAME
    fresh = path.with_suffix(".new")
    try:
        with fresh.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror or error}") from error


def remove_state(data: Path) -> None:
    """Forget the cluster."""
    for name in (STATE_NAME, LOCK_NAME):
        with suppress(FileNotFoundError):
            (data / name).unlink()


@contextmanager
def locked(data: Path) -> Iterator[None]:
    """Be the only one who changes this cluster. Raises ClusterError when another is at it for too long."""
    path = data / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ClusterError(f"{path} cannot be opened: {error.strerror or error}") from error
    try:
        patience = Patience(_LOCK_PATIENCE)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience.is_over:
                    raise ClusterError(
                        f"another command has been changing the cluster in {data} for {_LOCK_PATIENCE:g} s; wait for "
                        "it to end, then try again"
                    ) from None
                breathe(_LOCK_LOOK)
        yield
    finally:
        os.close(descriptor)


class _Head(msgspec.Struct):
    format: int = 0
