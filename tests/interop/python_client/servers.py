"""Servers of either make, side by side in one run, where the matrix has one make for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.clients.servers import BROKER_VARIABLE, Servers
from tests.interop.harness.cluster import SUBJECT_VARIABLE

if TYPE_CHECKING:
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime


def plain_servers(make: str, fleet: Fleet, runtime: Runtime) -> Servers:
    """A name server and a broker of one make, with the settings of the matrix, not started."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(BROKER_VARIABLE, make)
        environment.setenv(SUBJECT_VARIABLE, make)
        return Servers.plain(fleet, runtime)
