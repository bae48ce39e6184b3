"""Local files of the driver are as Hadoop writes them, and no process is started for that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JJavaError

from fusee.pipeline.local_checkpoints import MANAGER, MANAGER_SETTING, hasten_local_checkpoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Driver:
    """The driver's virtual machine, and the file system that it uses for all local files."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm = cast("Any", spark)._jvm
        self.settings = spark.sparkContext._jsc.hadoopConfiguration()
        self._pid = self.jvm.ProcessHandle.current().pid()

    def local_files(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.FileSystem.get(self.jvm.java.net.URI.create("file:///"), self.settings)

    def path(self, path: Path) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"file://{path}")

    def permission(self, mode: int) -> Any:
        return self.jvm.org.apache.hadoop.fs.permission.FsPermission(f"{mode:04o}")

    def faults_of_children(self) -> int:
        """Pages that processes have touched which the driver started and that have ended: each touches some."""
        return int(Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[8])


@pytest.fixture
def driver(spark: SparkSession) -> Driver:
    found = Driver(spark)
    if found.jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable():
        pytest.skip("Hadoop has its native library here and starts no processes")
    return found  # whose session was opened by `open_session`, and is not told anything more here


def test_files_are_made_without_starting_a_process(driver: Driver, tmp_path: Path) -> None:
    before = driver.faults_of_children()
    file = tmp_path / "offsets" / "0"
    written = driver.local_files().create(driver.path(file))
    written.write(b"v1")
    written.close()
    assert driver.faults_of_children() == before
    assert file.read_bytes() == b"v1"
    assert {each.name: each.stat().st_mode & 0o777 for each in file.parent.iterdir()} == {"0": 0o644, ".0.crc": 0o644}
    plain = driver.jvm.org.apache.hadoop.fs.RawLocalFileSystem()
    plain.initialize(driver.jvm.java.net.URI.create("file:///"), driver.settings)
    plain.setPermission(driver.path(file), driver.permission(0o600))
    assert driver.faults_of_children() > before  # which is how the first would have shown
    assert file.stat().st_mode & 0o777 == 0o600


def test_second_call_changes_nothing(driver: Driver, spark: SparkSession) -> None:
    def innermost() -> int:
        found = driver.local_files()
        while found.getClass().getName() != "org.fusee.spark.LocalFiles":
            found = found.getRawFileSystem()
        return int(found.hashCode())

    before = innermost()
    assert hasten_local_checkpoints(spark)
    assert innermost() == before


def test_permissions_are_those_asked_for(driver: Driver, tmp_path: Path) -> None:
    files = driver.local_files()
    for mode in (0o000, 0o640, 0o755, 0o777, 0o1777):
        files.setPermission(driver.path(tmp_path), driver.permission(mode))
        assert tmp_path.stat().st_mode & 0o7777 == mode
    tmp_path.chmod(0o700)
    with pytest.raises(Py4JJavaError, match="NoSuchFileException"):
        files.setPermission(driver.path(tmp_path / "missing"), driver.permission(0o600))


def test_checksums_still_find_what_was_changed(driver: Driver, tmp_path: Path) -> None:
    files, file = driver.local_files(), tmp_path / "commit"
    written = files.create(driver.path(file))
    written.write(b"whole")
    written.close()
    file.write_bytes(b"whale")
    with pytest.raises(Py4JJavaError, match="ChecksumException"):
        files.open(driver.path(file)).read()


class Conf:
    def __init__(self, manager: str | None) -> None:
        self._given = {MANAGER_SETTING: manager}

    def get(self, name: str, default: str | None) -> str | None:
        return self._given.get(name) or default


class NoSession:
    """A session whose driver must not be touched, or has nothing that is known."""

    _jsparkSession = object()  # noqa: N815  Spark's name

    def __init__(self, manager: str | None) -> None:
        self.conf = Conf(manager)

    @property
    def _jvm(self) -> Any:
        raise TypeError("'JavaPackage' object is not callable")


@pytest.mark.parametrize("manager", [None, "org.example.ObjectStoreManager"])
def test_sessions_that_do_not_say_that_checkpoints_are_local_are_left_alone(
    manager: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert not hasten_local_checkpoints(cast("SparkSession", NoSession(manager)))
    assert not caplog.records


def test_unknown_spark_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert not hasten_local_checkpoints(cast("SparkSession", NoSession(MANAGER)))
    assert "this Spark is not known" in caplog.text
    assert not hasten_local_checkpoints(cast("SparkSession", object()))
