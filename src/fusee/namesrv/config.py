"""Settings of the name server, and the few of them that may be changed over the wire.

A setting that is also RocketMQ's keeps RocketMQ's name, here in snake_case, in files and on the wire in
camelCase. Settings of the Java name server that mean nothing here (threads, Netty) may stand in a file
and are ignored.

Changing settings over the wire is a typed allow-list (`UPDATABLE`). Paths, addresses and limits are not
on it, and there are no commands: the Java name server once could be made to write any file this way
(CVE-2023-37582).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from fusee.config import camel, format_properties
from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class UpdateRefusedError(ConfigError):
    """A setting that may not be changed over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLimits:
    """How large the route table may grow; see the fields of the same names in NameServerConfig."""

    brokers_max: int = 20_000
    topics_max: int = 500_000
    topics_per_registration_max: int = 500_000
    filter_servers_per_broker_max: int = 256
    name_length_max: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLimits:
    """How large the key/value table may grow; see the fields of the same names in NameServerConfig."""

    kv_namespaces_max: int = 1_000
    kv_keys_max: int = 200_000
    kv_name_length_max: int = 1_024
    kv_value_length_max: int = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Everything an operator can set. Raises ConfigError when a value is out of its range."""

    bind_address: str = "0.0.0.0"
    """Address to listen on."""

    listen_port: int = 9876
    """Port to listen on; 0 takes any free one."""

    server_channel_max_idle_time_seconds: int = 120
    """A connection without traffic for this long is closed, and the broker behind it removed."""

    shutdown_wait_time_seconds: int = 30
    """Longest time that requests under way are waited for at shutdown."""

    connections_max: int = 20_000
    """Connections that may be open at once; one more is closed as it comes."""

    tls_server_mode: str = "permissive"
    """With a certificate: permissive takes TLS and plain on one port, enforcing only TLS, disabled only plain."""

    tls_server_cert_path: str = ""
    """PEM file of the certificate chain; empty serves no TLS."""

    tls_server_key_path: str = ""
    """PEM file of the private key; empty when it is in the certificate's file."""

    kv_config_path: str = "~/namesrv/kvConfig.json"
    """File of the key/value configuration, format and place as in Java; empty keeps it in memory only."""

    config_store_path: str = ""
    """Properties file for settings changed over the wire; empty lets them last until the next start."""

    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    """More settings that may not be changed over the wire, separated by semicolons."""

    scan_not_active_broker_interval: int = 5_000
    """Milliseconds between two searches for brokers that went silent."""

    order_message_enable: bool = False
    """Whether routes carry the order configuration of their topic."""

    return_order_topic_config_to_broker: bool = True
    """Whether a registration is answered with the order configuration of all topics."""

    support_acting_master: bool = False
    """Whether a route shows the smallest slave of a group without master as its read-only master."""

    notify_min_broker_id_changed: bool = False
    """Whether brokers of a group are told when its smallest broker id changes."""

    delete_topic_with_broker_registration: bool = False
    """Whether topics that a full registration does not name are dropped for that broker."""

    enable_all_topic_list: bool = True
    """Whether the list of all topics is answered."""

    enable_topic_list: bool = True
    """Whether the lists of topics by cluster and by unit are answered."""

    need_wait_for_service: bool = False
    """Whether routes are refused in the first seconds after start, until brokers have registered again."""

    wait_seconds_for_service: int = 45
    """How long routes are refused after start when need_wait_for_service is set."""

    brokers_max: int = 20_000
    """Brokers that may be registered."""

    topics_max: int = 500_000
    """Topics that may be known."""

    topics_per_registration_max: int = 500_000
    """Topics in one registration."""

    filter_servers_per_broker_max: int = 256
    """Filter servers in one registration."""

    name_length_max: int = 512
    """Characters in a topic, broker, cluster or zone name, or in an address."""

    register_body_size_max: int = 64 * 1024 * 1024
    """Bytes that a compressed registration may grow to."""

    kv_namespaces_max: int = 1_000
    """Namespaces of the key/value configuration."""

    kv_keys_max: int = 200_000
    """Keys in all namespaces together."""

    kv_name_length_max: int = 1_024
    """Characters in a namespace or key."""

    kv_value_length_max: int = 65_536
    """Characters in a value."""

    route_cache_entries_max: int = 20_000
    """Encoded route answers that are kept."""

    def __post_init__(self) -> None:
        if not 0 <= self.listen_port <= 65_535:
            raise ConfigError(f"listenPort={self.listen_port}: a port is between 0 and 65535")
        if self.config_store_path.endswith(".toml"):
            raise ConfigError(
                f"configStorePath={self.config_store_path}: settings changed over the wire are saved as "
                "properties; name a .properties file"
            )
        if self.tls_server_mode not in ("disabled", "permissive", "enforcing"):
            raise ConfigError(f"tlsServerMode={self.tls_server_mode}: write disabled, permissive or enforcing")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ConfigError(f"{camel(name)}={getattr(self, name)}: must not be negative")
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{camel(name)}={getattr(self, name)}: must be greater than 0")

    @property
    def route_limits(self) -> RouteLimits:
        return RouteLimits(**{field.name: getattr(self, field.name) for field in fields(RouteLimits)})

    @property
    def kv_limits(self) -> KvLimits:
        return KvLimits(**{field.name: getattr(self, field.name) for field in fields(KvLimits)})

    def to_properties(self) -> str:
        """All settings as lines `key=value` in RocketMQ's spelling, sorted by key."""
        return format_properties(dict(sorted(self.spelled(field.name for field in fields(self)).items())))

    def spelled(self, keys: Iterable[str]) -> dict[str, str]:
        """Those of these keys that are settings, in RocketMQ's spelling, with their values as text."""
        names = [_NAMES[key] for key in keys if key in _NAMES]
        return {camel(name): _text(getattr(self, name)) for name in names}

    def with_updates(self, properties: Mapping[str, str]) -> NameServerConfig:
        """This configuration with the settings that may be changed over the wire replaced by those given.

        Keys that are no settings are ignored, as the Java name server does. Raises UpdateRefusedError for
        a setting that may not be changed this way and ConfigError for a value of the wrong form; then
        nothing is changed.
        """
        changes: dict[str, bool | int] = {}
        for key, value in properties.items():
            self._check_updatable(key)
            name = _NAMES.get(key)
            if name is not None:
                changes[name] = _value(key, value.strip(), type(getattr(self, name)))
        return replace(self, **changes)  # type: ignore[arg-type]

    def _check_updatable(self, key: str) -> None:
        if key in _NEVER_UPDATABLE or key in {entry.strip() for entry in self.config_black_list.split(";")}:
            raise UpdateRefusedError(
                f"Can not update config in black list. {key} can only be set in the file or flags of the "
                "name server, before it starts"
            )
        name = _NAMES.get(key)
        if name is not None and name not in UPDATABLE:
            raise UpdateRefusedError(
                f"{key} takes effect only at start: set it in the name server's file or flags, and restart"
            )


