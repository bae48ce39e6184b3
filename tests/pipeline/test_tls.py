"""Driver and workers under TLS, towards a name server that speaks it and a broker that takes nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import fusee.sync
from fusee.broker import Broker, BrokerConfig
from fusee.errors import ConfigError, TransportError
from fusee.namesrv import NameServer, NameServerConfig
from fusee.pipeline.batch import BatchReader
from fusee.pipeline.blocking_link import client_context
from fusee.pipeline.options import read_options
from fusee.store import StoreConfig
from fusee.sync.portal import portal
from tests.transport.test_tcp import certificate as certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def name_server(certificate: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    """The address of a name server, whose broker answers by TLS only."""
    here, files = portal(), {"cert": str(certificate[0]), "key": str(certificate[1])}
    front = NameServer(
        NameServerConfig(
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path="",
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
            tls_server_mode="enforcing",
            tls_server_cert_path=files["cert"],
            tls_server_key_path=files["key"],
        ),
        StoreConfig(mapped_file_size_commit_log=1 << 24, max_hash_slot_num=1000, max_index_num=4000),
        store_path=tmp_path / "store",
    )
    here.call(broker.start)
    yield front.address
    here.call(broker.stop)
    here.call(front.stop)


def read(name_server: str, **options: str) -> int:
    given = {"nameServer": name_server, "subscribe": "orders", "fetchOffset.numRetries": "0", **options}
    reader = BatchReader(read_options(given, reading="batch"), ("body",))
    return sum(each.num_rows for task in reader.partitions() for each in reader.read(task))


def test_driver_and_workers_speak_tls(name_server: str, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    trusted = str(certificate[0])
    with fusee.sync.connect(name_server, tls=client_context(ca_file=trusted)) as mq:
        mq.admin.create_topic("orders")
        for number in range(12):
            mq.send("orders", f"order {number}")
    assert read(name_server, tlsCaFile=trusted) == 12
    assert read(name_server, **{"tls.enable": "true", "tls.client.authServer": "false"}) == 12
    with pytest.raises(TransportError):
        read(name_server, tls="true")
    with pytest.raises(TransportError):
        read(name_server)
    with pytest.raises(ConfigError, match="cannot use the TLS files"):
        read(name_server, tlsCaFile=str(tmp_path / "nothing.pem"))
