"""The brokers that the script is played to, both of which read the same file of settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop.harness.servers import FuseeBroker, FuseeNameServer, JavaBroker

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
