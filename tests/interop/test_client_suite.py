"""The suite of tests/client_suite on real servers: Apache RocketMQ 5.5.0, and ours in processes of their own."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.client_suite.stage import RealCluster
from tests.interop.python_client.servers import plain_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client_suite.stage import Cluster
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=["fusee", "java"])
def cluster(request: pytest.FixtureRequest, fleet: Fleet, current: Runtime) -> Iterator[Cluster]:
    """A name server and a broker of one make; one cluster at a time."""
    make: str = request.param
    servers = plain_servers(make, fleet, current)
    servers.start()
    try:
        yield RealCluster(make, servers.name_server.address)
        servers.assert_running()
    finally:
        servers.broker.kill()
        servers.name_server.kill()


def _collect() -> None:
    """Take in every test of the suite, whichever module it is in."""
    for path in sorted((Path(__file__).parent.parent / "client_suite").glob("test_*.py")):
        module = importlib.import_module(f"tests.client_suite.{path.stem}")
        for name, test in vars(module).items():
            if name.startswith("test_"):
                assert name not in globals(), f"two tests of the suite are called {name}"
                globals()[name] = test


_collect()
