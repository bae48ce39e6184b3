"""Settings of a store: the reference's defaults, and what is refused."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fusee.errors import ConfigError
from fusee.store.config import FlushDiskType, StoreConfig


def test_defaults_are_those_of_the_reference() -> None:
    config = StoreConfig()
    assert config.mapped_file_size_commit_log == 1 << 30
    assert config.mapped_file_size_consume_queue == 6_000_000
    assert config.mapper_file_size_batch_consume_queue == 13_800_000
    assert 40 + config.max_hash_slot_num * 4 + config.max_index_num * 20 == 420_000_040
    assert config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert (config.flush_interval_commit_log, config.flush_commit_log_least_pages) == (500, 4)
    assert (config.flush_interval_consume_queue, config.flush_consume_queue_least_pages) == (1_000, 2)
    assert (config.delete_when, config.file_reserved_time, config.delete_file_batch_max) == ("04", 72, 10)
    assert config.record_size_max == 4 * 1024 * 1024 + 64 * 1024


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"mapped_file_size_commit_log": 4095}, "mappedFileSizeCommitLog=4095: at least 4096"),
        ({"mapped_file_size_consume_queue": 30}, "mappedFileSizeConsumeQueue=30: a positive multiple of 20"),
        ({"mapped_file_size_consume_queue": 0}, "mappedFileSizeConsumeQueue=0"),
        ({"mapped_file_size_consume_queue": -20}, "mappedFileSizeConsumeQueue=-20"),
        ({"mapper_file_size_batch_consume_queue": 47}, "mapperFileSizeBatchConsumeQueue=47"),
        ({"mapper_file_size_batch_consume_queue": 0}, "mapperFileSizeBatchConsumeQueue=0"),
        ({"max_hash_slot_num": 0}, "maxHashSlotNum"),
        ({"max_index_num": 1}, "maxIndexNum"),
        ({"delete_when": "24"}, "deleteWhen=24"),
        ({"delete_when": "04;noon"}, "deleteWhen=04;noon"),
        ({"delete_when": ""}, "deleteWhen="),
        (
            {"transient_store_pool_enable": True, "flush_disk_type": FlushDiskType.SYNC_FLUSH},
            "transientStorePoolEnable needs flushDiskType=ASYNC_FLUSH",
        ),
    ],
)
def test_setting_out_of_range_is_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        StoreConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"mapped_file_size_commit_log": 4096},
        {"mapped_file_size_consume_queue": 20},
        {"max_hash_slot_num": 1, "max_index_num": 2},
        {"delete_when": "02;14"},
        {"delete_when": "00; 23"},
        {"transient_store_pool_enable": True},
    ],
)
def test_setting_at_its_border_is_taken(settings: dict[str, object]) -> None:
    StoreConfig(**settings)  # type: ignore[arg-type]


def test_config_is_frozen_and_by_keyword_only() -> None:
    with pytest.raises(AttributeError):
        StoreConfig().max_message_size = 1  # type: ignore[misc]
    assert all(field.kw_only for field in fields(StoreConfig))
