"""The short form of `make limits`: few connections, short times, the same bounds of memory and the same refusals."""

from __future__ import annotations

import asyncio
import sys
from io import StringIO

import pytest
from rich.console import Console

from fusee.service import run
from scripts.limits.__main__ import ROWS, print_rows, raise_file_limit
from scripts.limits.bounds import QUICK, Bound, Row

needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def text_of(rows: list[Row]) -> tuple[bool, str]:
    page = StringIO()
    held = print_rows(rows, Console(file=page, width=150))
    return held, page.getvalue()


@needs_proc
@pytest.mark.parametrize("name", ROWS)
def test_broker_keeps_its_bounds(name: str) -> None:
    raise_file_limit(QUICK.idle + 200)

    async def play() -> Row:
        return await asyncio.wait_for(ROWS[name](QUICK), 90)

    held, page = text_of([run(play())])
    assert held, page


def test_table_shows_a_broken_bound() -> None:
    fine = Row("a storm", (Bound("lost", 0, 0, ""), Bound("memory", 3, 32, "MiB")))
    broken = Row("a flood", (Bound("memory", 33, 32, "MiB"),))
    assert text_of([fine])[0]
    held, page = text_of([fine, broken])
    assert not held
    assert page.count("BROKEN") == 1
    assert "memory ≤ 32 MiB" in page
