"""What interoperation tests are given: class paths, running servers, mqadmin; all of it gone afterwards."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.harness.cluster import Cluster
from tests.interop.harness.processes import Fleet
from tests.interop.harness.programs import ForkedMqAdmin, Judge, ResidentMqAdmin
from tests.interop.harness.toolchain import CURRENT, OLD, Toolchain, ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.interop.harness.programs import MqAdmin
    from tests.interop.harness.toolchain import Runtime

_FLEET = pytest.StashKey[Fleet]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the last words of the servers."""
    report = yield
    if report.failed and (fleet := item.config.stash.get(_FLEET, None)) is not None:
        report.sections += [(f"log of {name}", text) for name, text in fleet.logs() if text]
    return report


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """Java and Maven. Without them a person's run skips and says what to install; in CI it fails."""
    try:
        return Toolchain.find()
    except ToolMissingError as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def current(toolchain: Toolchain) -> Runtime:
    """Servers, tools and client of version 5.5.0."""
    return toolchain.runtime(CURRENT)


@pytest.fixture(scope="session")
def old(toolchain: Toolchain) -> Runtime:
    """The client of version 4.9.8."""
    return toolchain.runtime(OLD)


@pytest.fixture(scope="session")
def fleet(pytestconfig: pytest.Config) -> Iterator[Fleet]:
    """Every process of the session; they end with it."""
    fleet = Fleet(Path(tempfile.mkdtemp(prefix="fusee-interop-")))
    pytestconfig.stash[_FLEET] = fleet
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.fixture(scope="session")
def frame_judge(fleet: Fleet, current: Runtime) -> Judge:
    return Judge(fleet, current, "FrameJudge")


@pytest.fixture(scope="session")
def record_judge(fleet: Fleet, current: Runtime) -> Judge:
    return Judge(fleet, current, "RecordJudge")


@pytest.fixture(scope="session")
def shared_cluster(fleet: Fleet, current: Runtime) -> Cluster:
    """Two name servers under test and the oracle, with the same broker registered at all three."""
    cluster = Cluster(fleet, current, with_oracle=True)
    cluster.start()
    return cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The shared cluster with everything running, whatever the test before did to it."""
    shared_cluster.heal()
    return shared_cluster


@pytest.fixture(scope="session")
def resident_mqadmin(fleet: Fleet, current: Runtime) -> MqAdmin:
    return ResidentMqAdmin(fleet, current)


@pytest.fixture(scope="session")
def forked_mqadmin(fleet: Fleet, current: Runtime) -> MqAdmin:
    return ForkedMqAdmin(fleet, current)


@pytest.fixture(params=[pytest.param("resident", marks=pytest.mark.quick), "forked"])
def mqadmin(request: pytest.FixtureRequest) -> MqAdmin:
    """mqadmin in one virtual machine (quick) and in one per command (long)."""
    admin: MqAdmin = request.getfixturevalue(f"{request.param}_mqadmin")
    return admin
