"""Servers by address, what failed at one, and brokers in numbers."""

from __future__ import annotations

from typing import Final

import msgspec

MASTER_ID: Final = 0


class BrokerAddress(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One broker: cluster, name of its group, id within the group (0 is the master), address."""

    cluster: str = ""
    broker_name: str = ""
    broker_id: int = MASTER_ID
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    def __str__(self) -> str:
        return f"{self.broker_name} ({self.address})" if self.broker_name else self.address


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A server that did not do, or did not tell, what it was asked for."""

    address: str
    broker_name: str = ""
    cause: str
    code: int | None = None
    retryable: bool = False


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """A broker in numbers (Java: the runtime table). Rates are of the last ten seconds; `table` has everything."""

    broker: BrokerAddress
    version: str
    boot_ms: int
    put_tps: float
    get_tps: float
    put_total: int
    put_today: int
    put_yesterday: int
    get_today: int
    get_yesterday: int
    log_min_offset: int
    log_max_offset: int
    disk_used_ratio: float
    dispatch_behind_bytes: int
    earliest_message_ms: int
    send_queue_size: int
    pull_queue_size: int
    page_cache_lock_ms: int
    timer_behind: int
    is_active: bool
    table: dict[str, str]


class BrokerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of a cluster, and its numbers when it told them."""

    broker: BrokerAddress
    state: BrokerState | None = None
    failure: Failure | None = None


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and all its brokers, sorted by name and id."""

    cluster: str
    brokers: tuple[BrokerEntry, ...]

    @property
    def put_tps(self) -> float:
        return sum(entry.state.put_tps for entry in self.brokers if entry.state and entry.broker.is_master)

    @property
    def get_tps(self) -> float:
        return sum(entry.state.get_tps for entry in self.brokers if entry.state)


class StatItem(msgspec.Struct, frozen=True, kw_only=True):
    """One number over one span of time."""

    total: int
    tps: float
    average: float


class StatView(msgspec.Struct, frozen=True, kw_only=True):
    """One statistic of the last minute, hour and day."""

    name: str
    key: str
    minute: StatItem
    hour: StatItem
    day: StatItem


class SlaveView(msgspec.Struct, frozen=True, kw_only=True):
    """A slave as its master sees it."""

    address: str
    acked_log_offset: int
    behind_bytes: int
    is_in_sync: bool
    bytes_per_second: int


class ReplicationView(msgspec.Struct, frozen=True, kw_only=True):
    """Replication at one broker; a master lists its slaves, a slave tells its master."""

    broker: BrokerAddress
    is_master: bool
    log_max_offset: int
    in_sync_slaves: int
    slaves: tuple[SlaveView, ...] = ()
    master_address: str = ""
    bytes_per_second: int = 0
    last_read_ms: int = 0
    is_active: bool = False


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the log that one master wrote."""

    epoch: int
    start_log_offset: int
    end_log_offset: int


class TopicTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic and a group in numbers (mqadmin statsAll). `group` is empty for a topic that nobody consumes."""

    topic: str
    group: str
    lag: int
    in_tps: float
    out_tps: float
    in_day: int
    out_day: int


# Controllers


class ControllerView(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads the controllers."""

    group: str
    leader_id: str
    leader_address: str
    is_leader: bool
    """Whether the one that was asked leads."""
    peers: tuple[str, ...]
    """`id:address` of each."""


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a broker group."""

    broker_id: int
    address: str
    is_alive: bool
    is_in_sync: bool


class ReplicaGroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A broker group as the controller knows it; `master_id` None while it has no master."""

    broker_name: str
    master_id: int | None
    master_address: str
    master_epoch: int
    in_sync: tuple[ReplicaView, ...]
    not_in_sync: tuple[ReplicaView, ...]
