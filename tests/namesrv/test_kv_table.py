"""Keys and values: format of the file, limits, and no change without saving it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ConfigError
from fusee.namesrv.config import KvLimits
from fusee.namesrv.kv_table import KvError, KvTable
from fusee.namesrv.saved_file import OsFileSystem, SavedFile

if TYPE_CHECKING:
    from fusee.namesrv.saved_file import FileSystem


class FullDisk(OsFileSystem):
    """Writes until it is full."""

    full = False

    def write(self, path: Path, content: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().write(path, content)


class MemoryFileSystem:
    """Files in a dictionary."""

    def __init__(self) -> None:
        self.files: dict[Path, bytes] = {}

    def read(self, path: Path) -> bytes | None:
        return self.files.get(path)

    def write(self, path: Path, content: bytes) -> None:
        self.files[path] = content

    def rename(self, source: Path, target: Path) -> None:
        self.files[target] = self.files.pop(source)

    def sync_folder(self, folder: Path) -> None:
        pass

    def make_folder(self, folder: Path) -> None:
        pass


def table_at(path: Path, *, file_system: FileSystem | None = None) -> KvTable:
    table = KvTable(file=SavedFile(str(path), file_system=file_system))
    table.load()
    return table


def test_put_get_delete() -> None:
    table = KvTable()
    assert table.get("n", "k") is None
    assert table.namespace("n") is None
    table.put("n", "k", "v")
    table.put("n", "k", "w")
    assert table.get("n", "k") == "w"
    assert table.get("n", "other") is None
    table.delete("n", "k")
    assert table.namespace("n") == {}, "a namespace stays, as in Java"
    table.delete("n", "k")
    table.delete("unknown", "k")
    assert table.namespace("unknown") is None


def test_version_grows_with_every_change() -> None:
    table = KvTable()
    versions = [table.version]
    table.put("n", "k", "v")
    versions.append(table.version)
    table.delete("n", "k")
    versions.append(table.version)
    assert versions == sorted(set(versions))


def test_namespace_is_a_copy() -> None:
    table = KvTable()
    table.put("n", "k", "v")
    copy = table.namespace("n")
    assert copy is not None
    copy.clear()
    assert table.namespace("n") == {"k": "v"}


def test_file_has_javas_format(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    table = table_at(path)
    table.put("ORDER_TOPIC_CONFIG", "t", "a:4;b:4")
    table.put("ORDER_TOPIC_CONFIG", "clé", "值")
    assert path.read_bytes() == '{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"a:4;b:4","clé":"值"}}}'.encode()


NAMES = st.text(min_size=1).filter(lambda name: name != "$ref")


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.text(), min_size=1)))
def test_what_was_put_is_there_after_a_restart(content: dict[str, dict[str, str]]) -> None:
    path, files = Path("/kvConfig.json"), MemoryFileSystem()
    table = table_at(path, file_system=files)
    for namespace, keys in content.items():
        for key, value in keys.items():
            table.put(namespace, key, value)
    again = table_at(path, file_system=files)
    for namespace, keys in content.items():
        assert again.namespace(namespace) == keys


def test_load_takes_files_written_by_java_with_spaces_and_empty_namespaces(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{\n\t"configTable":{"A":{},\n"B":{"k":"v"}}}')
    table = table_at(tmp_path / "f")
    assert table.namespace("A") == {}
    assert table.get("B", "k") == "v"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"configTable":{"A":1}}', b"\xff"])
def test_load_when_corrupt_falls_back_to_backup_else_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ConfigError, match="Repair the file"):
        table_at(tmp_path / "f")
    (tmp_path / "f.bak").write_text('{"configTable":{"B":{"k":"v"}}}')
    assert table_at(tmp_path / "f").get("B", "k") == "v"


def test_change_that_cannot_be_saved_is_not_made(tmp_path: Path) -> None:
    disk = FullDisk()
    table = table_at(tmp_path / "f", file_system=disk)
    table.put("n", "k", "v")
    version = table.version
    disk.full = True
    for namespace, key in (("n", "k"), ("n", "new"), ("new", "k")):
        with pytest.raises(KvError, match=r"could not be saved: .*No space left"):
            table.put(namespace, key, "changed")
    with pytest.raises(KvError, match=r"could not be saved: .*No space left"):
        table.delete("n", "k")
    assert table.namespace("n") == {"k": "v"}
    assert table.namespace("new") is None
    assert table.version == version
    disk.full = False
    table.put("n", "k2", "v2")
    assert table_at(tmp_path / "f").namespace("n") == {"k": "v", "k2": "v2"}


@pytest.mark.parametrize(
    ("namespace", "key", "value", "words"),
    [
        ("", "k", "v", "needs a namespace and a key"),
        ("n", "", "v", "needs a namespace and a key"),
        ("n", "$ref", "v", "would read back as a reference"),
        ("n" * 5, "k", "v", "kvNameLengthMax=4"),
        ("n", "k" * 5, "v", "kvNameLengthMax=4"),
        ("n", "k", "v" * 9, "kvValueLengthMax=8"),
        ("m", "k", "v", "kvNamespacesMax=1 is reached"),
        ("n", "k3", "v", "kvKeysMax=2 is reached"),
    ],
)
def test_put_over_limit_is_an_error(namespace: str, key: str, value: str, words: str) -> None:
    limits = KvLimits(kv_namespaces_max=1, kv_keys_max=2, kv_name_length_max=4, kv_value_length_max=8)
    table = KvTable(limits=limits)
    table.put("n", "k1", "v")
    table.put("n", "k2", "v")
    with pytest.raises(KvError, match=words):
        table.put(namespace, key, value)
    assert table.namespace("n") == {"k1": "v", "k2": "v"}


def test_put_at_limit_after_delete_and_restart_counts_right(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    table = KvTable(limits=KvLimits(kv_keys_max=1), file=SavedFile(path))
    table.put("n", "k1", "v")
    table.put("n", "k1", "again")
    table.delete("n", "k1")
    table.put("n", "k2", "v")
    again = KvTable(limits=KvLimits(kv_keys_max=1), file=SavedFile(path))
    again.load()
    with pytest.raises(KvError, match="kvKeysMax=1"):
        again.put("n", "k3", "v")


def test_put_that_grows_the_table_over_what_can_be_read_back_is_an_error() -> None:
    table = KvTable(limits=KvLimits(kv_value_length_max=20_000_000))
    with pytest.raises(KvError, match="would grow over 16777216 bytes"):
        table.put("n", "k", "v" * 17_000_000)
    assert table.namespace("n") is None
