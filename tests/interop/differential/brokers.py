"""The brokers that the script is played to, both of which read the same file of settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop.harness.servers import FuseeNameServer, JavaBroker

if TYPE_CHECKING:
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

# `java` puts the real broker in the place of ours: the suite must pass then too, or the suite is wrong.
SUBJECT_VARIABLE: Final = "FUSEE_INTEROP_BROKER"
SETTINGS_FILE: Final = Path(__file__).parent / "broker.properties"


def settings() -> dict[str, str]:
    """What the file says."""
    lines = SETTINGS_FILE.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


class FuseeBroker(JavaBroker):
    """Fusee's broker in a process of its own, configured with the file of the real one."""

    def start(self) -> None:
        config = self._folder / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._configuration().items()), encoding="utf-8")
        command = [sys.executable, "-m", "fusee", "broker", "-c", str(config)]
        self._child = self._fleet.start(f"fusee-{self.name}", command, self._folder)


def subject_make() -> str:
    """Whose broker is under test."""
    make = os.environ.get(SUBJECT_VARIABLE, "fusee")
    if make not in ("fusee", "java"):
        raise ValueError(f"{SUBJECT_VARIABLE}={make}: expected fusee or java")
    return make


def start_broker(fleet: Fleet, runtime: Runtime, make: str, more: dict[str, str] | None = None) -> JavaBroker:
    """A new broker of this make with a name server of its own; `await_ready` is still to be called."""
    name_server = FuseeNameServer(fleet, f"namesrv-of-{make}")
    name_server.start()
    name_server.await_ready()
    kind = FuseeBroker if make == "fusee" else JavaBroker
    broker = kind(fleet, runtime, [name_server], settings={**settings(), **(more or {})})
    broker.start()
    return broker
