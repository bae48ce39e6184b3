"""A broker and the name servers it is registered with: those under test and, where wanted, the oracle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tests.interop.harness.servers import FuseeNameServer, JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.servers import NameServer
    from tests.interop.harness.toolchain import Runtime

# `java` puts the real name server in the place of ours: the suite must pass then too, or the suite is wrong.
SUBJECT_VARIABLE: Final = "FUSEE_INTEROP_NAMESRV"


class Cluster:
    """One broker behind two name servers under test."""

    def __init__(self, fleet: Fleet, runtime: Runtime, *, with_oracle: bool) -> None:
        self.first = name_server(fleet, runtime, "namesrv-1")
        self.second = name_server(fleet, runtime, "namesrv-2")
        self.subjects = [self.first, self.second]
        self.oracle = JavaNameServer(fleet, "oracle", runtime) if with_oracle else None
        self.name_servers: list[NameServer] = [*self.subjects, *([self.oracle] if self.oracle else [])]
        self.broker = JavaBroker(fleet, runtime, self.name_servers)

    @property
    def addresses(self) -> str:
        """What a client is told: the name servers under test, never the oracle."""
        return ";".join(subject.address for subject in self.subjects)

    def start(self) -> None:
        for server in self.name_servers:
            server.start()
        for server in self.name_servers:
            server.await_ready()
        self.broker.start()
        self.broker.await_ready()

    def heal(self) -> None:
        """Starts again what a test has ended and waits until the broker is known everywhere."""
        dead = [server for server in self.name_servers if not server.is_running]
        for server in dead:
            server.start()
        for server in dead:
            server.await_ready()
        if not self.broker.is_running:
            self.broker.start()
            self.broker.await_ready()
        for server in dead:
            self.broker.await_registration(server)

    def kill(self) -> None:
        self.broker.kill()
        for server in self.name_servers:
            server.kill()


def name_server(fleet: Fleet, runtime: Runtime, name: str) -> NameServer:
    """A name server of the make that is under test."""
    make = os.environ.get(SUBJECT_VARIABLE, "fusee")
    if make == "fusee":
        return FuseeNameServer(fleet, name)
    if make == "java":
        return JavaNameServer(fleet, name, runtime)
    raise ValueError(f"{SUBJECT_VARIABLE}={make}: expected fusee or java")
