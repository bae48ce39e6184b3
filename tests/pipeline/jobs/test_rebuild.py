"""Consume queues and index rebuilt by Spark are the store's own, byte for byte: of ours, of a broker's, of Java's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError, FuseeError
from fusee.pipeline.jobs.rebuild import rebuild
from fusee.store.offline.rebuild import index_shape
from fusee.sync import embedded
from tests.cli.scene import bury, wait_for
from tests.golden import store as golden
from tests.store.offline_stores import check, errors
from tests.store.test_rebuild import CONFIG, files_below, fill, without_marks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fusee.store.config import StoreConfig


def test_rebuild_writes_what_the_store_wrote(spark: SparkSession, tmp_path: Path) -> None:
    store, to = tmp_path / "store", tmp_path / "again"
    fill(store, 11)
    outcome = rebuild(spark, store=store, to=to, config=CONFIG)
    assert files_below(to / "consumequeue") == files_below(store / "consumequeue")
    assert without_marks(files_below(to / "index")) == without_marks(files_below(store / "index"))
    assert outcome.facts["segments"] == len(list((store / "commitlog").iterdir()))
    assert outcome.facts["queue entries"] == outcome.facts["records"]
    with pytest.raises(ConfigError, match="is there already"):
        rebuild(spark, store=store, to=to, config=CONFIG)


def test_rebuild_of_many_index_files_finds_every_key(spark: SparkSession, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, max_index_num=400)
    store, to = tmp_path / "store", tmp_path / "again"
    fill(store, 12, config=config)
    outcome = rebuild(spark, store=store, to=to, kinds=["index"], config=config)
    names = sorted(path.name for path in (store / "index").iterdir())
    assert len(names) > 2
    assert [row[0] for row in outcome.tables[0].rows] == names
    assert determined(files_below(to / "index"), config) == determined(files_below(store / "index"), config)
    (store / "index").rename(tmp_path / "old")
    (to / "index").rename(store / "index")
    assert errors(check(store)) == []


def fill_by_broker(folder: Path, config: StoreConfig) -> None:
    """The store of a broker that has run and was stopped: queues, keys, tags, delays, transactions, dead letters."""

    def unknown(_: object) -> None:
        """What became of a transaction."""

    with (
        embedded(
            store=folder,
            topics={"orders": 3, "payments": 1},
            mapped_file_size_commit_log=config.mapped_file_size_commit_log,
            mapped_file_size_consume_queue=config.mapped_file_size_consume_queue,
            max_hash_slot_num=config.max_hash_slot_num,
            max_index_num=config.max_index_num,
        ) as server,
        server.connect() as mq,
    ):
        for number in range(1, 121):
            mq.send("orders", b"x" * number, tag="ab"[number % 2], keys=[f"k{number % 30}", f"o{number}"])
            mq.send("payments", b"%d" % number, key=f"o{number}")
        mq.send("orders", b"due soon", delay_level=1)
        mq.send("orders", b"due in two hours", delay_level=18)
        for number in range(3):
            with mq.transaction("payments", b"in transaction", key=f"t{number}", check=unknown) as transaction:
                if number == 1:
                    transaction.rollback()
                elif number == 2:
                    transaction.leave_open()
        bury(mq, "parts", "billing", count=2)
        wait_for(lambda: b"due soon" in {message.body for message in mq.admin.browse("orders")})


def test_rebuild_writes_what_a_broker_wrote(spark: SparkSession, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, mapped_file_size_commit_log=16_384, max_index_num=400)
    store, to = tmp_path / "store", tmp_path / "again"
    fill_by_broker(store, config)
    outcome = rebuild(spark, store=store, to=to, config=config)
    queues = files_below(to / "consumequeue")
    assert queues == files_below(store / "consumequeue")
    topics = {name.partition("/")[0] for name in queues}
    assert {"orders", "payments", "parts", "SCHEDULE_TOPIC_XXXX", "%DLQ%billing", "RMQ_SYS_TRANS_HALF_TOPIC"} <= topics
    index = files_below(to / "index")
    assert len(index) > 1
    assert determined(index, config) == determined(files_below(store / "index"), config)
    assert int(str(outcome.facts["segments"])) > 2


def test_rebuild_writes_what_javas_broker_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Apache RocketMQ 5.5.0 closed this store properly: files of both kinds of queues and of the index are compared
    whole, but for the unused first entry of index files."""
    store, to = golden.unpack("clean", tmp_path), tmp_path / "again"
    rebuild(spark, store=store, to=to, config=golden.CONFIG)
    for kind in ("consumequeue", "batchconsumequeue"):
        assert files_below(to / kind) == files_below(store / kind)
    index = files_below(to / "index")
    assert len(index) == 3
    assert without_first_entries(index, golden.CONFIG) == without_first_entries(
        files_below(store / "index"), golden.CONFIG
    )


def test_rebuild_goes_on_where_javas_broker_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    """The log of this store has more than the killed broker had entered in queues and index: what it had entered is
    compared, which are the beginnings of the queues and all files of the index but the last."""
    store, to = golden.unpack("killed", tmp_path), tmp_path / "again"
    rebuild(spark, store=store, to=to, config=golden.CONFIG)
    ours = files_below(to / "consumequeue")
    javas = files_below(store / "consumequeue")
    assert javas.keys() <= ours.keys()
    assert all(ours[name].startswith(data.rstrip(b"\0")) for name, data in javas.items())
    index = without_first_entries(files_below(to / "index"), golden.CONFIG)
    *full, last = sorted(index)
    javas = without_first_entries(files_below(store / "index"), golden.CONFIG)
    assert len(full) == 9
    assert {name: index[name] for name in full} == {name: javas[name] for name in full}
    assert last in javas


def without_first_entries(files: dict[str, bytes], config: StoreConfig) -> dict[str, bytes]:
    """Index files without their first entry, which is unused; ours says there what was synced when, Java's nothing."""
    start = index_shape(config).entries_position
    return {name: data[:start] + bytes(20) + data[start + 20 :] for name, data in files.items()}


def determined(files: dict[str, bytes], config: StoreConfig) -> dict[str, bytes]:
    """Index files without what is a matter of chance in a broker's own.

    That is the mark in the first entry, and how far beyond its last entry a full file says that it was looked, which
    are end time and end offset in its header.
    """
    *full, _ = sorted(files)
    found = without_first_entries(files, config)
    for name in full:
        data = found[name]
        found[name] = data[:8] + bytes(8) + data[16:24] + bytes(8) + data[32:]
    return found


def test_rebuild_refuses_what_it_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="what is to be rebuilt"):
        rebuild(spark, store=tmp_path, to=tmp_path / "to", kinds=["nothing"])
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(FuseeError, match="there is no log"):
        rebuild(spark, store=tmp_path, to=tmp_path / "to")
