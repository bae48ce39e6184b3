"""Where a cell of the matrix plays: servers, client programs, mqadmin, and a judge that sends and reads beside them."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tests.interop.clients.programs import (
    DELIVERY_TIMEOUT_S,
    ClientProgram,
    Consumer,
    Draft,
    Fields,
    OrderError,
    Producer,
    await_keys,
    start_program,
)
from tests.interop.clients.servers import Certificate, Servers
from tests.interop.harness import probe
from tests.interop.harness.processes import eventually
from tests.interop.harness.programs import ResidentMqAdmin
from tests.interop.harness.toolchain import CURRENT

if TYPE_CHECKING:
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.programs import AdminRun
    from tests.interop.harness.toolchain import Toolchain

UPDATE_AND_CREATE_TOPIC: Final = 17
UPDATE_AND_CREATE_GROUP: Final = 200
JUDGE: Final = "java-5.5.0"
QUEUES: Final = 4


class Stage:
    """Everything that the cells share; each cell has topics and groups of its own."""

    def __init__(self, fleet: Fleet, toolchain: Toolchain) -> None:
        self._fleet = fleet
        self._toolchain = toolchain
        self._programs: dict[str, ClientProgram] = {}
        self._certificate = Certificate.make(fleet.folder("certificate"))
        self.servers = Servers.plain(fleet, toolchain.runtime(CURRENT))
        self.servers.start()

    @property
    def name_servers(self) -> str:
        return self.servers.name_server.address

    @cached_property
    def tls_servers(self) -> Servers:
        servers = Servers.with_tls(self._fleet, self._toolchain.runtime(CURRENT), self._certificate)
        servers.start()
        return servers

    @cached_property
    def _mqadmin(self) -> ResidentMqAdmin:
        return ResidentMqAdmin(self._fleet, self._toolchain.runtime(CURRENT))

    @cached_property
    def judge_sends(self) -> Producer:
        """The current Java client as a sender, where a cell is about receiving."""
        return Producer(self.program(JUDGE), self.name_servers, "JUDGE_PRODUCER")

    @cached_property
    def _judge_reads(self) -> Consumer:
        return Consumer(self.program(JUDGE), self.name_servers, "JUDGE_CONSUMER", "", kind="pull")

    def program(self, client: str) -> ClientProgram:
        if client not in self._programs:
            self._programs[client] = start_program(client, self._fleet, self._toolchain, self._certificate)
        return self._programs[client]

    def topic(self, feature: str, client: str, *, queues: int = QUEUES) -> str:
        """A new topic that the name server knows."""
        return self.make_topic(f"{feature}-{client.replace('.', '_')}", queues=queues)

    def make_topic(self, topic: str, *, queues: int) -> str:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        answer = probe.ask(self.servers.broker.address, UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == 0, answer
        self.servers.name_server.await_topic(topic)
        return topic

    def group(self, topic: str, *, retries: int) -> str:
        """A new consumer group whose messages die after so many retries."""
        group = f"GID_{topic}"
        config = {"groupName": group, "retryMaxTimes": retries, "retryQueueNums": 1, "consumeEnable": True}
        answer = probe.ask(self.servers.broker.address, UPDATE_AND_CREATE_GROUP, body=json.dumps(config).encode())
        assert answer.code == 0, answer
        return group

    def read(self, topic: str) -> list[Fields]:
        """Every message of a topic as the judge reads it; nothing where the topic does not exist yet."""
        try:
            return self._judge_reads.pull(topic)
        except OrderError as failure:
            if "Can not find Message Queue" in str(failure):
                return []
            raise

    def await_stored(self, topic: str, keys: set[str], *, timeout_s: float = DELIVERY_TIMEOUT_S) -> list[Fields]:
        """Every message of a topic as soon as all these keys are among them."""
        return await_keys(lambda: self.read(topic), keys, timeout_s=timeout_s)

    def mqadmin(self, *arguments: str) -> AdminRun:
        return self._mqadmin.run(self.name_servers, *arguments)

    def await_committed(self, group: str, topic: str) -> None:
        """Waits until the broker knows that the group has consumed every queue of the topic to its end."""

        def is_committed() -> bool:
            address = self.servers.broker.address
            table: dict[str, dict[str, Any]] = probe.ask(address, probe.GET_ALL_CONSUMER_OFFSETS).json()["offsetTable"]
            committed = table.get(f"{topic}@{group}", {})
            ends = {}
            for queue_id in range(QUEUES):
                fields = {"topic": topic, "queueId": str(queue_id)}
                ends[str(queue_id)] = int(probe.ask(address, probe.GET_MAX_OFFSET, fields).fields["offset"])
            # A queue that never had a message needs no offset, and some clients commit -1 for it.
            return all(committed.get(queue, 0) == end for queue, end in ends.items() if end)

        eventually(f"{group} has committed all of {topic}", is_committed, timeout_s=DELIVERY_TIMEOUT_S)


def drafts(topic: str, count: int, prefix: str = "m", **more: Any) -> list[Draft]:
    """Messages with keys `prefix`-0, `prefix`-1 … and bodies outside of ASCII."""
    return [Draft(topic, f"{prefix}-{i}", f"body of {prefix}-{i} é 消息", **more) for i in range(count)]


def keys_of(messages: list[Draft]) -> set[str]:
    return {draft.keys for draft in messages}


def assert_same(expected: list[Draft], arrived: list[Fields]) -> None:
    """Every message is there once, whole, and nothing else."""
    assert sorted(message["keys"] for message in arrived) == sorted(draft.keys for draft in expected)
    by_key = {message["keys"]: message for message in arrived}
    for draft in expected:
        message = by_key[draft.keys]
        assert message["topic"] == draft.topic, message
        assert message["body"] == draft.body, message
        assert message["tags"] == draft.tags, message
        assert message["properties"].get("origin") == draft.keys, message
        assert message["reconsumeTimes"] == 0, message


def assert_places(expected: list[Draft], results: list[Fields], stored: list[Fields]) -> None:
    """The sender was told the id and the place that each message has."""
    assert [result.get("status") for result in results] == ["SEND_OK"] * len(expected), results
    by_key = {message["keys"]: message for message in stored}
    for draft, result in zip(expected, results, strict=True):
        message = by_key[draft.keys]
        assert result["id"] in ids_of(message), (result, message)
        for place in ("queueId", "queueOffset"):
            if place in result:
                assert result[place] == message[place], (result, message)


def ids_of(message: Fields) -> set[str]:
    """Every id by which a message may be called: its unique key and its place in the log."""
    ids = {message["id"], message.get("offsetId"), message["properties"].get("UNIQ_KEY")}
    return {each for each in ids if each}
