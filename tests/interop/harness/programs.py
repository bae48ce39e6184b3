"""Our Java programs as Python objects: the judges, mqadmin, producers, consumers, and those for stores."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.interop.harness.processes import NotInTimeError

if TYPE_CHECKING:
    from tests.interop.harness.processes import Dialogue, Fleet
    from tests.interop.harness.servers import JavaBroker, NameServer
    from tests.interop.harness.toolchain import Runtime

ADMIN_TIMEOUT_S: Final = 60.0
# mqadmin exits with 0 whatever happens; this is how it shows that something went wrong.
_SIGN_OF_FAILURE: Final = re.compile(r"Exception\b|\bFailed\b|not exist\.|\[error\]")


class Judge:
    """A Java program that says what it understood: FrameJudge of frames, RecordJudge of stored records."""

    def __init__(self, fleet: Fleet, runtime: Runtime, program: str) -> None:
        folder = fleet.folder(program)
        command = runtime.command(f"fusee.interop.tools.{program}", home_dir=folder, log_level="ERROR")
        self._dialogue = fleet.converse(program, command, folder)

    def read(self, item: bytes) -> dict[str, Any]:
        """What became of these bytes: an event `decoded` with all that was found, or `rejected`."""
        self._dialogue.order(item.hex())
        return self._dialogue.next_event()


@dataclass(frozen=True)
class AdminRun:
    """What one mqadmin command printed."""

    arguments: tuple[str, ...]
    exit_code: int
    out: str
    err: str

    @property
    def failed(self) -> bool:
        return self.exit_code != 0 or _SIGN_OF_FAILURE.search(self.out + self.err) is not None

    @property
    def rows(self) -> list[list[str]]:
        """The printed lines as words, without blank ones and headings."""
        lines = (line.split() for line in self.out.splitlines())
        return [words for words in lines if words and not words[0].startswith("#")]

    def __str__(self) -> str:
        return f"mqadmin {' '.join(self.arguments)}: exit code {self.exit_code}\n{self.out}\n{self.err}"


class MqAdmin(Protocol):
    """One way to run mqadmin."""

    def run(self, name_servers: str, *arguments: str) -> AdminRun:
        """Runs one command against the name servers `host:port;host:port`."""
        ...


class ForkedMqAdmin:
    """mqadmin as people run it: a virtual machine per command."""

    def __init__(self, fleet: Fleet, runtime: Runtime) -> None:
        self._folder = fleet.folder("mqadmin")
        self._runtime = runtime

    def run(self, name_servers: str, *arguments: str) -> AdminRun:
        startup = "org.apache.rocketmq.tools.command.MQAdminStartup"
        words = (*arguments, "-n", name_servers)
        command = self._runtime.command(startup, *words, home_dir=self._folder, log_level="OFF")
        run = subprocess.run(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=ADMIN_TIMEOUT_S,
        )
        return AdminRun(words, run.returncode, run.stdout, run.stderr)


class ResidentMqAdmin:
    """mqadmin's own entry point, called again and again in one virtual machine: the quick way."""

    def __init__(self, fleet: Fleet, runtime: Runtime) -> None:
        folder = fleet.folder("mqadmin")
        command = runtime.command("fusee.interop.tools.Admin", home_dir=folder, log_level="OFF")
        self._dialogue = fleet.converse("mqadmin", command, folder)
        assert self._dialogue.next_event()["event"] == "ready"

    def run(self, name_servers: str, *arguments: str) -> AdminRun:
        words = (*arguments, "-n", name_servers)
        self._dialogue.order("\t".join(words))
        answer = self._dialogue.next_event(timeout_s=ADMIN_TIMEOUT_S)
        return AdminRun(words, 0, answer["out"], answer["err"])


def client_properties(*, binary: bool) -> dict[str, str]:
    """System properties of a client, which may write its headers in the binary form instead of JSON."""
    return {
        # A consumer looks for new queues every 20 s unless told otherwise.
        "rocketmq.client.rebalance.waitInterval": "1000",
        "rocketmq.serialize.type": "ROCKETMQ" if binary else "JSON",
    }


class Producer:
    """The real client's producer."""

    def __init__(self, fleet: Fleet, runtime: Runtime, name_servers: str, *, group: str, binary: bool = False) -> None:
        folder = fleet.folder(f"producer-{runtime.name}")
        command = runtime.command(
            *("fusee.interop.client.Produce", name_servers, group),
            home_dir=folder,
            properties=client_properties(binary=binary),
        )
        self._dialogue = fleet.converse(f"producer-{runtime.name}", command, folder)

    def await_ready(self) -> None:
        assert self._dialogue.events_until("ready") == []

    def send(self, topic: str, count: int, prefix: str) -> list[dict[str, Any]]:
        """Sends `count` messages named `prefix`-0, `prefix`-1 … and returns what became of each."""
        self._dialogue.order(f"send {topic} {count} {prefix}")
        return self._dialogue.events_until("done")

    def close(self) -> None:
        """Shuts the producer down and waits for its end."""
        self._dialogue.finish()


