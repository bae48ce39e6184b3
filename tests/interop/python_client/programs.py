"""The programs of the mixed groups: ours, and the Java client with strategies and codecs of choice."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop.clients import builds
from tests.interop.clients.programs import ClientProgram, Fields
from tests.interop.harness.programs import client_properties
from tests.interop.harness.toolchain import CURRENT
from tests.interop.python_client.program import TRUST_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.clients.programs import Draft
    from tests.interop.clients.servers import Certificate
    from tests.interop.harness.processes import Dialogue, Fleet
    from tests.interop.harness.toolchain import Runtime, Toolchain

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent.parent
SOURCES: Final = Path(__file__).resolve().parent / "java"


class PeerProgram(ClientProgram):
    """A program whose clients have names, and so client ids, that no other program gives."""

    def __init__(self, dialogue: Dialogue, make: str) -> None:
        super().__init__(dialogue)
        self.make = make
        self._process = dialogue

    def name(self, role: str) -> str:
        return f"{self.make}-{self._process.popen.pid}-{super().name(role)}"

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()


def start_python(fleet: Fleet, certificate: Certificate | None = None) -> PeerProgram:
    """Our client in a process of its own."""
    environment = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])}
    if certificate is not None:
        environment[TRUST_VARIABLE] = str(certificate.certificate)
    command = [sys.executable, "-m", "tests.interop.python_client.program"]
    return PeerProgram(fleet.converse("client-fusee", command, fleet.folder("client-fusee"), environment), "python")


def start_java(fleet: Fleet, toolchain: Toolchain) -> PeerProgram:
    """The Java client in a virtual machine of its own."""
    folder = fleet.folder("peer-java")
    command = _compiled(toolchain).command(
        "fusee.interop.matrix.Peer",
        home_dir=folder,
        heap_mb=192,
        log_level="WARN",
        properties=client_properties(binary=False),
    )
    return PeerProgram(fleet.converse("peer-java", command, folder), "java")


def _compiled(toolchain: Toolchain) -> Runtime:
    """The matrix program's run time with the peer compiled in front of it."""
    runtime = builds.java_program(toolchain, toolchain.runtime(CURRENT))
    sources = sorted(SOURCES.rglob("*.java"))

    def compile_into(folder: Path) -> None:
        builds._run(
            "javac could not compile the peer of the mixed groups",
            [
                *(str(toolchain.javac), "-proc:none", "-encoding", "UTF-8", "-cp", runtime.classpath),
                *("-d", str(folder), *map(str, sources)),
            ],
        )

    content = [runtime.classpath.encode(), *builds._contents(sources)]
    classes = builds._made_once(toolchain.cache_dir, "peer", content, compile_into)
    return dataclasses.replace(runtime, classpath=f"{classes}{os.pathsep}{runtime.classpath}")


class Member:
    """A member of a mixed group, in either program, and what was delivered to it so far.

    It also writes the key of each message to a file before it says that the message is consumed, so that what it was
    given can be told after it was killed.
    """

    def __init__(
        self,
        program: PeerProgram,
        name_servers: str,
        group: str,
        topic: str,
        *,
        strategy: str,
        journal: Path,
        kind: str = "push",
    ) -> None:
        self.program = program
        self.name = program.name("c")
        self.deliveries: list[Fields] = []
        self._journal = journal / self.name
        program.ask(
            "consumer",
            name=self.name,
            group=group,
            nameServers=name_servers,
            topic=topic,
            expression="*",
            kind=kind,
            strategy=strategy,
            journal=str(self._journal),
        )

    def poll(self) -> list[Fields]:
        """Everything delivered so far."""
        self.deliveries += self.program.ask("received", consumer=self.name, **{"from": len(self.deliveries)})
        return self.deliveries

    def keys(self) -> set[str]:
        """The keys of what it was given, also when it is no more; half a line was not consumed."""
        *lines, _ = self._journal.read_text("utf-8").split("\n") if self._journal.exists() else [""]
        return set(lines)

    def queue_ids(self, topic: str) -> set[int]:
        """The queues of a topic that it says it owns."""
        owned: list[Fields] = self.program.ask("queues", consumer=self.name)
        return {queue["queueId"] for queue in owned if queue["topic"] == topic}

    def close(self) -> None:
        self.poll()
        self.program.ask("close", name=self.name)


class PeerProducer:
    """A producer with a codec of choice, in either program; ours can gather messages into batches by itself."""

    def __init__(
        self,
        program: PeerProgram,
        name_servers: str,
        group: str,
        *,
        compress_type: str = "ZLIB",
        auto_batch: bool = False,
    ) -> None:
        self._program = program
        self._name = program.name("p")
        program.ask(
            "producer",
            name=self._name,
            group=group,
            nameServers=name_servers,
            compressType=compress_type,
            autoBatch=auto_batch,
        )

    def send(self, drafts: Sequence[Draft], mode: str = "sync") -> list[Fields]:
        messages = [draft.order() for draft in drafts]
        results: list[Fields] = self._program.ask("send", producer=self._name, mode=mode, messages=messages)
        return results

    def close(self) -> None:
        self._program.ask("close", name=self._name)
