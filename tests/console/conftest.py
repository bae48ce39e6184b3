"""One furnished world for all tests that only look."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.world import Browser, World, browsing, furnished


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with furnished() as found:
        yield found


@pytest.fixture(scope="module")
def browser(world: World) -> Iterator[Browser]:
    with browsing(world.name_server) as found:
        yield found
