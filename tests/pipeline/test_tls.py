"""Driver and workers under TLS, towards a name server that speaks it and a broker that takes nothing else."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import fusee.sync
from fusee.broker import Broker, BrokerConfig
from fusee.errors import ConfigError, TransportError
from fusee.namesrv import NameServer, NameServerConfig
from fusee.pipeline.batch import BatchReader
from fusee.pipeline.blocking_link import client_context
from fusee.pipeline.options import read_options
from fusee.store import StoreConfig
from fusee.sync.portal import portal
from fusee.transport.tcp import ServerTls, TcpNetwork, TlsMode, server_context
from tests.pipeline.topics_of_tests import texts
from tests.transport.test_tcp import certificate as certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ORDERS = sorted(f"order {number}" for number in range(12))


@contextmanager
def serving(certificate: tuple[Path, Path], store: Path, *, network: TcpNetwork | None = None) -> Iterator[str]:
    """The address of a name server, whose broker answers by TLS only; by that of `network`, if that is given."""
    here, files = portal(), {"cert": str(certificate[0]), "key": str(certificate[1])}
    front = NameServer(
        NameServerConfig(
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path="",
            shutdown_wait_time_seconds=1,
            tls_server_cert_path=files["cert"],
            tls_server_key_path=files["key"],
        )
    )
    here.call(front.start)
    broker = Broker(
        BrokerConfig(
            broker_name="embedded",
            bind_address="127.0.0.1",
            listen_port=0,
            fast_listen_port=0,
            ha_listen_port=0,
            namesrv_addr=front.address,
            # workers of Spark keep connections, and answer no farewell
            shutdown_wait_time_seconds=1,
            tls_server_mode="enforcing",
            tls_server_cert_path=files["cert"],
            tls_server_key_path=files["key"],
        ),
        StoreConfig(mapped_file_size_commit_log=1 << 24, max_hash_slot_num=1000, max_index_num=4000),
        store_path=store,
        network=network,
    )
    here.call(broker.start)
    yield front.address
    here.call(broker.stop)
    here.call(front.stop)


@pytest.fixture
def name_server(certificate: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    """A name server and its broker, with a topic of 12 messages that were sent by TLS."""
    with serving(certificate, tmp_path / "store") as address:
        with fusee.sync.connect(address, tls=client_context(ca_file=str(certificate[0]))) as mq:
            mq.admin.create_topic("orders")
            for order in ORDERS:
                mq.send("orders", order)
        yield address


def read(name_server: str, **options: str) -> int:
    given = {"nameServer": name_server, "subscribe": "orders", "fetchOffset.numRetries": "0", **options}
    reader = BatchReader(read_options(given, reading="batch"), ("body",))
    return sum(each.num_rows for task in reader.partitions() for each in reader.read(task))


def test_driver_and_workers_speak_tls(name_server: str, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    trusted = str(certificate[0])
    assert read(name_server, tlsCaFile=trusted) == 12
    assert read(name_server, **{"tls.enable": "true", "tls.client.authServer": "false"}) == 12
    with pytest.raises(TransportError):
        read(name_server, tls="true")
    with pytest.raises(TransportError):
        read(name_server)
    with pytest.raises(ConfigError, match="cannot use the TLS files"):
        read(name_server, tlsCaFile=str(tmp_path / "nothing.pem"))


def found(spark: SparkSession, topic: str, **options: str) -> list[str]:
    """The bodies of a topic, as Spark reads them."""
    return texts(spark.read.format("fusee").options(subscribe=topic, **options).load().collect())


def write(spark: SparkSession, topic: str, **options: str) -> None:
    """Write the orders to a topic that is not there yet."""
    rows = spark.createDataFrame([(order,) for order in ORDERS], "body string").coalesce(2)
    rows.write.format("fusee").mode("append").options(topic=topic, createTopics="true", **options).save()


def test_spark_reads_and_writes_by_tls(
    spark: SparkSession, name_server: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    trusted = {"nameServer": name_server, "tlsCaFile": str(certificate[0])}
    assert found(spark, "orders", **trusted) == ORDERS
    assert found(spark, "orders", localReads="false", **trusted) == ORDERS
    write(spark, "handed", **trusted)
    write(spark, "sent", localWrites="false", **trusted)
    write(spark, "staged", delivery="exactly-once", **trusted)
    write(spark, "staged-and-sent", delivery="exactly-once", localWrites="false", **trusted)
    query = (
        spark.readStream.format("fusee")
        .options(subscribe="orders", startingOffsets="earliest", group="copiers", **trusted)
        .load()
        .select("body")
        .writeStream.format("fusee")
        .options(topic="streamed", createTopics="true", delivery="auto", **trusted)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    for topic in ("handed", "sent", "staged", "staged-and-sent", "streamed"):
        assert found(spark, topic, **trusted) == ORDERS, topic


def test_spark_says_that_a_certificate_is_not_trusted(spark: SparkSession, name_server: str) -> None:
    with pytest.raises(PySparkException, match="certificate verify failed"):
        found(spark, "orders", nameServer=name_server, tls="true", **{"fetchOffset.numRetries": "0"})
    with pytest.raises(PySparkException, match="certificate verify failed"):
        write(spark, "orders", nameServer=name_server, tls="true", numRetries="0")


def test_broker_that_asks_for_certificates_gets_that_of_the_options(
    spark: SparkSession, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    context = server_context(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate[0])
    network = TcpNetwork(server_tls=ServerTls(context, TlsMode.ENFORCING))
    with serving(certificate, tmp_path / "store", network=network) as address:
        trusted = {"nameServer": address, "tlsCaFile": str(certificate[0])}
        known = {**trusted, "tlsCertificate": str(certificate[0]), "tlsKey": str(certificate[1])}
        write(spark, "orders", **known)
        assert found(spark, "orders", **known) == ORDERS
        with pytest.raises(PySparkException, match="connection"):
            found(spark, "orders", **trusted, **{"fetchOffset.numRetries": "0"})
        with pytest.raises(PySparkException, match="connection"):
            write(spark, "orders", **trusted, numRetries="0")
