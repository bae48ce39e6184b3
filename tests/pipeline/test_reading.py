"""What a process of a query loads: Spark starts several, and each pays for it before its first row."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "fusee.admin",
    "fusee.broker",
    "fusee.client.session",
    "fusee.in_process",
    "fusee.store.engine",
    "fusee.transport",
)


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("fusee.pipeline.source", ()),
        ("fusee.pipeline.batch, fusee.pipeline.stream", ()),
        ("fusee.pipeline.batch, fusee.pipeline.fetch", ()),
        ("fusee.pipeline.batch, fusee.pipeline.store_dir, fusee.pipeline.store_view", ()),
        ("fusee.pipeline.stream, fusee.pipeline.cluster_view", ("fusee.client.session", "fusee.transport")),
    ],
)
def test_each_loads_no_more_than_its_part(modules: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys, {modules}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.split()) == heavy
