"""The client programs as Python objects: one resident process per client, driven by orders, with what it has open."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.interop.clients import builds
from tests.interop.harness.processes import NotInTimeError, eventually
from tests.interop.harness.programs import client_properties
from tests.interop.harness.toolchain import CURRENT, OLD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.interop.clients.servers import Certificate
    from tests.interop.harness.processes import Dialogue, Fleet
    from tests.interop.harness.toolchain import Toolchain

ORDER_TIMEOUT_S: Final = 60.0
DELIVERY_TIMEOUT_S: Final = 45.0

Fields = dict[str, Any]


class OrderError(AssertionError):
    """A client program could not do as it was told; the message is what its client said."""


@dataclass(frozen=True)
class Draft:
    """A message to be sent."""

    topic: str
    keys: str
    body: str
    tags: str = "TagA"
    properties: dict[str, str] = field(default_factory=dict)
    delay_level: int = 0
    shard: int = 0
    outcome: str = "commit"
    check: str = "unknown"

    def order(self) -> Fields:
        return {
            "topic": self.topic,
            "keys": self.keys,
            "body": self.body,
            "tags": self.tags,
            "properties": {"origin": self.keys, **self.properties},
            "delayLevel": self.delay_level,
            "shard": self.shard,
            "outcome": self.outcome,
            "check": self.check,
        }


class ClientProgram:
    """A running client program."""

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._is_ready = False
        self._names = itertools.count(1)

    def ask(self, do: str, **fields: object) -> Any:
        """Gives an order and returns what came of it. Raises OrderError when the client failed."""
        if not self._is_ready:
            assert self._dialogue.events_until("ready") == []
            self._is_ready = True
        self._dialogue.order(json.dumps({"do": do, **fields}))
        answer = self._dialogue.next_event(timeout_s=ORDER_TIMEOUT_S)
        if answer["event"] != "done":
            raise OrderError(f"{self._dialogue.name}: {do}: {answer['error']}")
        return answer["result"]

    def name(self, role: str) -> str:
        """A name that nothing else in this process has: it becomes the instance name of a client."""
        return f"{role}{next(self._names)}"


class Producer:
    """A producer in a client program."""

    def __init__(
        self,
        program: ClientProgram,
        name_servers: str,
        group: str,
        *,
        transactional: bool = False,
        trace: bool = False,
        tls: bool = False,
    ) -> None:
        self._program = program
        self._name = program.name("p")
        program.ask(
            "producer",
            name=self._name,
            group=group,
            nameServers=name_servers,
            transactional=transactional,
            trace=trace,
            tls=tls,
        )

    def send(self, drafts: Sequence[Draft], mode: str = "sync") -> list[Fields]:
        messages = [draft.order() for draft in drafts]
        results: list[Fields] = self._program.ask("send", producer=self._name, mode=mode, messages=messages)
        return results

    def transact(self, drafts: Sequence[Draft]) -> list[Fields]:
        messages = [draft.order() for draft in drafts]
        results: list[Fields] = self._program.ask("transact", producer=self._name, messages=messages)
        return results

    def checks(self) -> dict[str, int]:
        """How often the broker asked about each message, by its key."""
        counts: dict[str, int] = self._program.ask("checks", producer=self._name)
        return counts

    def request(self, draft: Draft, *, timeout_s: float = 10.0) -> Fields:
        """Sends and returns the reply."""
        timeout_ms = int(timeout_s * 1000)
        reply: Fields = self._program.ask("request", producer=self._name, message=draft.order(), timeoutMs=timeout_ms)
        return reply

    def close(self) -> None:
        self._program.ask("close", name=self._name)


class Consumer:
    """A consumer in a client program, and what was delivered to it so far."""

    def __init__(
        self,
        program: ClientProgram,
        name_servers: str,
        group: str,
        topic: str,
        *,
        kind: str = "push",
        expression: str = "*",
        sql: bool = False,
        broadcast: bool = False,
        failures: dict[str, int] | None = None,
        reply: bool = False,
        max_reconsumes: int = -1,
        trace: bool = False,
        tls: bool = False,
    ) -> None:
        self._program = program
        self._name = program.name("c")
        self.deliveries: list[Fields] = []
        program.ask(
            "consumer",
            name=self._name,
            group=group,
            nameServers=name_servers,
            kind=kind,
            topic=topic,
            expression=expression,
            sql=sql,
            broadcast=broadcast,
            failures=failures or {},
            reply=reply,
            maxReconsumes=max_reconsumes,
            trace=trace,
            tls=tls,
        )

    def poll(self) -> list[Fields]:
        """Everything delivered so far, in the order of delivery."""
        self.deliveries += self._program.ask("received", consumer=self._name, **{"from": len(self.deliveries)})
        return self.deliveries

    def await_keys(self, keys: set[str], *, timeout_s: float = DELIVERY_TIMEOUT_S) -> list[Fields]:
        """Everything delivered so far, as soon as every one of these keys is among it."""
        return await_keys(self.poll, keys, timeout_s=timeout_s)

    def pull(self, topic: str, expression: str = "*") -> list[Fields]:
        """The whole topic, read by a pull consumer."""
        found: list[Fields] = self._program.ask("pull", consumer=self._name, topic=topic, expression=expression)
        return found

    def close(self) -> list[Fields]:
        """Closes it and returns everything that it was given."""
        self.poll()
        self._program.ask("close", name=self._name)
        return self.deliveries


def await_keys(
    look: Callable[[], list[Fields]], keys: set[str], *, timeout_s: float = DELIVERY_TIMEOUT_S
) -> list[Fields]:
    """What `look` sees, as soon as every one of these keys is among it."""
    seen: list[Fields] = []

    def all_there() -> bool:
        seen[:] = look()
        return keys <= {message["keys"] for message in seen}

    try:
        eventually("messages arrive", all_there, timeout_s=timeout_s)
    except NotInTimeError:
        missing = sorted(keys - {message["keys"] for message in seen})
        raise NotInTimeError(
            f"{len(missing)} of {len(keys)} did not arrive in {timeout_s:g} s: {missing[:8]}"
        ) from None
    return seen


def start_program(name: str, fleet: Fleet, toolchain: Toolchain, certificate: Certificate) -> ClientProgram:
    """Builds and starts the program of a client. Raises ToolMissingError where this machine cannot run it."""
    folder = fleet.folder(f"client-{name}")
    environment: dict[str, str] = {}
    match name:
        case "java-5.5.0" | "java-binary" | "java-4.9.8":
            runtime = toolchain.runtime(OLD if name == "java-4.9.8" else CURRENT)
            command = builds.java_program(toolchain, runtime).command(
                "fusee.interop.matrix.Client",
                home_dir=folder,
                heap_mb=192,
                log_level="WARN",
                properties={**client_properties(binary=name == "java-binary"), **certificate.client_properties()},
            )
        case "go-2.1.2":
            command = [str(builds.go_program(toolchain))]
        case "node-3.12.0":
            node, modules = builds.node_modules(toolchain)
            command = [node, str(builds.CLIENTS_DIR / "node/client.js")]
            environment["NODE_PATH"] = str(modules)
        case "cpp-0.4.4":
            command = [str(builds.cpp_python(toolchain)), str(builds.CLIENTS_DIR / "cpp/client.py")]
        case _:
            raise ValueError(f"no client is called {name}")
    return ClientProgram(fleet.converse(f"client-{name}", command, folder, environment))
