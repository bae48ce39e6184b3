"""One script of a thousand requests to Apache RocketMQ and to Fusee: the answers must say the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.differential.brokers import start_broker, subject_make
from tests.interop.differential.comparison import deviations
from tests.interop.differential.differences import outlived, unexplained
from tests.interop.differential.player import LEFT_OVER, Player
from tests.interop.differential.script import QUICK_SCRIPT, SCRIPT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.differential.steps import Step
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SHOWN_MAX = 60


@pytest.mark.parametrize(
    "script",
    [pytest.param(SCRIPT, id="whole"), pytest.param(QUICK_SCRIPT, id="short", marks=pytest.mark.quick)],
)
def test_every_answer_is_that_of_the_real_broker(fleet: Fleet, current: Runtime, script: Sequence[Step]) -> None:
    ours, theirs = play_to_both(fleet, current, script)
    found = deviations(ours, theirs)
    if subject_make() == "java":
        assert not found, "two real brokers differ; mask it or make the script exact:\n" + shown(found)
        return
    wrong = unexplained(found)
    assert not wrong, f"{len(wrong)} differences without a reason in differences.py:\n{shown(wrong)}"
    if script is SCRIPT:
        gone = outlived(found, theirs)
        assert not gone, "differences.py lists what no longer differs:\n" + "\n".join(gone)


def play_to_both(fleet: Fleet, runtime: Runtime, script: Sequence[Step]) -> tuple[dict[str, Any], dict[str, Any]]:
    brokers = [start_broker(fleet, runtime, make) for make in (subject_make(), "java")]
    try:
        for broker in brokers:
            broker.await_ready()

        async def play() -> list[dict[str, Any]]:
            return await asyncio.gather(*(Player(broker.address).play(script) for broker in brokers))

        ours, theirs = asyncio.run(play())
    finally:
        for broker in brokers:
            broker.kill()
    return ours, theirs


def shown(found: Sequence[object]) -> str:
    lines = [str(each) for each in found[:SHOWN_MAX]]
    if len(found) > SHOWN_MAX:
        lines.append(f"... and {len(found) - SHOWN_MAX} more")
    return "\n".join(lines)


def test_names_of_steps_are_unique() -> None:
    names = [step.name for step in SCRIPT]
    assert len(set(names)) == len(names)
    assert LEFT_OVER not in names
