"""A second broker beside an embedded server, known to the same name server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from fusee.broker import Broker, BrokerConfig
from fusee.message.model import MessageQueue
from fusee.store import StoreConfig
from fusee.sync.portal import portal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fusee.sync import EmbeddedServer

SECOND = "second"


@contextmanager
def second_broker(server: EmbeddedServer, store: Path) -> Iterator[Broker]:
    """A broker of the name `second`, while this lasts."""
    here = portal()
    broker = Broker(
        BrokerConfig(
            broker_name=SECOND,
            bind_address="127.0.0.1",
            listen_port=0,
            fast_listen_port=0,
            ha_listen_port=0,
            namesrv_addr=server.name_server,
        ),
        StoreConfig(mapped_file_size_commit_log=1 << 24, max_hash_slot_num=1000, max_index_num=4000),
        store_path=store,
    )
    here.call(broker.start)
    try:
        yield broker
    finally:
        here.call(broker.stop)


def fill_second(server: EmbeddedServer, topic: str, numbers: Iterable[int]) -> list[str]:
    """Send messages `topic number` to queue 0 of the second broker, and make the topic there if need be."""
    bodies = [f"{topic} {number}" for number in numbers]
    with server.connect() as mq:
        for body in bodies:
            mq.send(topic, body.encode(), queue=MessageQueue(topic, SECOND, 0))
    return bodies
