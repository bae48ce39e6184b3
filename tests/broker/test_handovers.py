"""Memory shared with a connection: for whom, what is taken from it, and when it ends."""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from pathlib import Path

import pytest

from fusee.broker.handovers import (
    HANDOVER_SIZE_MAX,
    HANDOVERS_MAX,
    HANDOVERS_SIZE_MAX,
    MARK_SIZE,
    Handovers,
    is_of_this_machine,
)
from fusee.clock import ManualClock
from fusee.errors import InvalidRequestError
from fusee.transport.link import Link

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason=f"{sys.platform} has no nameless files")


def link(remote: str = "127.0.0.1:5000", local: str = "127.0.0.1:10911") -> Link:
    clock = ManualClock()
    made = Link(clock=clock, timers=clock)
    made.remote_address, made.local_address = remote, local
    return made


def test_what_is_written_at_its_path_is_what_the_broker_takes() -> None:
    handovers, peer = Handovers(), link()
    handover = handovers.open(peer, 8192)
    assert handover is not None
    assert handover.size == 8192
    with Path(handover.path).open("r+b") as file, mmap.mmap(file.fileno(), 8192) as memory:
        assert memory[:MARK_SIZE] == handover.mark.encode()
        memory[100:105] = b"hello"
        assert bytes(handovers.view(peer, 100, 5)) == b"hello"
    assert bytes(handovers.view(peer, 8188, 4)) == bytes(4)


def test_its_size_cannot_be_changed_by_anybody() -> None:
    handover = Handovers().open(link(), 8192)
    assert handover is not None
    descriptor = os.open(handover.path, os.O_RDWR)
    try:
        for size in (0, 4096, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("at", "size"), [(0, 10), (MARK_SIZE - 1, 1), (-5, 3), (100, 0), (100, -1), (8190, 3), (9000, 1)]
)
def test_what_lies_outside_is_refused(at: int, size: int) -> None:
    handovers, peer = Handovers(), link()
    handovers.open(peer, 8192)
    with pytest.raises(InvalidRequestError, match="not in a handover of 8192"):
        handovers.view(peer, at, size)


def test_each_connection_has_its_own_and_at_most_one() -> None:
    handovers, first, second = Handovers(), link(), link()
    opened, other = handovers.open(first, 4096), handovers.open(second, 4096)
    assert opened is not None
    assert other is not None
    assert opened.mark != other.mark
    assert handovers.open(first, 4096) is None
    with pytest.raises(InvalidRequestError, match="open one first"):
        handovers.view(link(), 100, 1)


def test_it_ends_with_its_connection() -> None:
    handovers, peer = Handovers(), link()
    handover = handovers.open(peer, 4096)
    assert handover is not None
    handovers.link_lost(peer)
    handovers.link_lost(peer)
    assert len(handovers) == 0
    with pytest.raises(InvalidRequestError, match="open one first"):
        handovers.view(peer, 100, 1)
    assert not Path(handover.path).exists() or "fusee-handover" not in str(Path(handover.path).readlink())


def test_it_may_be_looked_at_when_its_connection_ends() -> None:
    handovers, peer = Handovers(), link()
    handovers.open(peer, 4096)
    view = handovers.view(peer, 100, 4)
    handovers.link_lost(peer)
    assert bytes(view) == bytes(4)


def test_there_are_limits() -> None:
    handovers = Handovers()
    large = handovers.open(link(), 1 << 30)
    assert large is not None
    assert large.size == HANDOVER_SIZE_MAX
    assert handovers.open(link(), MARK_SIZE) is None
    peers = [link() for _ in range(HANDOVERS_MAX)]
    assert sum(handovers.open(peer, 4096) is not None for peer in peers) == HANDOVERS_MAX - 1
    handovers.link_lost(peers[0])
    assert handovers.open(link(), 4096) is not None


def test_all_together_have_a_limit() -> None:
    handovers = Handovers()
    full = HANDOVERS_SIZE_MAX // HANDOVER_SIZE_MAX
    assert full < HANDOVERS_MAX
    peers = [link() for _ in range(full)]
    for peer in peers[:-1]:
        handovers.open(peer, 1 << 30)
    assert handovers.open(link(), 4096) is not None
    last = handovers.open(peers[-1], 1 << 30)
    assert last is not None
    assert last.size == HANDOVER_SIZE_MAX - 4096
    assert handovers.open(link(), 4096) is None
    handovers.link_lost(peers[0])
    assert handovers.open(link(), 4096) is not None


@pytest.mark.parametrize(
    ("remote", "local", "is_here"),
    [
        ("127.0.0.1:5000", "127.0.0.1:10911", True),
        ("10.0.0.2:5000", "10.0.0.2:10911", True),
        ("[::1]:5000", "[::1]:10911", True),
        ("10.0.0.3:5000", "10.0.0.2:10911", False),
        ("", "10.0.0.2:10911", False),
    ],
)
def test_only_who_comes_from_the_same_address_is_of_this_machine(remote: str, local: str, is_here: bool) -> None:
    peer = link(remote, local)
    assert is_of_this_machine(peer) is is_here
    assert (Handovers().open(peer, 4096) is not None) is is_here