class Consumer:
    """The real client's push consumer."""

    def __init__(
        self,
        fleet: Fleet,
        runtime: Runtime,
        name_servers: str,
        *topics: str,
        group: str,
        binary: bool = False,
    ) -> None:
        folder = fleet.folder(f"consumer-{runtime.name}")
        command = runtime.command(
            *("fusee.interop.client.Consume", name_servers, group, *topics),
            home_dir=folder,
            properties=client_properties(binary=binary),
        )
        self._dialogue: Dialogue = fleet.converse(f"consumer-{runtime.name}", command, folder)
        self._messages: list[dict[str, Any]] = []

    def await_ready(self) -> None:
        self._collect_until("ready")

    def subscribe(self, topic: str) -> None:
        self._dialogue.order(f"subscribe {topic}")
        self._collect_until("done")

    def messages(self, names: set[str], *, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """Everything received so far, as soon as every named message is among it."""
        while missing := names - {message["name"] for message in self._messages}:
            try:
                self._messages.append(self._dialogue.next_event(timeout_s=timeout_s))
            except NotInTimeError as late:
                raise NotInTimeError(f"{len(missing)} of {len(names)} messages missing: {late}") from None
        return self._messages

    def close(self) -> None:
        self._dialogue.finish()

    def _collect_until(self, last: str) -> None:
        self._messages += self._dialogue.events_until(last)


class Workload:
    """The real clients filling a broker with messages of every kind, and reading some of them."""

    TOPICS: Final = ("plain", "batch", "inner", "delay", "tx")

    def __init__(
        self, fleet: Fleet, runtime: Runtime, name_server: NameServer, broker: JavaBroker, prefix: str
    ) -> None:
        self.topics = [f"{prefix}_{topic}" for topic in self.TOPICS]
        self._name_server = name_server
        folder = fleet.folder("workload")
        program = "fusee.interop.tools.Workload"
        command = runtime.command(
            *(program, name_server.address, broker.address, prefix),
            home_dir=folder,
            properties=client_properties(binary=False),
        )
        self._dialogue: Dialogue = fleet.converse("workload", command, folder)

    def begin(self) -> None:
        """Makes its topics on the broker, which must be there, and waits until they can be sent to."""
        self._dialogue.order("begin")
        assert self._dialogue.events_until("done") == []
        for topic in self.topics:
            self._name_server.await_topic(topic)

    def mix(self, count: int) -> list[dict[str, Any]]:
        """Messages of all kinds, and what became of each."""
        self._dialogue.order(f"mix {count}")
        return self._dialogue.events_until("done")

    def consume(self, group: str) -> list[dict[str, Any]]:
        """Reads the plain topic as this group; which messages were sent back, and a summary at the end."""
        self._dialogue.order(f"consume {group}")
        return self._dialogue.events_until("done", timeout_s=180.0)

    def begin_flood(self, threads: int) -> None:
        """Sends from several threads for as long as the broker takes it."""
        self._dialogue.order(f"flood {threads}")

    def flooded(self, count: int) -> list[dict[str, Any]]:
        """The next so many reports of the flood."""
        return [self._dialogue.next_event() for _ in range(count)]

    def end_of_flood(self) -> list[dict[str, Any]]:
        """The rest of the reports, when the broker is gone."""
        return self._dialogue.events_until("done")

    def kill(self) -> None:
        self._dialogue.kill()


class Lookup:
    """The real client looking into a store through its broker."""

    def __init__(self, fleet: Fleet, runtime: Runtime, name_servers: str) -> None:
        folder = fleet.folder("lookup")
        command = runtime.command(
            *("fusee.interop.tools.Lookup", name_servers),
            home_dir=folder,
            properties=client_properties(binary=False),
        )
        self._dialogue: Dialogue = fleet.converse("lookup", command, folder)

    def await_ready(self) -> None:
        assert self._dialogue.events_until("ready") == []

    def consume(self, group: str, count: int, *topics: str) -> list[dict[str, Any]]:
        """Everything that a consumer was given until it had `count` messages, in the order of each queue."""
        return self._ask("consume", group, str(count), *topics)

    def by_key(self, topic: str, key: str, begin_ms: int = 0, end_ms: int = (1 << 63) - 1) -> list[dict[str, Any]]:
        answer = self._ask("key", topic, key, str(begin_ms), str(end_ms))
        return [event for event in answer if event["event"] == "message"]

    def by_id(self, topic: str, message_id: str) -> dict[str, Any]:
        """The message with this offset id or unique key."""
        [message] = self._ask("id", topic, message_id)
        return message

    def by_time(self, topic: str, broker_name: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset that a client would go to for this time."""
        [found] = self._ask("time", topic, broker_name, str(queue_id), str(timestamp_ms))
        queue_offset: int = found["queueOffset"]
        return queue_offset

    def send(self, topic: str, broker_name: str, queue_id: int, count: int, prefix: str) -> list[dict[str, Any]]:
        """Sends to one queue; what became of each message."""
        return self._ask("send", topic, broker_name, str(queue_id), str(count), prefix)

    def kill(self) -> None:
        self._dialogue.kill()

    def _ask(self, *words: str) -> list[dict[str, Any]]:
        self._dialogue.order("\t".join(words))
        return self._dialogue.events_until("done", timeout_s=180.0)
