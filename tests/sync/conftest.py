"""One server for the tests of the blocking API, and one whose clock stands still."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import fusee.sync

_numbers = itertools.count()


@pytest.fixture(scope="package")
def server() -> Iterator[fusee.sync.EmbeddedServer]:
    with fusee.sync.embedded() as running:
        yield running


@pytest.fixture
def mq(server: fusee.sync.EmbeddedServer) -> Iterator[fusee.sync.Connection]:
    with server.connect() as connection:
        yield connection


@pytest.fixture
def topic(server: fusee.sync.EmbeddedServer) -> str:
    """A topic of the test's own; its name serves for a group, too."""
    name = f"topic-{next(_numbers)}"
    server.create_topics([name])
    return name


@pytest.fixture
def clocked() -> Iterator[fusee.sync.EmbeddedServer]:
    with fusee.sync.embedded(clock="manual", topics=["orders"]) as running:
        yield running
