"""Files of an archive, wherever Spark can write: a local disk, HDFS, an object store. By Hadoop's file systems.

Every path is below one root. `publish` is the only way to make a file of ours appear, and it makes it appear whole: it
is written beside and renamed, and it never replaces one that is there. Renames are atomic on local disks and on HDFS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fusee.errors import ConfigError, FuseeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file below the root: its path relative to it, and its size."""

    path: str
    size: int


class Folder:
    """A folder and what is below it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Raises ConfigError for a Spark Connect session, which has no file systems of its own."""
        gateway = getattr(spark, "_jvm", None)
        if gateway is None:
            raise ConfigError(
                "this job needs the files of its archive, which a Spark Connect session does not reach: "
                "run it with a master such as local[*], spark://host:7077 or yarn"
            )
        configuration = spark._jsc.hadoopConfiguration()
        self._jvm: Any = gateway
        root_path = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files: Any = root_path.getFileSystem(configuration)
        self._root: Any = self._files.makeQualified(root_path)
        self.root = self._root.toString()

    def uri(self, path: str = "") -> str:
        """The whole address of a path below the root."""
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str = "") -> bool:
        return bool(self._files.exists(self._at(path)))

    def names(self, path: str = "") -> list[str]:
        """What lies directly in a folder, sorted; nothing when it is not there."""
        if not self.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._at(path)))

    def files(self, path: str = "") -> list[FileFact]:
        """Every file below a folder, sorted; nothing when it is not there."""
        return sorted(self._walk(path), key=lambda one: one.path)

    def read(self, path: str) -> str:
        stream = self._files.open(self._at(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def publish(self, path: str, text: str) -> bool:
        """Makes the file appear, whole. False when there is one already, which stays as it is."""
        target = self._at(path)
        self._files.mkdirs(target.getParent())
        beside = self._jvm.org.apache.hadoop.fs.Path(target.getParent(), f".{target.getName()}.{uuid4().hex}")
        stream = self._files.create(beside, False)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        if self._files.exists(target) or not self._files.rename(beside, target):
            self._files.delete(beside, False)
            return False
        return True

    def move(self, source: str, target: str) -> None:
        """Gives a file another place. Done already is done; raises FuseeError when the file is in neither."""
        to = self._at(target)
        if not self.exists(source):
            if self.exists(target):
                return
            raise FuseeError(
                f"{self.uri(source)} is gone, and was not yet moved to {target}: was the archive changed by hand?"
            )
        self._files.mkdirs(to.getParent())
        if not self._files.rename(self._at(source), to):
            raise FuseeError(f"{self.uri(source)} could not be moved to {target}; is the archive writable?")

    def delete(self, path: str) -> None:
        """A file, or a folder with all that is in it; nothing when it is not there."""
        self._files.delete(self._at(path), True)

    def _walk(self, path: str) -> Iterator[FileFact]:
        if not self.exists(path):
            return
        found = self._files.listFiles(self._at(path), True)
        while found.hasNext():
            status = found.next()
            yield FileFact(status.getPath().toString().removeprefix(f"{self.root}/"), int(status.getLen()))

    def _at(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root
