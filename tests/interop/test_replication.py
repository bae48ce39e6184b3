"""A slave of Apache RocketMQ copies the log of our master, from its beginning and while it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.broker_frames import ask, send_frames
from tests.interop.harness.processes import eventually
from tests.interop.harness.servers import FuseeBroker, FuseeNameServer, JavaBroker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "Replicated"
FIRST_SEGMENT = f"{0:020d}"


def send(broker: JavaBroker, count: int) -> None:
    for frame in send_frames(TOPIC, count=count):
        code, _ = ask(broker.port, frame)
        assert code == 0


def written(store: Path, size: int) -> bytes:
    """The beginning of the log."""
    path = store / "commitlog" / FIRST_SEGMENT
    if not path.exists():
        return b""
    with path.open("rb") as file:
        return file.read(size)


def test_slave_copies_the_log_byte_for_byte(fleet: Fleet, current: Runtime) -> None:
    name_server = FuseeNameServer(fleet, "replication-namesrv")
    name_server.start()
    master = FuseeBroker(fleet, current, [name_server], name="replicated")
    master.start()
    master.await_ready()
    send(master, 50)
    slave = JavaBroker(fleet, current, [name_server], name="replicated", broker_id=1)
    slave.start()
    slave.await_ready()
    send(master, 50)
    size = int(master.runtime_info()["commitLogMaxOffset"])
    assert size > 100 * 1024
    wanted = written(master.store_dir, size)
    eventually("the slave has the log", lambda: written(slave.store_dir, size) == wanted, timeout_s=60)
    eventually(
        "the slave has counted it",
        lambda: int(slave.runtime_info()["commitLogMaxOffset"]) == size,
        timeout_s=60,
    )
    slave.kill()
    master.stop()
