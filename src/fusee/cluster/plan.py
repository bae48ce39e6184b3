"""What a cluster on one machine consists of: its nodes, their names, ports, folders and settings.

Name servers are `namesrv-1`, `namesrv-2`, ...; broker groups are `broker-a`, `broker-b`, ...; a master has the name of
its group, its slaves are `broker-a-s1`, `broker-a-s2`, .... Each node has a folder of its name in the cluster's:

    DIR/cluster.json             who there is, see state_file
    DIR/namesrv-1/namesrv.conf   settings, in RocketMQ's form
    DIR/namesrv-1/log            what it printed
    DIR/broker-a/broker.conf
    DIR/broker-a/store/
    DIR/broker-a/log

Settings are written once. Whoever edits them afterwards sees the change at the node's next start.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.config import BrokerConfig, load_settings, spelled
from fusee.cluster.processes import Process
from fusee.config import format_properties, types_of
from fusee.errors import ConfigError
from fusee.store.config import StoreConfig
from fusee.transport.link import format_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

GROUPS_MAX: Final = 26
REPLICAS_MAX: Final = 9
NAME_SERVERS_MAX: Final = 9
BROKERS_MAX: Final = 64
_SETTINGS_MAX: Final = 200

# Given a first port: name servers from there on, then brokers, each with its fast port two below and its log's above.
_BROKERS_FROM: Final = 20
_BROKER_STEP: Final = 10
_PORT_MAX: Final = 65_535

# The least that a broker takes: a name server that was restarted, and so knows nothing, is told this soon.
_REGISTER_PERIOD_MS: Final = 10_000

# What the plan itself decides.
_RESERVED: Final = frozenset(
    {
        "bind_address",
        "broker_cluster_name",
        "broker_id",
        "broker_ip1",
        "broker_ip2",
        "broker_name",
        "broker_role",
        "fast_listen_port",
        "flush_disk_type",
        "ha_listen_port",
        "listen_port",
        "namesrv_addr",
        "store_path",
        "store_path_commit_log",
    }
)


class Kind(Enum):
    """Which program a node runs."""

    NAME_SERVER = "namesrv"
    BROKER = "broker"


class Wanted(Enum):
    """What was last asked of a node: one that is gone though it was wanted up died by itself."""

    UP = "up"
    KILLED = "killed"
    STOPPED = "stopped"


class Node(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One node: where it listens, and its process if it was started."""

    name: str
    kind: Kind
    group: str = ""
    broker_id: int = 0
    role: str = ""
    """As brokers spell it: ASYNC_MASTER, SYNC_MASTER, SLAVE. Empty for a name server."""
    host: str
    port: int
    fast_port: int = 0
    ha_port: int = 0
    wanted: Wanted = Wanted.STOPPED
    process: Process | None = None

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return format_address((self.host, self.port))

    @property
    def is_broker(self) -> bool:
        return self.kind is Kind.BROKER

    @property
    def is_master(self) -> bool:
        return self.is_broker and self.broker_id == 0

    @property
    def ports(self) -> tuple[int, ...]:
        """All that it listens on."""
        return (self.port, self.fast_port, self.ha_port) if self.is_broker else (self.port,)


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How large a cluster is and what it promises. Raises ConfigError when a value is out of its range."""

    groups: int = 2
    replicas: int = 2
    """Brokers of a group: one master, the others are slaves."""
    replicated_groups: int | None = None
    """So many groups, the first ones, have slaves; None is all of them. A master without slaves waits for none."""
    name_servers: int = 3
    role: str = "async"
    """`sync`: a message is acknowledged when a slave has it. `async`: when the master has it."""
    flush: str = "async"
    """`sync`: a message is acknowledged when it is on disk. `async`: when it is written."""
    host: str = "127.0.0.1"
    first_port: int = 0
    """0 takes any free ports."""
    first_broker_port: int = 0
    """With a first port: where brokers begin; 0 is 20 above it."""
    settings: dict[str, str] = {}
    """More settings, for every broker."""

    def __post_init__(self) -> None:
        for name, maximum in (("groups", GROUPS_MAX), ("replicas", REPLICAS_MAX), ("name_servers", NAME_SERVERS_MAX)):
            if not 1 <= getattr(self, name) <= maximum:
                raise ConfigError(f"{name} = {getattr(self, name)}: between 1 and {maximum}")
        if self.replicated_groups is not None and not 0 <= self.replicated_groups <= self.groups:
            raise ConfigError(f"replicated_groups = {self.replicated_groups}: between 0 and {self.groups}, the groups")
        if self.broker_count > BROKERS_MAX:
            raise ConfigError(
                f"{self.groups} groups of {self.replicas} are {self.broker_count} brokers; at most {BROKERS_MAX} are "
                "started on one machine"
            )
        for name in ("role", "flush"):
            if getattr(self, name) not in ("sync", "async"):
                raise ConfigError(f"{name} = {getattr(self, name)!r}: write sync or async")
        self._check_ports()
        if len(self.settings) > _SETTINGS_MAX:
            raise ConfigError(f"{len(self.settings)} settings; at most {_SETTINGS_MAX}")

    def replicas_of(self, group: int) -> int:
        """Brokers of a group, by its number from 0."""
        return self.replicas if self.replicated_groups is None or group < self.replicated_groups else 1

    @property
    def broker_count(self) -> int:
        """Masters and slaves together."""
        return sum(map(self.replicas_of, range(self.groups)))

    @property
    def brokers_from(self) -> int:
        """The port of the first broker, where ports are given."""
        return self.first_broker_port or self.first_port + _BROKERS_FROM

    def _check_ports(self) -> None:
        if not self.first_port:
            if self.first_broker_port:
                raise ConfigError("a first port for brokers needs one for name servers too")
            return
        span = _BROKER_STEP * self.broker_count
        for port, last_port in (
            (self.first_port, self.first_port if self.first_broker_port else self.brokers_from + span),
            (self.brokers_from, self.brokers_from + span),
        ):
            if not 1_024 <= port <= last_port <= _PORT_MAX:
                raise ConfigError(f"port {port}: between 1024 and {_PORT_MAX - (last_port - port)}")

    @property
    def text(self) -> str:
        """The shape as people say it."""
        slaves = self.replicas - 1
        followers = "no slaves" if not slaves else f"{slaves} slave{'s' * (slaves > 1)} each"
        if slaves and self.replicated_groups is not None:
            followers = f"{followers.removesuffix(' each')} for {self.replicated_groups} of them"
        return (
            f"{self.groups} group{'s' * (self.groups > 1)}, {followers}, {self.name_servers} name "
            f"server{'s' * (self.name_servers > 1)}, role {self.role}, flush {self.flush}"
        )


def nodes_of(shape: Shape, ports: Sequence[int] = ()) -> tuple[Node, ...]:
    """The nodes of a cluster, name servers first. Without a first port they take `ports`, of `ports_needed`."""
    given = iter(ports)

    def name_servers() -> Iterator[Node]:
        for index in range(shape.name_servers):
            port = shape.first_port + index if shape.first_port else next(given)
            yield Node(name=f"namesrv-{index + 1}", kind=Kind.NAME_SERVER, host=shape.host, port=port)

    def brokers() -> Iterator[Node]:
        places = [
            (number, broker_id) for number in range(shape.groups) for broker_id in range(shape.replicas_of(number))
        ]
        for index, (number, broker_id) in enumerate(places):
            group = f"broker-{chr(ord('a') + number)}"
            role = "async" if shape.replicas_of(number) < shape.replicas else shape.role
            if shape.first_port:
                port = shape.brokers_from + index * _BROKER_STEP
                fast_port, ha_port = port - 2, port + 1
            else:
                port, fast_port, ha_port = next(given), next(given), next(given)
            yield Node(
                name=f"{group}-s{broker_id}" if broker_id else group,
                kind=Kind.BROKER,
                group=group,
                broker_id=broker_id,
                role="SLAVE" if broker_id else f"{role.upper()}_MASTER",
                host=shape.host,
                port=port,
                fast_port=fast_port,
                ha_port=ha_port,
            )

    return (*name_servers(), *brokers())


def ports_needed(shape: Shape) -> int:
    """How many ports that are."""
    return shape.name_servers + 3 * shape.broker_count


class NodeFiles:
    """The folder of one node, and the command that runs it from there."""

    def __init__(self, data: Path, node: Node) -> None:
        self.folder = data / node.name
        self.config = self.folder / f"{node.kind.value}.conf"
        self.log = self.folder / "log"
        self.store = self.folder / "store"
        # -P: a folder that happens to be called fusee where the command is given is not the program.
        self.command: tuple[str, ...] = (
            *(sys.executable, "-P", "-m", "fusee"),
            *(node.kind.value, "--config", str(self.config)),
        )


def name_server_settings(node: Node, files: NodeFiles) -> str:
    """The file of a name server."""
    return format_properties(
        {
            "bindAddress": node.host,
            "listenPort": str(node.port),
            "kvConfigPath": str(files.folder / "kvConfig.json"),
        }
    )


def broker_settings(node: Node, files: NodeFiles, shape: Shape, *, cluster: str, name_servers: str) -> str:
    """The file of a broker."""
    entries = {
        "brokerClusterName": cluster,
        "brokerName": node.group,
        "brokerId": str(node.broker_id),
        "brokerRole": node.role,
        "flushDiskType": f"{shape.flush.upper()}_FLUSH",
        "namesrvAddr": name_servers,
        "bindAddress": node.host,
        "brokerIP1": node.host,
        "listenPort": str(node.port),
        "fastListenPort": str(node.fast_port),
        "haListenPort": str(node.ha_port),
        "storePathRootDir": str(files.store),
        "registerNameServerPeriod": str(_REGISTER_PERIOD_MS),
    }
    return format_properties(entries | shape.settings)


def check_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings in RocketMQ's spelling. Raises ConfigError for what brokers do not take, or the plan decides."""
    known = types_of(BrokerConfig) | types_of(StoreConfig)
    names = {spelled(name): name for name in known} | {name: name for name in known}
    checked: dict[str, str] = {}
    for given, value in settings.items():
        name = names.get(given)
        if name in _RESERVED or given in map(spelled, _RESERVED):
            raise ConfigError(f"{given} is decided by the cluster's own options, and cannot be set beside them")
        if name is None:
            close = get_close_matches(given, names, n=1)
            hint = f", did you mean {close[0]}?" if close else ";"
            raise ConfigError(f"brokers know no setting {given!r}{hint} `fusee broker --print-config` lists all")
        checked[name] = value
    load_settings(flags=checked)
    return {spelled(name): value for name, value in checked.items()}
