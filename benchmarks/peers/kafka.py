"""Apache Kafka as a peer of the pipeline: its broker, and a Python with the Spark that its connector is published for.

The connector of the newest Spark is not in the registries, nor is one of the jars that the one before asks for; so
Kafka's side runs on the Spark release before ours, with that jar from an older one. Each jar is named by itself.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.peers import maven
from benchmarks.server_process import ServerProcess, free_port

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = "4.3.1"
SPARK_VERSION: Final = "4.2.0"
HEAP: Final = "1g"
START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 20.0
COMMAND_LIMIT_S: Final = 120.0
INSTALL_LIMIT_S: Final = 900.0
PARTITIONS: Final = 4

_BROKER: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
_CONNECTOR: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
_PYTHON_REQUIREMENTS: Final = (f"pyspark=={SPARK_VERSION}", "pyarrow>=18", "pandas>=2.2", "numpy>=1.26", "setuptools")

_LOGGING: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c %m%n
"""


def connector_jars() -> list[Path]:
    """What Spark needs beside itself to read and write Kafka. Raises BenchmarkError when it cannot be had."""
    return sorted(maven.jars(f"spark-kafka-{SPARK_VERSION}", _CONNECTOR, with_dependencies=False).glob("*.jar"))


def python() -> Path:
    """The Python of an environment with Kafka's Spark, made once. Raises BenchmarkError when it cannot be."""
    wanted = " ".join((*_PYTHON_REQUIREMENTS, sys.version, sys.executable))
    folder = maven.cache() / f"pyspark-{SPARK_VERSION}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    found, complete = folder / "bin/python", folder / "complete"
    if complete.exists():
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_PYTHON_REQUIREMENTS]
    try:
        for command in ([sys.executable, "-m", "venv", str(folder)], install):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise BenchmarkError(f"PySpark {SPARK_VERSION} cannot be installed: {str(detail).strip()[-300:]}") from error
    complete.touch()
    return found


class Kafka:
    """A broker that is its own controller, in a folder of its own; not started yet."""

    def __init__(self, folder: Path, log_path: Path) -> None:
        self.port = free_port()
        self._home = folder / "kafka"
        self._home.mkdir(parents=True)
        self._lib = maven.jars(f"kafka-{VERSION}", _BROKER)
        self._settings = self._home / "server.properties"
        self._settings.write_text(_settings(self.port, free_port(), self._home / "log"))
        self._logging = self._home / "log4j2.properties"
        self._logging.write_text(_LOGGING)
        self.server = ServerProcess(
            "Kafka",
            self._java("kafka.Kafka", str(self._settings)),
            port=self.port,
            cores=None,
            log_path=log_path,
            cwd=self._home,
            start_limit_s=START_LIMIT_S,
            stop_limit_s=STOP_LIMIT_S,
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Makes the empty log that the broker needs to start."""
        cluster = uuid.uuid4().hex[:22]
        self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(self._settings))

    def create_topic(self, topic: str) -> None:
        self._run(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", self.address, "--create", "--topic", topic),
            *("--partitions", str(PARTITIONS), "--replication-factor", "1"),
        )

    def paced_producer(self, topic: str, per_second: int, seconds: int, body_bytes: int) -> list[str]:
        """The command of a producer that keeps this rate."""
        return self._java(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(per_second * seconds), "--record-size", str(body_bytes)),
            *("--throughput", str(per_second), "--bootstrap-server", self.address),
            *("--command-property", "acks=1", "linger.ms=1"),
        )

    def _run(self, main_class: str, *arguments: str) -> None:
        try:
            subprocess.run(
                self._java(main_class, *arguments),
                cwd=self._home,
                check=True,
                capture_output=True,
                text=True,
                timeout=COMMAND_LIMIT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            detail = f"{getattr(error, 'stdout', '')}{getattr(error, 'stderr', '')}" or str(error)
            raise BenchmarkError(f"Kafka's {main_class} failed: {detail.strip()[-500:]}") from error

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        return [
            *(maven.java(), "-server", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
            *(f"-Dlog4j2.configurationFile={self._logging}", "-cp", f"{self._lib}/*", main_class, *arguments),
        ]


def _settings(port: int, controller_port: int, folder: Path) -> str:
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder),
        "num.partitions": str(PARTITIONS),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())
