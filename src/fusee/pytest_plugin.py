"""Fixtures for tests of programs that use a message queue: a real server, started in milliseconds.

`fusee_server`
    A name server and a broker of the test's own, with an empty store.
`fusee_clocked`
    The same under a clock that stands still: `fusee_clocked.advance(600)` lets ten minutes pass for the server and for
    the connections that `fusee_clocked.connect()` made, in milliseconds.
`fusee_name_server`
    The address of a server that all tests of a run share, for programs that only take an address.

The first two are blocking servers (`fusee.sync.EmbeddedServer`) on an event loop of their own, so they serve tests in
any style, in this process or another: `fusee_server.connect()` is a blocking connection, and a test that is a coroutine
uses `fusee.connect(fusee_server.name_server)`. A coroutine that needs the clock makes its own server instead:
`async with fusee.embedded(clock="manual") as server`.

The marker `fusee` has arguments of `fusee.embedded` for the servers of a test:

    @pytest.mark.fusee(topics=["orders"], message_delay_level="1s 5s")
    def test_order_is_tried_again(fusee_clocked): ...

Nothing is imported, and nothing started, for tests that use none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusee.sync import EmbeddedServer

_MARKER = "fusee"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_MARKER}(topics=..., **settings): what fusee.embedded() is given for this test's servers"
    )


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the markers around a test; the closest one goes first."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(_MARKER))):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{_MARKER} takes keyword arguments, as fusee.embedded does")
        options.update(marker.kwargs)
    return options


@pytest.fixture
def fusee_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A name server and a broker with an empty store, for this test alone."""
    from fusee.sync import embedded

    with embedded(**_options(request)) as server:
        yield server


@pytest.fixture
def fusee_clocked(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """The same with a clock that moves only by `advance`, also for connections made by its `connect`."""
    from fusee.sync import embedded

    with embedded(**{"clock": "manual", **_options(request)}) as server:
        yield server


@pytest.fixture(scope="session")
def fusee_name_server() -> Iterator[str]:
    """`host:port` of the name server of a server that all tests of this run share."""
    from fusee.sync import embedded

    with embedded() as server:
        yield server.name_server
