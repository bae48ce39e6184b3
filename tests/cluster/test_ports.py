"""Ports of this machine: free ones, and those that are taken."""

from __future__ import annotations

import random
import socket

import pytest

from fusee.cluster import ports as module
from fusee.cluster.errors import ClusterError
from fusee.cluster.ports import CHOSEN_FROM, FreePorts, taken_ports

HOST = "127.0.0.1"


def test_free_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    with FreePorts(HOST) as ports:
        found = ports.choose(10) + ports.choose(10)
    assert len(set(found)) == 20
    assert all(port in CHOSEN_FROM for port in found)
    assert taken_ports(HOST, found) == []


def first_of(seed: int) -> int:
    with FreePorts(HOST, chooser=random.Random(seed)) as ports:
        return ports.choose(1)[0]


def test_port_that_somebody_listens_on_is_passed_over() -> None:
    first = first_of(7)
    with socket.create_server((HOST, first)):
        assert taken_ports(HOST, [first]) == [first]
        assert first_of(7) != first


def test_port_that_another_cluster_has_chosen_is_passed_over_until_it_lets_go() -> None:
    with FreePorts(HOST, chooser=random.Random(8)) as ports:
        (first,) = ports.choose(1)
        assert first_of(8) != first
    assert first_of(8) == first


def test_foreign_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRIES_MAX", 3)
    with FreePorts("192.0.2.1") as ports, pytest.raises(ClusterError, match="on 192.0.2.1; is that an address of this"):
        ports.choose(1)


def test_port_whose_connections_have_just_closed_is_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""
    assert taken_ports(HOST, [port]) == []
