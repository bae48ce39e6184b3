"""Settings of a broker, under RocketMQ's names in snake_case, and how they are read from and shown as its file.

A broker's file also holds the settings of its store (`fusee.store.StoreConfig`); `load_settings` reads both from one
file and lists what neither knows. Settings of the Java broker that mean nothing here (threads, Netty) may stand in a
file and are ignored.
"""

from __future__ import annotations

import dataclasses
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fusee.config import Gathered, camel, format_properties, gather, types_of
from fusee.errors import ConfigError
from fusee.store.config import StoreConfig
from fusee.store.layout import COMMIT_LOG

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where Java's spelling is not the camelCase of ours.
SPELLING: Final = {
    "broker_ip1": "brokerIP1",
    "broker_ip2": "brokerIP2",
    "check_crc_on_recover": "checkCRCOnRecover",
    "enabled_append_prop_crc": "enabledAppendPropCRC",
    "force_verify_prop_crc": "forceVerifyPropCRC",
    "store_path": "storePathRootDir",
    "store_path_commit_log": "storePathCommitLog",
}

# What the reference's slaves can take: their buffer has room for 4 MiB.
TRANSFER_BYTES_MAX: Final = 1024 * 1024
ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")


def spelled(name: str) -> str:
    """RocketMQ's spelling of a setting's name."""
    return SPELLING.get(name) or camel(name)


