"""Settings of a store: every size, limit and interval, with unit, default and RocketMQ's name (MessageStoreConfig).

Names are RocketMQ's in snake_case where they mean the same, so that a broker's .properties file is read as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from fusee.errors import ConfigError
from fusee.store.layout import CONSUME_ENTRY_SIZE

MIB = 1024 * 1024
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FlushDiskType(Enum):
    """When a message counts as stored: on disk, or in the operating system's memory."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Everything that can be set on a store. Raises ConfigError when a value is out of its range."""

    mapped_file_size_commit_log: int = 1024 * MIB
    """Bytes of a commit log segment."""

    mapped_file_size_consume_queue: int = 300_000 * CONSUME_ENTRY_SIZE
    """Bytes of a consume queue segment; a multiple of 20."""

    mapper_file_size_batch_consume_queue: int = 300_000 * 46
    """Bytes of a batch consume queue segment; a multiple of 46. (The reference's spelling.)"""

    max_hash_slot_num: int = 5_000_000
    """Slots of an index file."""

    max_index_num: int = 20_000_000
    """Entries of an index file."""

    message_index_enable: bool = True
    """Whether keys are indexed."""

    message_index_safe: bool = False
    """Whether recovery also goes back to the time up to which the index was on disk."""

    max_message_size: int = 4 * MIB
    """Bytes of a message body; the whole record may be 64 KiB more."""

    max_msgs_num_batch: int = 64
    """Most messages that one query by key answers."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """Whether a put is acknowledged when it is on disk, or when it is written."""

    flush_interval_commit_log: int = 500
    """Milliseconds between two looks whether there is something to flush (ASYNC_FLUSH)."""

    flush_commit_log_least_pages: int = 4
    """Dirty pages of 4 KiB that make a flush worth while (ASYNC_FLUSH)."""

    flush_commit_log_thorough_interval: int = 10_000
    """Milliseconds after which everything is flushed, however little."""

    flush_interval_consume_queue: int = 1_000
    """Milliseconds between two flushes of consume queues."""

    flush_consume_queue_least_pages: int = 2
    """Dirty pages that make a flush of a consume queue worth while."""

    flush_consume_queue_thorough_interval: int = 60_000
    """Milliseconds after which every consume queue is flushed."""

    sync_flush_timeout: int = 5_000
    """Milliseconds that a put waits for the disk before it is answered FLUSH_DISK_TIMEOUT."""

    transient_store_pool_enable: bool = False
    """Whether appends gather in memory and are committed to the file by a timer (ASYNC_FLUSH only)."""

    transient_store_pool_size: int = 5
    """Memory for that, in commit log segments."""

    commit_interval_commit_log: int = 200
    """Milliseconds between two commits from memory to the file."""

    commit_commit_log_least_pages: int = 4
    """Pages that make a commit worth while."""

    commit_commit_log_thorough_interval: int = 200
    """Milliseconds after which everything is committed."""

    check_crc_on_recover: bool = True
    """Whether recovery checks the body checksum of each record."""

    enabled_append_prop_crc: bool = False
    """Whether each record ends with a checksum of its whole."""

    force_verify_prop_crc: bool = False
    """Whether recovery refuses records without that checksum."""

    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    """Bytes that one get answers when they are in memory."""

    max_transfer_count_on_message_in_memory: int = 32
    """Messages that one get answers when they are in memory."""

    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    """Bytes that one get answers when they must come from disk."""

    max_transfer_count_on_message_in_disk: int = 8
    """Messages that one get answers when they must come from disk."""

    access_message_in_memory_max_ratio: int = 40
    """Percent of the machine's memory that counts as holding the end of the log."""

    max_filter_message_size: int = 16_000
    """Consume queue entries, in units of 20 bytes times 20, that one get looks through when filtering."""

    delete_when: str = "04"
    """Hours of the day at which expired segments are deleted, two digits each, joined by `;`."""

    file_reserved_time: int = 72
    """Hours that a segment is kept after its last write."""

    delete_file_batch_max: int = 10
    """Segments deleted in one round."""

    clean_resource_interval: int = 10_000
    """Milliseconds between two rounds of deletion."""

    disk_max_used_space_ratio: int = 75
    """Percent of the disk in use above which expired segments are deleted at any hour."""

    disk_space_clean_forcibly_ratio: int = 85
    """Percent above which the oldest segments are deleted though they have not expired."""

    disk_space_warning_level_ratio: int = 90
    """Percent above which puts are refused."""

    clean_file_forcibly_enable: bool = True
    """Whether segments that have not expired may be deleted when the disk is nearly full."""

    disk_free_bytes_min: int = 256 * MIB
    """Free bytes below which puts are refused, whatever the percentage. (Ours.)"""

    disk_free_bytes_enough: int = 64 * 1024 * MIB
    """Free bytes above which percentages do not matter: 10 % of a large disk is plenty. (Ours.)"""

    open_files_max: int = 512
    """Consume queue segments that are kept open at once. (Ours.)"""

    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """Delay of each delay level, from level 1 on; the consume queues of delayed messages hold delivery times."""

    transaction_segment_entries: int = 262_144
    """Entries of a segment of the transaction state table and of its redo log. (Ours.)"""

    def __post_init__(self) -> None:
        if self.mapped_file_size_commit_log < 4096:
            raise ConfigError(f"mappedFileSizeCommitLog={self.mapped_file_size_commit_log}: at least 4096")
        if self.mapped_file_size_consume_queue % 20 or self.mapped_file_size_consume_queue <= 0:
            raise ConfigError(
                f"mappedFileSizeConsumeQueue={self.mapped_file_size_consume_queue}: a positive multiple of 20"
            )
        if self.mapper_file_size_batch_consume_queue % 46 or self.mapper_file_size_batch_consume_queue <= 0:
            raise ConfigError(
                f"mapperFileSizeBatchConsumeQueue={self.mapper_file_size_batch_consume_queue}: a multiple of 46"
            )
        if self.max_hash_slot_num <= 0 or self.max_index_num <= 1:
            raise ConfigError("maxHashSlotNum and maxIndexNum must be greater than 0 and 1")
        if self.transient_store_pool_enable and self.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            raise ConfigError(
                "transientStorePoolEnable needs flushDiskType=ASYNC_FLUSH: memory is no disk. Set one of the two"
            )
        _delays_ms(self.message_delay_level)
        for hour in self.delete_when.split(";"):
            if not (hour.strip().isdigit() and int(hour) < 24):
                raise ConfigError(f"deleteWhen={self.delete_when}: hours of the day such as 04 or 02;14")

    def delay_ms_of(self, level: int) -> int | None:
        """The delay of a level in milliseconds; None when there is no such level."""
        delays = _delays_ms(self.message_delay_level)
        return delays[level - 1] if 1 <= level <= len(delays) else None

    @property
    def record_size_max(self) -> int:
        """Bytes of a whole record."""
        return self.max_message_size + 64 * 1024


@cache
def _delays_ms(levels: str) -> tuple[int, ...]:
    """The delays of `1s 5m 2h 1d`, in milliseconds."""
    delays = []
    for text in levels.split():
        unit_ms = _UNITS_MS.get(text[-1])
        if unit_ms is None or not (text[:-1].isascii() and text[:-1].isdigit()):
            raise ConfigError(f"messageDelayLevel: {text!r} is no delay; write a number and s, m, h or d, such as 30s")
        delays.append(int(text[:-1]) * unit_ms)
    return tuple(delays)
