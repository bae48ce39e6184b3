"""A document is always there whole: the last one saved, or the one before."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from fusee.errors import StoreCorruptError, StoreFullError
from fusee.store.filesystem import FileSystem, OsFileSystem
from fusee.store.saved_document import SavedDocument
from fusee.store.simulated_disk import Outcome, SimulatedCrash, SimulatedDisk

PATH = Path("/store/config/topics.json")


def document(files: FileSystem, path: Path = PATH) -> SavedDocument[dict[str, int]]:
    return SavedDocument(path, files, encode=lambda value: json.dumps(value).encode(), decode=json.loads)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = document(OsFileSystem(), tmp_path / "config" / "a.json")
    assert saved.load() is None
    saved.save({"a": 1})
    saved.save({"a": 2, "much": 10**40})
    saved.save({"a": 3})
    assert saved.load() == {"a": 3}
    assert json.loads(saved.backup_path.read_bytes())["a"] == 2
    assert sorted(path.name for path in saved.path.parent.iterdir()) == ["a.json", "a.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"\0" * 20, b'{"a": ', b"\xff\xfe"])
def test_damaged_document_gives_way_to_its_backup_and_never_becomes_one(tmp_path: Path, damage: bytes) -> None:
    saved = document(OsFileSystem(), tmp_path / "a.json")
    saved.save({"a": 1})
    saved.save({"a": 2})
    saved.path.write_bytes(damage)
    assert saved.load() == {"a": 1}
    saved.save({"a": 3})
    assert saved.load() == {"a": 3}
    assert json.loads(saved.backup_path.read_bytes()) == {"a": 1}


def test_nothing_readable_names_both_files(tmp_path: Path) -> None:
    saved = document(OsFileSystem(), tmp_path / "a.json")
    saved.save({"a": 1})
    saved.save({"a": 2})
    saved.path.write_bytes(b"{")
    saved.backup_path.write_bytes(b"")
    with pytest.raises(StoreCorruptError, match=r"a\.json: .*a\.json\.bak is empty"):
        saved.load()


@pytest.mark.parametrize("outcome", list(Outcome))
def test_issue_3401_document_survives_a_crash_at_every_step(outcome: Outcome) -> None:
    step = 1
    while True:
        disk = SimulatedDisk()
        saved = document(disk)
        saved.save({"a": 0})
        saved.save({"a": 1})
        disk.stop_at(disk.steps + step, tear_at=3)
        try:
            saved.save({"a": 2})
        except SimulatedCrash:
            for seed in range(4):
                found = document(disk.crash(seed, outcome)).load()
                assert found in ({"a": 1}, {"a": 2}), f"step {step}, seed {seed}: {found}"
            step += 1
            continue
        assert document(disk.crash(0, outcome)).load() == {"a": 2}
        break
    assert step > 5


def test_full_disk_leaves_the_present_document() -> None:
    disk = SimulatedDisk()
    saved = document(disk)
    saved.save({"a": 1})
    disk.fail_write(code=errno.ENOSPC, tear_at=2)
    with pytest.raises(StoreFullError):
        saved.save({"a": 2})
    assert saved.load() == {"a": 1}
    saved.save({"a": 3})
    assert saved.load() == {"a": 3}
