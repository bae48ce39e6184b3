"""Requests and their answers over a plain socket, written apart from fusee.wire so that they can judge it.

Request codes stand here as numbers for the same reason.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import TracebackType

PULL_MESSAGE: Final = 11
QUERY_MESSAGE: Final = 12
SEARCH_OFFSET: Final = 29
GET_MAX_OFFSET: Final = 30
GET_MIN_OFFSET: Final = 31
VIEW_MESSAGE: Final = 33
GET_ALL_CONSUMER_OFFSETS: Final = 43
QUERY_CONSUME_QUEUE: Final = 321
PUT_KV_CONFIG: Final = 100
GET_KV_CONFIG: Final = 101
GET_ROUTE: Final = 105
GET_CLUSTER_INFO: Final = 106
GET_BROKER_RUNTIME_INFO: Final = 28
GET_ALL_TOPICS: Final = 206
GET_KV_NAMESPACE: Final = 219
GET_TOPICS_OF_CLUSTER: Final = 224
GET_SYSTEM_TOPICS: Final = 304
GET_UNIT_TOPICS: Final = 311
GET_SUBSCRIBED_UNIT_TOPICS: Final = 312
GET_SUBSCRIBED_NON_UNIT_TOPICS: Final = 313
QUERY_DATA_VERSION: Final = 322
GET_BROKER_MEMBER_GROUP: Final = 901

VERSION_5_5_0: Final = 513
SOCKET_TIMEOUT_S: Final = 5.0

# FastJSON writes the integer keys of a map bare.
_BARE_KEY: Final = re.compile(r"([{,])(\d+):")


@dataclass(frozen=True)
class Answer:
    """A response as it came, the body not yet interpreted."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body read in FastJSON's dialect; None when it is empty."""
        if not self.body:
            return None
        return json.loads(_BARE_KEY.sub(r'\1"\2":', self.body.decode()))


class Connection:
    """One connection for many questions, one after the other."""

    def __init__(self, address: str) -> None:
        """Raises OSError when nobody listens."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), SOCKET_TIMEOUT_S)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        version: int = VERSION_5_5_0,
    ) -> Answer:
        """Asks and waits for the answer. Raises OSError when none comes."""
        header = json.dumps(
            {
                "code": code,
                "language": "JAVA",
                "version": version,
                "opaque": 7,
                "flag": 0,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": fields or {},
            }
        ).encode()
        self._socket.sendall(struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body)
        length, word = struct.unpack(">iI", _read(self._socket, 8))
        frame = _read(self._socket, length - 4)
        assert word >> 24 == 0, f"asked in JSON, answered in form {word >> 24}"
        answer = json.loads(frame[: word & 0xFFFFFF])
        assert answer["opaque"] == 7, answer
        assert answer["flag"] & 1, answer
        return Answer(answer["code"], answer.get("remark"), answer.get("extFields") or {}, frame[word & 0xFFFFFF :])


def ask(
    address: str,
    code: int,
    fields: dict[str, str] | None = None,
    *,
    body: bytes = b"",
    version: int = VERSION_5_5_0,
) -> Answer:
    """Opens a connection, asks, closes. Raises OSError when nobody answers."""
    with Connection(address) as connection:
        return connection.ask(code, fields, body=body, version=version)


def route_of(address: str, topic: str) -> dict[str, Any] | None:
    """The route of a topic as a name server tells it; None when it knows none."""
    answer = ask(address, GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if answer.code != 0:
        return None
    route: dict[str, Any] = answer.json()
    return route


def brokers_of(address: str) -> dict[str, dict[str, str]]:
    """Broker name -> broker id -> address, as a name server tells it."""
    cluster = ask(address, GET_CLUSTER_INFO).json() or {}
    return {name: broker["brokerAddrs"] for name, broker in (cluster.get("brokerAddrTable") or {}).items()}


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError(f"connection closed after {len(data)} of {size} bytes")
        data += chunk
    return bytes(data)