UPDATABLE: Final = frozenset(
    {
        "delete_topic_with_broker_registration",
        "enable_all_topic_list",
        "enable_topic_list",
        "need_wait_for_service",
        "notify_min_broker_id_changed",
        "order_message_enable",
        "return_order_topic_config_to_broker",
        "scan_not_active_broker_interval",
        "support_acting_master",
        "wait_seconds_for_service",
    }
)
"""Settings that may be changed over the wire."""

_NEVER_UPDATABLE: Final = frozenset(
    {
        "configBlackList",
        "config_black_list",
        "configStorePath",
        "config_store_path",
        "kvConfigPath",
        "kv_config_path",
        "rocketmqHome",
    }
)
_NOT_NEGATIVE: Final = (
    "server_channel_max_idle_time_seconds",
    "shutdown_wait_time_seconds",
    "wait_seconds_for_service",
)
_POSITIVE: Final = (
    "connections_max",
    "scan_not_active_broker_interval",
    "register_body_size_max",
    "route_cache_entries_max",
    *(field.name for field in fields(RouteLimits)),
    *(field.name for field in fields(KvLimits)),
)


def _value(key: str, text: str, value_type: type) -> bool | int:
    if value_type is bool:
        if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        raise ConfigError(f"{key}={text[:100]!r}: must be true or false")
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{key}={text[:100]!r}: must be a whole number") from None


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_NAMES: Final = {
    spelling: field.name for field in fields(NameServerConfig) for spelling in (field.name, camel(field.name))
}
