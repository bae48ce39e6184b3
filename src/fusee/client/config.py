"""What a client is told once: where the name servers are, who it is, and how often it looks around."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from fusee.errors import ConfigError

if TYPE_CHECKING:
    import ssl

DEFAULT_INSTANCE = "DEFAULT"


class ServiceState(Enum):
    """The life of a client. It is started once; what is closed, or failed to start, stays so."""

    CREATE_JUST = "created, not started"
    RUNNING = "running"
    SHUTDOWN_ALREADY = "closed"
    START_FAILED = "failed to start"


class MessageModel(Enum):
    """How the members of a group share a topic: each message to one of them, or to every one."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings that all producers and consumers of one connection share.

    `name_servers` is `host:port;host:port`, by default the environment's NAMESRV_ADDR. Clients of one process with
    the same settings share their connections; an `instance_name` of its own sets a client apart, and makes its client
    id predictable. `unit_name` is part of the client id as in Java.
    """

    name_servers: str = ""
    instance_name: str = DEFAULT_INSTANCE
    unit_name: str = ""
    client_ip: str = ""
    tls: ssl.SSLContext | None = None
    connect_timeout_ms: int = 3_000
    mq_client_api_timeout_ms: int = 3_000
    poll_name_server_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    persist_consumer_offset_interval_ms: int = 5_000

    def __post_init__(self) -> None:
        for name in (
            "connect_timeout_ms",
            "mq_client_api_timeout_ms",
            "poll_name_server_interval_ms",
            "heartbeat_broker_interval_ms",
            "persist_consumer_offset_interval_ms",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be positive")
        if "@" in self.instance_name or not self.instance_name:
            raise ConfigError(f"instance_name {self.instance_name!r} is empty or contains '@', which parts client ids")


def name_servers_of(given: str | None) -> str:
    """The name servers given, or those of the environment. Raises ConfigError when there are none."""
    found = given or os.environ.get("NAMESRV_ADDR", "")
    if not found.strip():
        raise ConfigError(
            "no name server is given; pass its address, e.g. fusee.connect('127.0.0.1:9876'), or set NAMESRV_ADDR"
        )
    return found
