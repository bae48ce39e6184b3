"""A file that is replaced as a whole: order of operations, every failure, every damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fusee.errors import ConfigError
from fusee.namesrv.saved_file import OsFileSystem, SavedFile

if TYPE_CHECKING:
    from pathlib import Path


class FailingFileSystem(OsFileSystem):
    """The real file system until the given operation, counted over all of them; then it fails once."""

    def __init__(self, fail_at: int = -1) -> None:
        self.fail_at = fail_at
        self.steps: list[str] = []

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) - 1 == self.fail_at:
            raise OSError(28, "No space left on device")

    def write(self, path: Path, content: bytes) -> None:
        self._step(f"write {path.name}")
        super().write(path, content)

    def rename(self, source: Path, target: Path) -> None:
        self._step(f"rename {source.name} {target.name}")
        super().rename(source, target)

    def sync_folder(self, folder: Path) -> None:
        self._step("sync")
        super().sync_folder(folder)


SAVE_STEPS = ["write f.tmp", "write f.bak.tmp", "rename f.bak.tmp f.bak", "rename f.tmp f", "sync"]


def decode(content: bytes) -> bytes:
    if content.startswith(b"damaged"):
        raise ConfigError("it is damaged")
    return content


def test_load_when_nothing_is_there_is_none(tmp_path: Path) -> None:
    assert SavedFile(str(tmp_path / "none" / "f")).load(decode) is None


def test_save_makes_folder_and_keeps_the_previous(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "f"
    file = SavedFile(str(path))
    file.save(b"1")
    assert not path.with_name("f.bak").exists()
    file.save(b"2")
    file.save(b"3")
    assert (path.read_bytes(), path.with_name("f.bak").read_bytes()) == (b"3", b"2")
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["f", "f.bak"]
    assert path.stat().st_mode & 0o077 == 0


def test_save_syncs_before_it_renames(tmp_path: Path) -> None:
    files = FailingFileSystem()
    file = SavedFile(str(tmp_path / "f"), file_system=files)
    file.save(b"1")
    assert files.steps == ["write f.tmp", "rename f.tmp f", "sync"]
    files.steps.clear()
    file.save(b"2")
    assert files.steps == SAVE_STEPS


@pytest.mark.parametrize("fail_at", range(len(SAVE_STEPS)))
def test_save_when_any_step_fails_leaves_a_whole_content_and_heals(tmp_path: Path, fail_at: int) -> None:
    path = str(tmp_path / "f")
    SavedFile(path).save(b"old")
    files = FailingFileSystem(fail_at)
    file = SavedFile(path, file_system=files)
    file.load(decode)
    with pytest.raises(OSError, match="No space left"):
        file.save(b"new")
    # As after a crash at this point: a fresh start finds the old content, or the new one once it is in place.
    assert SavedFile(path).load(decode) == (b"new" if fail_at == 4 else b"old")
    file.save(b"newer")
    assert SavedFile(path).load(decode) == b"newer"
    assert (tmp_path / "f.bak").read_bytes() == (b"new" if fail_at == 4 else b"old")


def test_load_when_damaged_takes_the_backup_and_does_not_overwrite_it_with_damage(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"damaged")
    (tmp_path / "f.bak").write_bytes(b"good")
    file = SavedFile(str(tmp_path / "f"))
    assert file.load(decode) == b"good"
    file.save(b"next")
    assert (tmp_path / "f.bak").read_bytes() == b"good"


def test_load_when_only_backup_is_there_takes_it(tmp_path: Path) -> None:
    (tmp_path / "f.bak").write_bytes(b"good")
    assert SavedFile(str(tmp_path / "f")).load(decode) == b"good"


@pytest.mark.parametrize("backup", [None, b"damaged too"])
def test_load_when_all_is_damaged_names_file_and_fix(tmp_path: Path, backup: bytes | None) -> None:
    (tmp_path / "f").write_bytes(b"damaged")
    if backup is not None:
        (tmp_path / "f.bak").write_bytes(backup)
    with pytest.raises(ConfigError, match=r"cannot load .*/f or its backup: .*it is damaged.*move it and"):
        SavedFile(str(tmp_path / "f")).load(decode)


def test_load_when_too_large_is_damage(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with pytest.raises(ConfigError, match="5 bytes are more than the limit of 4"):
        SavedFile(str(tmp_path / "f"), size_max=4).load(decode)


def test_load_when_unreadable_is_an_error_not_an_empty_start(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(ConfigError, match="cannot load"):
        SavedFile(str(tmp_path / "f")).load(decode)


def test_path_may_begin_with_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SavedFile("~/namesrv/f").path == tmp_path / "namesrv" / "f"
