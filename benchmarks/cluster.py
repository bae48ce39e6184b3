"""A cluster that exists only as registrations: two groups of master and slave, kept alive over the wire.

A name server forgets a broker when its connection closes, or when nothing is heard from it for two minutes.
So each broker holds its own connection while the cluster is entered, and `renew` registers before each run.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from benchmarks.errors import BenchmarkError
from benchmarks.frames import frame, json_header

if TYPE_CHECKING:
    from types import TracebackType

CLUSTER: Final = "BenchmarkCluster"
TOPIC: Final = "BenchmarkTopic"
REGISTER_BROKER: Final = 103
ANSWER_LIMIT_S: Final = 10.0

# (broker name, broker id, address): id 0 is the master of its group.
_BROKERS: Final = tuple(
    (f"broker-{group}", broker_id, f"10.0.{group_number}.{broker_id + 1}:10911")
    for group_number, group in enumerate("ab")
    for broker_id in (0, 1)
)
# A first registration with a single topic is refused, so each broker brings a few.
_TOPICS: Final = (TOPIC, "TBW102", "SELF_TEST_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX")


class RegisteredCluster:
    """The four brokers at one name server; a context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        try:
            for _ in _BROKERS:
                self._connections.append(socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_LIMIT_S))
            self.renew()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def renew(self) -> None:
        """Registers every broker again. Raises BenchmarkError when the name server refuses one."""
        for connection, (name, broker_id, address) in zip(self._connections, _BROKERS, strict=True):
            code, _ = exchange(connection, _registration(name, broker_id, address))
            if code != 0:
                raise BenchmarkError(f"the name server answered {code} to the registration of {name}:{broker_id}")

    def _close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()


class Answer(NamedTuple):
    """A response: its code, its fields (none from a binary header) and its body."""

    code: int
    fields: dict[str, str]
    body: bytes


def exchange(connection: socket.socket, request: bytes) -> tuple[int, bytes]:
    """Sends one request and reads its response: code and body."""
    answer = exchange_whole(connection, request)
    return answer.code, answer.body


def exchange_whole(connection: socket.socket, request: bytes) -> Answer:
    """Sends one request and reads its response. Raises BenchmarkError when none comes."""
    try:
        connection.sendall(request)
        length, word = struct.unpack(">II", _exactly(connection, 8))
        content = _exactly(connection, length - 4)
    except OSError as error:
        raise BenchmarkError(f"a server did not answer: {error}") from error
    header_size = word & 0xFFFFFF
    header, body = content[:header_size], content[header_size:]
    if word >> 24 == 1:
        return Answer(int.from_bytes(header[:2], "big", signed=True), {}, body)
    decoded = json.loads(header)
    return Answer(int(decoded["code"]), decoded.get("extFields") or {}, body)


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise BenchmarkError("a server closed the connection instead of answering")
        received += part
    return received


def _registration(name: str, broker_id: int, address: str) -> bytes:
    host = address.partition(":")[0]
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    topics: dict[str, dict[str, object]] = {
        topic: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": 8,
        }
        for topic in _TOPICS
    }
    body = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": version,
            "mappingDataVersion": version,
            "topicConfigTable": topics,
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        },
    }
    fields = {
        "bodyCrc32": "0",
        "brokerAddr": address,
        "brokerId": str(broker_id),
        "brokerName": name,
        "clusterName": CLUSTER,
        "compressed": "false",
        "haServerAddr": f"{host}:10912",
    }
    return frame(json_header(REGISTER_BROKER, fields), json.dumps(body, separators=(",", ":")).encode())
