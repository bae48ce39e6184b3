"""Consume queues and index rebuilt by Spark are the store's own, byte for byte."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError, FuseeError
from fusee.pipeline.jobs.rebuild import rebuild
from tests.store.offline_stores import check, errors
from tests.store.test_rebuild import CONFIG, files_below, fill, without_marks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    (store / "index").rename(tmp_path / "old")
    (to / "index").rename(store / "index")
    assert errors(check(store)) == []


def test_rebuild_refuses_what_it_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="what is to be rebuilt"):
        rebuild(spark, store=tmp_path, to=tmp_path / "to", kinds=["nothing"])
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(FuseeError, match="there is no log"):
        rebuild(spark, store=tmp_path, to=tmp_path / "to")
