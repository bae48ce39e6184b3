"""The settings in force, and which of them may be changed over the wire (Java: Configuration).

Changing settings over the wire is a typed allow-list with a range for each number: paths, addresses, names and what
is built into files or prepared answers are not on it. (The reference takes any key, and ignores a value that it
cannot read; a broker could once be made to write any file this way, CVE-2023-33246.) An update is all or nothing.

Whoever must know of a change is a listener; whoever reads `broker` or `store` here at each use need not be. Changes
are saved to the properties file `broker_config_path` when one is set, beside what it already holds, and read from
there at the next start.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fusee.broker.config import TRANSFER_BYTES_MAX, BrokerConfig, spelled, text_of
from fusee.config import format_properties, parse_properties
from fusee.errors import ConfigError
from fusee.store.config import StoreConfig
from fusee.store.saved_document import SavedDocument
from fusee.wire.bodies.topic import DataVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fusee.broker.config import Settings
    from fusee.clock import Clock
    from fusee.store.filesystem import FileSystem

BLACK_LIST_REMARK: Final = "Can not update config in black list."
_BLACK_LIST: Final = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS


class UpdateRefusedError(ConfigError):
    """A setting that may not be changed over the wire."""


class Range(NamedTuple):
    """The numbers that a setting may be changed to."""

    least: int
    most: int


_NUMBER: Final = re.compile(r"-?[0-9]{1,19}").fullmatch
_FLAG: Final = None
_TEXT: Final = None

UPDATABLE: Final[Mapping[str, Range | None]] = {
    # The broker's
    "auto_create_subscription_group": _FLAG,
    "auto_create_topic_enable": _FLAG,
    "broker_permission": Range(0, 7),
    "channel_expired_timeout": Range(1_000, _DAY_MS),
    "clear_retry_topic_when_delete_topic": _FLAG,
    "default_topic_queue_nums": Range(1, 1_024),
    "enable_property_filter": _FLAG,
    "filter_support_retry": _FLAG,
    "flush_consumer_offset_interval": Range(100, 10 * _MINUTE_MS),
    "flush_delay_offset_interval": Range(100, 10 * _MINUTE_MS),
    "ha_flow_control_enable": _FLAG,
    "ha_housekeeping_interval": Range(1_000, 10 * _MINUTE_MS),
    "ha_max_gap_not_in_sync": Range(1_024, 2**40),
    "ha_send_heartbeat_interval": Range(100, 10 * _MINUTE_MS),
    "ha_transfer_batch_size": Range(1_024, TRANSFER_BYTES_MAX),
    "in_sync_replicas": Range(1, 64),
    "lite_pull_message_enable": _FLAG,
    "long_polling_enable": _FLAG,
    "max_ha_transfer_byte_in_second": Range(1_024, 2**40),
    "min_in_sync_replicas": Range(1, 64),
    "notify_consumer_ids_changed_enable": _FLAG,
    "register_name_server_period": Range(10_000, _MINUTE_MS),
    "reject_pull_consumer_enable": _FLAG,
    "reject_transaction_message": _FLAG,
    "short_polling_time_mills": Range(10, _MINUTE_MS),
    "slave_read_enable": _FLAG,
    "slave_timeout": Range(100, 10 * _MINUTE_MS),
    "split_metadata_size": Range(1, 100_000),
    "start_accept_send_request_time_stamp": Range(0, 2**63 - 1),
    "store_reply_message_enable": _FLAG,
    "subscription_expired_timeout": Range(1_000, _DAY_MS),
    "suspend_timeout_max": Range(1_000, 10 * _MINUTE_MS),
    "transaction_check_interval": Range(1_000, _DAY_MS),
    "transaction_check_max": Range(1, 10_000),
    "transaction_time_out": Range(100, _DAY_MS),
    "use_server_side_reset_offset": _FLAG,
    "validate_system_topic_when_update_topic": _FLAG,
    # The store's
    "access_message_in_memory_max_ratio": Range(1, 100),
    "clean_file_forcibly_enable": _FLAG,
    "delete_file_batch_max": Range(1, 10_000),
    "delete_when": _TEXT,
    "disk_max_used_space_ratio": Range(1, 100),
    "disk_space_clean_forcibly_ratio": Range(1, 100),
    "disk_space_warning_level_ratio": Range(1, 100),
    "file_reserved_time": Range(1, 100 * 365 * 24),
    "flush_commit_log_least_pages": Range(0, 1_000_000),
    "flush_commit_log_thorough_interval": Range(10, 10 * _MINUTE_MS),
    "flush_interval_commit_log": Range(10, 10 * _MINUTE_MS),
    "max_filter_message_size": Range(1, 10_000_000),
    "max_transfer_bytes_on_message_in_disk": Range(1_024, 2**30),
    "max_transfer_bytes_on_message_in_memory": Range(1_024, 2**30),
    "max_transfer_count_on_message_in_disk": Range(1, 10_000),
    "max_transfer_count_on_message_in_memory": Range(1, 10_000),
}
"""Settings that may be changed over the wire, and the range of those that are numbers."""

_BROKER_NAMES: Final = frozenset(field.name for field in fields(BrokerConfig))
_STORE_NAMES: Final = frozenset(field.name for field in fields(StoreConfig))
_NAMES: Final = {
    spelling: name for name in ("store_path", *_BROKER_NAMES, *_STORE_NAMES) for spelling in (name, spelled(name))
}


class LiveSettings:
    """The settings in force. A listener is called with them, and the names of what changed, after each change."""

    def __init__(self, settings: Settings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.version = DataVersion(timestamp=clock.time_ms())
        self.listeners: list[Callable[[LiveSettings, frozenset[str]], object]] = []
        # Values that became known at start, by name: the advertised address, a port that was 0.
        self.found: dict[str, str] = {}

    @property
    def broker(self) -> BrokerConfig:
        return self._settings.broker

    @property
    def store(self) -> StoreConfig:
        return self._settings.store

    @property
    def store_path(self) -> str:
        return self._settings.store_path

    def to_properties(self) -> str:
        """All settings as lines `key=value` in RocketMQ's spelling, sorted by key."""
        return self._settings.to_properties(self.found)

    def update(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Change these settings, all or none; what they are now, in RocketMQ's spelling.

        Raises UpdateRefusedError for a setting that may not be changed this way, and ConfigError for a value that it
        cannot have.
        """
        black_list = _BLACK_LIST | {key.strip() for key in self.broker.config_black_list.split(";")}
        if any(key in black_list or spelled(_NAMES.get(key, key)) in black_list for key in properties):
            raise UpdateRefusedError(BLACK_LIST_REMARK)
        values = self._settings.values()
        changes: dict[str, Any] = {}
        for key, text in properties.items():
            name = _updatable(key)
            changes[name] = _value(key, text.strip(), type(values[name]), UPDATABLE[name])
        self._settings = replace(
            self._settings,
            broker=replace(self.broker, **{name: changes[name] for name in changes if name in _BROKER_NAMES}),
            store=replace(self.store, **{name: changes[name] for name in changes if name in _STORE_NAMES}),
        )
        self.version = DataVersion(
            counter=self.version.counter + 1,
            state_version=self.version.state_version,
            timestamp=self._clock.time_ms(),
        )
        changed = frozenset(name for name, value in changes.items() if value != values[name])
        if changed:
            for listener in self.listeners:
                listener(self, changed)
        return {spelled(name): text_of(value) for name, value in changes.items()}


def _updatable(key: str) -> str:
    name = _NAMES.get(key)
    if name is None:
        raise UpdateRefusedError(f"{key[:100]} is no setting of this broker; `fusee broker -p` prints them all")
    if name not in UPDATABLE:
        raise UpdateRefusedError(
            f"{key} cannot be changed while the broker runs: set it in the broker's file or flags, and restart"
        )
    return name


def _value(key: str, text: str, value_type: type, limits: Range | None) -> bool | int | str:
    if value_type is str:
        return text
    if value_type is bool:
        if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        raise ConfigError(f"{key}={text[:100]}: write true or false")
    if not _NUMBER(text):
        raise ConfigError(f"{key}={text[:100]}: write a whole number")
    number = int(text)
    if limits is not None and not limits.least <= number <= limits.most:
        raise ConfigError(f"{key}={text[:100]}: must be between {limits.least} and {limits.most}")
    return number


class SettingsFile:
    """The properties file of what was changed over the wire, replaced as a whole and kept once more beside it."""

    def __init__(self, path: str, files: FileSystem) -> None:
        self._document: SavedDocument[dict[str, str]] = SavedDocument(
            Path(path).expanduser(), files, encode=_encode, decode=_decode
        )

    def save(self, changes: dict[str, str]) -> None:
        """Add these to the file, durably. Waits for the disk. Raises StoreError."""
        saved = self._document.load() or {}
        if saved | changes != saved:
            self._document.save(saved | changes)


def _encode(entries: dict[str, str]) -> bytes:
    return format_properties(entries).encode()


def _decode(content: bytes) -> dict[str, str]:
    return parse_properties(content.decode())
