"""The suite on a server of this process; tests/interop plays the same scenes on real servers."""

from __future__ import annotations

import pytest

from tests.client_suite.stage import Cluster, EmbeddedCluster


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Where the scenes play."""
    return EmbeddedCluster()
