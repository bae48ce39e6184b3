"""Groups under churn: every message is consumed, none is skipped, commits only grow, order is kept.

Each run is a process of its own, so that its seed repeats it; a failure prints the command. The long form
(`FUSEE_LONG=1`) takes more seeds and more steps.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IS_LONG = bool(os.environ.get("FUSEE_LONG"))
SEEDS = range(1, 41) if IS_LONG else range(1, 3)
STEPS = 3000 if IS_LONG else 400
KINDS = [pytest.param((), id="concurrent"), pytest.param(("--ordered",), id="ordered")]


def simulate(*arguments: str, steps: int = STEPS) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--steps", str(steps), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        pytest.fail(f"{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_group_under_churn_keeps_its_promises(seed: int, kind: tuple[str, ...]) -> None:
    said = simulate("--seed", str(seed), *kind)
    found = re.search(r"(\d+) messages, (\d+) deliveries", said)
    assert found is not None, said
    messages, deliveries = int(found[1]), int(found[2])
    assert messages > STEPS / 2
    assert deliveries >= messages


def test_seed_repeats_a_run() -> None:
    runs = {re.sub(r"; [\d.]+ s$", "", simulate("--seed", "3", steps=60).strip()) for _ in range(2)}
    assert len(runs) == 1
