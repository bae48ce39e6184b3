"""Every answer that Apache RocketMQ 5.5.0 gave to a script of a thousand requests, asked of a broker in this process.

The script and the answers are those of the differential test (tests/interop/differential), which asks the real broker
itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fusee.broker import Broker
from fusee.broker.config import load_settings
from tests.interop.differential.brokers import SETTINGS_FILE
from tests.interop.differential.comparison import deviations
from tests.interop.differential.differences import outlived, unexplained
from tests.interop.differential.player import LEFT_OVER, Player
from tests.interop.differential.recording import recorded_answers
from tests.interop.differential.script import SCRIPT

# Nothing is between us and the broker that could hold an answer back for longer.
SILENCE_S = 0.1


async def play(store_path: Path) -> dict[str, Any]:
    settings = load_settings(
        file=SETTINGS_FILE,
        flags={
            "broker_name": "broker-a",
            "broker_ip1": "127.0.0.1",
            "bind_address": "127.0.0.1",
            "listen_port": 0,
            "fast_listen_port": 0,
            "store_path": str(store_path),
        },
    )
    broker = Broker(settings.broker, settings.store, store_path=store_path)
    address = await broker.start()
    try:
        return await Player(address, silence_s=SILENCE_S).play(SCRIPT)
    finally:
        await broker.stop()


def test_answers_are_those_of_java(tmp_path: Path) -> None:
    theirs = recorded_answers()
    assert [*(step.name for step in SCRIPT), LEFT_OVER] == list(theirs), (
        "the script has changed since the answers were recorded: python -m tests.interop.differential.recording"
    )
    found = deviations(asyncio.run(play(tmp_path / "store")), theirs)
    wrong = unexplained(found)
    assert not wrong, f"{len(wrong)} differences without a reason:\n" + "\n".join(str(each) for each in wrong[:60])
    gone = outlived(found, theirs)
    assert not gone, "differences.py lists what no longer differs:\n" + "\n".join(gone)
