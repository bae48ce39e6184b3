"""The masked answers of the real broker, kept so that they can be compared without it.

`python -m tests.interop.differential.recording` plays the script to the real broker and writes them anew.
"""

from __future__ import annotations

import asyncio
import lzma
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.interop.differential.brokers import start_broker
from tests.interop.differential.player import Player
from tests.interop.differential.script import SCRIPT
from tests.interop.harness.processes import Fleet
from tests.interop.harness.toolchain import CURRENT, Toolchain

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWERS_FILE: Final = Path(__file__).parents[2] / "golden" / "broker" / "answers.jsonl.xz"


def recorded_answers() -> dict[str, Any]:
    """Step -> outcome, as the real broker gave it."""
    with lzma.open(ANSWERS_FILE) as stream:
        lines = [msgspec.json.decode(line) for line in stream]
    return {line["step"]: line["outcome"] for line in lines}


def record(outcomes: Mapping[str, Any]) -> None:
    """Keeps these outcomes in the place of those that were kept before."""
    ANSWERS_FILE.parent.mkdir(parents=True, exist_ok=True)
    lines = (msgspec.json.encode({"step": step, "outcome": outcome}) for step, outcome in outcomes.items())
    ANSWERS_FILE.write_bytes(lzma.compress(b"".join(line + b"\n" for line in lines), preset=9 | lzma.PRESET_EXTREME))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="fusee-answers-"))
    fleet = Fleet(folder)
    try:
        broker = start_broker(fleet, Toolchain.find().runtime(CURRENT), "java")
        broker.await_ready()
        record(asyncio.run(Player(broker.address).play(SCRIPT)))
    finally:
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
