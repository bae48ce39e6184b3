"""Files of a checkpoint on a local disk, written without a process for each.

Hadoop sets the permissions of every local file that it makes. Without its native library, which Spark from the package
registry does not have, it starts the program `chmod` for that: four times in a micro-batch, for the offsets and the
commit and the checksum of each (`benchmarks --only spark` has streams with and without).

`LOCAL_FILES`, compiled in the driver, is the innermost of Hadoop's classes for local files with one method replaced:
permissions are set by a call of the system. What is around it, which writes and checks the checksums, stays, and so do
permissions and errors. It takes the place of the one that the driver uses for all local files. Executors in other
processes are not concerned.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from fusee.pipeline.driver_java import load_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

MANAGER_SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_LOCAL_FILES: Final = "org.fusee.spark.LocalFiles"

LOCAL_FILES: Final = """
package org.fusee.spark;

import java.io.IOException;
import java.lang.reflect.Field;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.io.nativeio.NativeIO;

public class LocalFiles extends RawLocalFileSystem {
    public boolean takePlace(Configuration settings) throws Exception {
        if (NativeIO.isAvailable()) {
            return false;
        }
        Field inside = FilterFileSystem.class.getDeclaredField("fs");
        inside.setAccessible(true);
        FileSystem outer = FileSystem.get(URI.create("file:///"), settings);
        while (outer instanceof FilterFileSystem) {
            FileSystem inner = (FileSystem) inside.get(outer);
            if (inner.getClass() == RawLocalFileSystem.class) {
                this.initialize(inner.getUri(), inner.getConf());
                this.setWorkingDirectory(inner.getWorkingDirectory());
                inside.set(outer, this);
                System.setProperty(LocalFiles.class.getName(), "true");
                return true;
            }
            outer = inner;
        }
        return false;
    }

    public void setPermission(Path path, FsPermission permission) throws IOException {
        if ((permission.toShort() & ~0777) != 0) {
            super.setPermission(path, permission);
            return;
        }
        try {
            Files.setPosixFilePermissions(
                this.pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
        } catch (UnsupportedOperationException error) {
            super.setPermission(path, permission);
        }
    }
}
"""


def hasten_local_checkpoints(spark: SparkSession) -> bool:
    """Have this driver write local files so, if its checkpoints are said to be on a local disk; whether it does now.

    A second call changes nothing.
    """
    if getattr(spark, "_jsparkSession", None) is None or spark.conf.get(MANAGER_SETTING, None) != MANAGER:
        return False
    from py4j.protocol import Py4JError

    try:
        return _install(spark)
    except (Py4JError, TypeError) as error:  # py4j raises TypeError for a class that is not there
        _log.info("checkpoints are written as Hadoop does, because this Spark is not known: %s", error)
        return False


def _install(spark: SparkSession) -> bool:
    jvm: Any = spark._jvm
    if jvm.System.getProperty(_LOCAL_FILES) is not None:
        return True
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    return bool(load_class(spark, LOCAL_FILES, _LOCAL_FILES).newInstance().takePlace(settings))