def host_name() -> str:
    """The name of this machine, the default name of its broker."""
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything an operator can set on a broker. Raises ConfigError when a value is out of its range."""

    # Who it is

    broker_name: str = dataclasses.field(default_factory=host_name)
    """Name of the group of a master and its slaves."""

    broker_cluster_name: str = "DefaultCluster"
    """Cluster that the broker belongs to."""

    broker_id: int = 0
    """0 is the master, greater ones are slaves."""

    broker_role: str = "ASYNC_MASTER"
    """ASYNC_MASTER, SYNC_MASTER or SLAVE."""

    # Where it listens and what it tells others

    bind_address: str = "0.0.0.0"
    """Address to listen on."""

    listen_port: int = 10911
    """Port for clients; 0 takes any free one."""

    fast_listen_port: int = -1
    """Second port for sends, so that pulls never stand before them: -1 is listenPort - 2, 0 any free one."""

    ha_listen_port: int = -1
    """Port that slaves connect to: -1 is listenPort + 1, 0 any free one."""

    broker_ip1: str = ""
    """Address told to clients; empty takes the address of this machine that a route outwards would use."""

    broker_ip2: str = ""
    """Address told to slaves; empty is the same as brokerIP1."""

    namesrv_addr: str = ""
    """Name servers, `host:port` joined by `;`; empty runs without any."""

    register_name_server_period: int = 30_000
    """Milliseconds between two registrations, from 10000 to 60000."""

    register_broker_timeout_mills: int = 24_000
    """Milliseconds that a name server may take to answer a registration."""

    connections_max: int = 20_000
    """Connections that may be open at once; one more is closed as it comes."""

    server_channel_max_idle_time_seconds: int = 120
    """A connection without traffic for this long is closed."""

    shutdown_wait_time_seconds: int = 10
    """Longest time that requests under way are waited for at shutdown."""

    frame_size_max: int = 16 * 1024 * 1024
    """Bytes of one request."""

    metrics_exporter_type: str = "DISABLE"
    """PROM serves metrics over HTTP, DISABLE does not. The other exporters of the reference are not served."""

    metrics_prom_exporter_host: str = ""
    """Address that metrics are served on; empty is bindAddress."""

    metrics_prom_exporter_port: int = 5557
    """Port that metrics are served on; 0 takes any free one."""

    tls_server_mode: str = "permissive"
    """With a certificate: permissive takes TLS and plain on one port, enforcing only TLS, disabled only plain."""

    tls_server_cert_path: str = ""
    """PEM file of the certificate chain; empty serves no TLS."""

    tls_server_key_path: str = ""
    """PEM file of the private key; empty when it is in the certificate's file."""

    # Topics and groups

    broker_permission: int = 6
    """What clients may do here: 4 read, 2 write, 6 both."""

    default_topic_queue_nums: int = 8
    """Queues of TBW102, and so the most that a topic made by a send may have."""

    auto_create_topic_enable: bool = True
    """Whether a send to an unknown topic makes it."""

    cluster_topic_enable: bool = True
    """Whether the topic named as the cluster can be written and read."""

    broker_topic_enable: bool = True
    """Whether the topic named as the broker can be written and read."""

    auto_create_subscription_group: bool = True
    """Whether an unknown consumer group is made when it is first seen."""

    validate_system_topic_when_update_topic: bool = True
    """Whether an administrator's change of a system topic is refused."""

    trace_topic_enable: bool = False
    """Whether the topic of message traces is made at start."""

    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    """Topic of message traces."""

    trace_on: bool = True
    """Whether send answers ask clients to trace."""

    region_id: str = "DefaultRegion"
    """Region told in send answers."""

    topics_max: int = 200_000
    """Topics that may exist. (Ours.)"""

    groups_max: int = 200_000
    """Consumer groups that may exist. (Ours.)"""

    # Sending

    send_thread_pool_queue_capacity: int = 10_000
    """Sends that may wait for the disk at once; one more is answered SYSTEM_BUSY."""

    reject_transaction_message: bool = False
    """Whether transactional messages are refused."""

    start_accept_send_request_time_stamp: int = 0
    """Time in milliseconds before which sends are refused."""

    store_reply_message_enable: bool = True
    """Whether replies of the request-reply mode are also stored."""

    # Pulling

    pull_thread_pool_queue_capacity: int = 100_000
    """Pulls that may be held at once; one more is answered SYSTEM_BUSY."""

    long_polling_enable: bool = True
    """Whether a pull that finds nothing is held for the time its client asks for."""

    short_polling_time_mills: int = 1_000
    """How long it is held when longPollingEnable is off."""

    suspend_timeout_max: int = 120_000
    """Longest time in milliseconds that a pull is held, whatever its client asks for. (Ours.)"""

    lite_pull_message_enable: bool = True
    """Whether lite pull consumers are served."""

    reject_pull_consumer_enable: bool = False
    """Whether pulls of consumers that do not heartbeat are refused."""

    bulk_read_enable: bool = True
    """Whether ranges of queues may be read in bulk, as Spark does; else whoever asks pulls instead. (Ours.)"""

    bulk_read_local_enable: bool = True
    """Whether a bulk reader on this machine may be told where records lie, to read them from the files. (Ours.)"""

    bulk_read_bytes_max: int = 4 * 1024 * 1024
    """Bytes of records in the answer to a bulk read. (Ours.)"""

    bulk_read_bytes_max_in_disk: int = 1024 * 1024
    """The same when the records lie too far back to be in memory. (Ours.)"""

    handover_enable: bool = True
    """Whether senders on this machine may hand over messages in shared memory, as Spark's workers do. (Ours.)"""

    enable_property_filter: bool = False
    """Whether SQL92 subscriptions are served."""

    filter_support_retry: bool = False
    """Whether SQL92 subscriptions filter retry topics too."""

    slave_read_enable: bool = False
    """Whether consumers far behind are sent to a slave."""

    # Replication

    ha_master_address: str = ""
    """Where a slave finds its master's log stream, `host:port`; empty asks the name servers."""

    ha_send_heartbeat_interval: int = 5_000
    """Milliseconds after which an idle master or slave lets the other hear of it."""

    ha_housekeeping_interval: int = 20_000
    """Milliseconds after which a master or slave that is not heard of is given up."""

    ha_transfer_batch_size: int = 32 * 1024
    """Bytes of the log in one transfer to a slave."""

    ha_flow_control_enable: bool = False
    """Whether maxHaTransferByteInSecond is kept."""

    max_ha_transfer_byte_in_second: int = 100 * 1024 * 1024
    """Bytes of the log that one slave gets in a second, with haFlowControlEnable."""

    ha_max_gap_not_in_sync: int = 256 * 1024 * 1024
    """Bytes that a slave may be behind and still count as in sync."""

    in_sync_replicas: int = 1
    """Brokers that have a message before its sender hears of success, the master among them; two at least for a
    SYNC_MASTER."""

    min_in_sync_replicas: int = 1
    """Brokers that must be in sync, the master among them, for a SYNC_MASTER to take messages at all."""

    slave_timeout: int = 3_000
    """Milliseconds that a SYNC_MASTER waits for its slaves before it answers FLUSH_SLAVE_TIMEOUT."""

    sync_from_last_file: bool = False
    """Whether a slave without a log begins with its master's last segment instead of the first."""

    # Acting for the master

    enable_slave_acting_master: bool = False
    """Whether a slave may act for its master: name servers show it as the master, for reads. The name servers need
    supportActingMaster."""

    enable_remote_escape: bool = False
    """Whether a slave that acts for its master delivers delayed messages, to the queues of other broker groups."""

    broker_heartbeat_interval: int = 1_000
    """Milliseconds between two signs of life to name servers, with enableSlaveActingMaster."""

    broker_not_active_timeout_millis: int = 10_000
    """Milliseconds of silence after which name servers take this broker for gone, with enableSlaveActingMaster."""

    sync_broker_member_group_period: int = 1_000
    """Milliseconds between two questions to name servers who is in this broker's group."""

    # Clients

    channel_expired_timeout: int = 120_000
    """Milliseconds after which a client without heartbeat is forgotten."""

    subscription_expired_timeout: int = 600_000
    """Milliseconds after which a topic that a group no longer subscribes to is forgotten."""

    notify_consumer_ids_changed_enable: bool = True
    """Whether members of a group are told when another comes or goes."""

    clients_per_group_max: int = 50_000
    """Members of one group. (Ours.)"""

    subscriptions_per_group_max: int = 10_000
    """Topics that one group subscribes to. (Ours.)"""

    # Offsets

    flush_consumer_offset_interval: int = 5_000
    """Milliseconds between two saves of consumer offsets."""

    use_server_side_reset_offset: bool = True
    """Whether a reset of offsets is done by the broker alone, without asking the clients."""

    offsets_max: int = 2_000_000
    """Consumer offsets that are kept, one per group, topic and queue. (Ours.)"""

    # Delayed messages

    flush_delay_offset_interval: int = 10_000
    """Milliseconds between two saves of how far delayed messages have been delivered."""

    # Transactions

    transaction_time_out: int = 6_000
    """Milliseconds before an undecided transaction is asked about for the first time."""

    transaction_check_max: int = 15
    """Times that a producer is asked before its transaction is given up."""

    transaction_check_interval: int = 30_000
    """Milliseconds between two rounds of asking."""

    transaction_op_msg_max_size: int = 4_096
    """Bytes of one record of decided transactions."""

    transaction_op_batch_interval: int = 3_000
    """Milliseconds that decided transactions gather before they are recorded."""

    # Staged batches, which are Fusee's own

    staged_time_out: int = 86_400_000
    """Milliseconds after which staged messages that nobody has committed are forgotten."""

    staged_bytes_max: int = 16 * 1024**3
    """Bytes of messages that may be staged and not committed."""

    staged_transactions_max: int = 10_000
    """Transactions of one application that may be staged and not committed."""

    staged_parts_max: int = 100_000
    """Requests that one application may stage before it commits."""

    staged_applications_max: int = 10_000
    """Applications whose last batch is remembered."""

    staged_reserved_time: int = 30 * 86_400_000
    """Milliseconds that the last batch of an application is remembered after its commit."""

    # Changes over the wire

    config_black_list: str = "configBlackList;brokerConfigPath"
    """More settings that may not be changed over the wire, separated by semicolons."""

    broker_config_path: str = ""
    """Properties file for settings changed over the wire; empty lets them last until the next start."""

    split_metadata_size: int = 2_000
    """Topics or groups in one part of a paged answer."""

    clear_retry_topic_when_delete_topic: bool = True
    """Whether the retry topics of POP consumption go with their topic."""

    def __post_init__(self) -> None:
        for name in ("listen_port", "metrics_prom_exporter_port", "ha_listen_port", "fast_listen_port"):
            if not (-1 if name in ("ha_listen_port", "fast_listen_port") else 0) <= getattr(self, name) <= 65_535:
                raise ConfigError(f"{camel(name)}={getattr(self, name)}: a port is between 0 and 65535")
        if self.broker_role not in ROLES:
            raise ConfigError(f"brokerRole={self.broker_role}: write one of {', '.join(ROLES)}")
        if (self.broker_role == "SLAVE") != (self.broker_id > 0):
            raise ConfigError(
                f"brokerId={self.broker_id} does not fit brokerRole={self.broker_role}: 0 is the master, slaves have 1 "
                "and more"
            )
        if self.metrics_exporter_type not in ("DISABLE", "PROM"):
            raise ConfigError(
                f"metricsExporterType={self.metrics_exporter_type}: write PROM, and let Prometheus or a collector of "
                "OpenTelemetry scrape it, or DISABLE"
            )
        if self.tls_server_mode not in ("disabled", "permissive", "enforcing"):
            raise ConfigError(f"tlsServerMode={self.tls_server_mode}: write disabled, permissive or enforcing")
        if not 1 <= self.ha_transfer_batch_size <= TRANSFER_BYTES_MAX:
            raise ConfigError(
                f"haTransferBatchSize={self.ha_transfer_batch_size}: between 1 and {TRANSFER_BYTES_MAX} bytes"
            )
        for name in ("ha_send_heartbeat_interval", "ha_housekeeping_interval", "slave_timeout", "in_sync_replicas"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{camel(name)}={getattr(self, name)}: must be at least 1")
        if self.min_in_sync_replicas > max(self.in_sync_replicas, 2):
            raise ConfigError(
                f"minInSyncReplicas={self.min_in_sync_replicas} is more than inSyncReplicas={self.in_sync_replicas}: "
                "no message would be taken that enough brokers can have. Raise inSyncReplicas, or lower it"
            )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if type(value) is int and value < 0 and field.name not in ("fast_listen_port", "ha_listen_port"):
                raise ConfigError(f"{spelled(field.name)}={value}: must not be negative")

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def replicas_required(self) -> int:
        """Brokers that must have a message before its sender hears of success, this one among them."""
        return max(self.in_sync_replicas, 2) if self.broker_role == "SYNC_MASTER" else 1

    @property
    def name_servers(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.namesrv_addr.replace(",", ";").split(";") if part.strip())


def text_of(value: object) -> str:
    """A setting's value as files and the wire write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, Enum) else value)


@dataclass(frozen=True, slots=True)
class Settings:
    """A broker's settings and its store's, where each came from, and what was in the file that neither knows."""

    broker: BrokerConfig
    store: StoreConfig
    store_path: str
    origins: dict[str, str]
    ignored: tuple[str, ...]

    def values(self) -> dict[str, Any]:
        """Every setting by name."""
        values: dict[str, Any] = {"store_path": self.store_path}
        for config in (self.broker, self.store):
            for field in dataclasses.fields(config):
                values[field.name] = getattr(config, field.name)
        return values

    def to_properties(self, found: Mapping[str, str] | None = None) -> str:
        """All settings as lines `key=value` in RocketMQ's spelling, sorted by key.

        `found` has values that became known at start, by name: an address, a port that was 0.
        """
        values = self.values() | dict(found or {})
        return format_properties(dict(sorted((spelled(name), text_of(value)) for name, value in values.items())))


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Settings from defaults < file < environment < flags. Raises ConfigError naming setting and origin.

    What was changed over the wire and saved (`broker_config_path`) stands between file and environment. As in Java,
    NAMESRV_ADDR names the name servers when nothing else does, and the store is in `~/store`.
    """
    environment = environment or {}
    broker_types, store_types = types_of(BrokerConfig), types_of(StoreConfig)
    types = broker_types | store_types | {"store_path": str, "store_path_commit_log": str}

    def gather_from(*files: Path) -> Gathered:
        return gather(types, program="broker", files=files, environment=environment, flags=flags, spelled=spelled)

    files = [] if file is None else [file]
    found = gather_from(*files)
    saved = _saved_settings(found)
    if saved is not None and saved.exists() and not (file is not None and file.exists() and saved.samefile(file)):
        found = gather_from(*files, saved)
    values, origins = found.values, found.origins
    if "namesrv_addr" not in values and environment.get("NAMESRV_ADDR"):
        values["namesrv_addr"], origins["namesrv_addr"] = environment["NAMESRV_ADDR"], "environment NAMESRV_ADDR"
    store_path = Path(values.get("store_path") or "~/store").expanduser()
    _check_log_folder(store_path, values.get("store_path_commit_log"), origins.pop("store_path_commit_log"))
    return Settings(
        broker=BrokerConfig(**{name: value for name, value in values.items() if name in broker_types}),
        store=StoreConfig(**{name: value for name, value in values.items() if name in store_types}),
        store_path=str(store_path),
        origins=origins,
        ignored=found.ignored,
    )


def _saved_settings(found: Gathered) -> Path | None:
    """The file of settings that were changed over the wire."""
    path = found.values.get("broker_config_path")
    if not path:
        return None
    if path.endswith(".toml"):
        raise ConfigError(
            f"brokerConfigPath={path} ({found.origins['broker_config_path']}): settings changed over the wire are "
            "saved as properties; name a .properties file"
        )
    return Path(path).expanduser()


def _check_log_folder(store_path: Path, log_path: str | None, origin: str) -> None:
    """Java allows another place for the log: starting without the log that a file names would show nothing stored."""
    usual = store_path / COMMIT_LOG
    if log_path and Path(log_path).expanduser().absolute() != usual.absolute():
        raise ConfigError(
            f"storePathCommitLog={log_path} ({origin}): the log of a store is in {usual}. Move it there, or make "
            f"{usual} a link to it, and remove the setting"
        )
