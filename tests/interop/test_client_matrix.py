"""Every feature with every real client against the broker and the name server under test, as one table.

The table is printed at the end; `FUSEE_INTEROP_MATRIX=FILE` also writes it as JSON, which docs/compatibility.md is made
from. `FUSEE_INTEROP_BROKER=java FUSEE_INTEROP_NAMESRV=java` runs it against the real servers: it must pass there too.
"""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from rich.console import Console
from rich.table import Table

from tests.interop.clients import receiving, sending
from tests.interop.clients.matrix import ABSENT, CLIENTS, FEATURES, QUICK, REFERENCE_FAULTS, Cell, Matrix
from tests.interop.clients.servers import BROKER_VARIABLE, make_of
from tests.interop.clients.stage import Stage
from tests.interop.harness.cluster import SUBJECT_VARIABLE
from tests.interop.harness.toolchain import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Toolchain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FILE_VARIABLE: Final = "FUSEE_INTEROP_MATRIX"

SCENARIOS: Final[dict[str, Callable[[Stage, str], None]]] = {
    feature: getattr(sending, feature, None) or getattr(receiving, feature) for feature in FEATURES
}


@pytest.fixture(scope="module")
def stage(fleet: Fleet, toolchain: Toolchain) -> Stage:
    return Stage(fleet, toolchain)


@pytest.fixture(scope="module")
def matrix(pytestconfig: pytest.Config) -> Iterator[Matrix]:
    """The table that the tests of this module fill."""
    matrix = Matrix(f"{make_of(BROKER_VARIABLE)} broker, {make_of(SUBJECT_VARIABLE)} name server")
    yield matrix
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        pytestconfig.get_terminal_writer().write("\n" + rendered(matrix))
    if path := os.environ.get(FILE_VARIABLE):
        matrix.save(Path(path))


def cells() -> Iterator[object]:
    for client in CLIENTS:
        for feature in FEATURES:
            if (client, feature) not in ABSENT:
                marks = [pytest.mark.quick] if (client, feature) in QUICK else []
                yield pytest.param(client, feature, id=f"{client}-{feature}", marks=marks)


@pytest.mark.parametrize(("client", "feature"), list(cells()))
def test_client_works(stage: Stage, matrix: Matrix, client: str, feature: str) -> None:
    try:
        stage.program(client)
    except ToolMissingError as missing:
        matrix.add(Cell(client, feature, "skipped", reason=str(missing)))
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    if make_of(BROKER_VARIABLE) == "java" and (fault := REFERENCE_FAULTS.get((client, feature))):
        matrix.add(Cell(client, feature, "skipped", reason=fault))
        pytest.skip(fault)
    stage.servers.assert_running()
    begin_s = time.monotonic()
    try:
        SCENARIOS[feature](stage, client)
    except Exception as failure:
        matrix.add(Cell(client, feature, "failed", reason=str(failure).partition("\n")[0]))
        raise
    matrix.add(Cell(client, feature, "passed", seconds=time.monotonic() - begin_s))


def rendered(matrix: Matrix) -> str:
    table = Table(title=f"Clients against {matrix.subject}", title_justify="left")
    table.add_column("feature")
    for client in CLIENTS:
        table.add_column(client)
    for row in matrix.rows():
        table.add_row(*row)
    output = io.StringIO()
    Console(file=output, width=120, no_color=True).print(table)
    return output.getvalue()
