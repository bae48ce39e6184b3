"""Masters and slaves of either make: the log is copied byte for byte, roles are swapped, lost tails are cut."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from benchmarks.broker_frames import ask, send_frames
from tests.interop.harness.processes import eventually
from tests.interop.harness.servers import FuseeBroker, FuseeNameServer, JavaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "Replicated"
SEGMENT = 1 << 19
SMALL = {"mappedFileSizeCommitLog": str(SEGMENT)}


def send(broker: JavaBroker, count: int) -> None:
    for frame in send_frames(TOPIC, count=count):
        code, _ = ask(broker.port, frame)
        assert code == 0


def log_of(broker: JavaBroker, start: int, end: int) -> bytes:
    """These bytes of a log; less when they are not there."""
    found = b""
    while start < end:
        path = broker.store_dir / "commitlog" / f"{start - start % SEGMENT:020d}"
        if not path.exists():
            break
        with path.open("rb") as file:
            file.seek(start % SEGMENT)
            found += file.read(min(end - start, SEGMENT - start % SEGMENT))
        start += SEGMENT - start % SEGMENT
    return found


def queues_of(broker: JavaBroker, end: int) -> dict[str, bytes]:
    """The consume queues of the topic as far as they point below this log offset."""
    found: dict[str, bytes] = {}
    for queue in sorted((broker.store_dir / "consumequeue" / TOPIC).glob("*")):
        data = b"".join(path.read_bytes() for path in sorted(queue.glob("0*")))
        entries = [data[at : at + 20] for at in range(0, len(data), 20)]
        used = [entry for entry in entries if entry[8:12] != b"\0\0\0\0" and int.from_bytes(entry[:8], "big") < end]
        found[queue.name] = b"".join(used)
    return found


def first_segment(broker: JavaBroker) -> int:
    return min((int(path.name) for path in (broker.store_dir / "commitlog").glob("0*")), default=0)


def await_copy(master: JavaBroker, slave: JavaBroker) -> int:
    """Wait until the slave has the master's log; how far that is."""
    size = int(master.runtime_info()["commitLogMaxOffset"])
    eventually(
        f"{slave.name}-{slave.broker_id} has the log up to {size}",
        lambda: int(slave.runtime_info()["commitLogMaxOffset"]) == size,
        timeout_s=60,
    )
    start = first_segment(slave)
    wanted = log_of(master, start, size)
    assert len(wanted) == size - start > 0
    eventually("their bytes are the same", lambda: log_of(slave, start, size) == wanted, timeout_s=60)
    if start == 0:
        wanted_queues = queues_of(master, size)
        assert sum(map(len, wanted_queues.values())) > 0
        eventually("and their queues", lambda: queues_of(slave, size) == queues_of(master, size), timeout_s=60)
    return size


@pytest.fixture
def name_server(fleet: Fleet) -> Iterator[FuseeNameServer]:
    server = FuseeNameServer(fleet, "replication-namesrv")
    server.start()
    server.await_ready()
    yield server
    server.stop()


def started(broker: JavaBroker) -> JavaBroker:
    broker.start()
    broker.await_ready()
    return broker


def test_java_slave_copies_the_log_of_our_master_and_they_swap_roles(
    fleet: Fleet, current: Runtime, name_server: FuseeNameServer
) -> None:
    master = started(FuseeBroker(fleet, current, [name_server], name="replicated", settings=SMALL))
    send(master, 300)
    slave = started(JavaBroker(fleet, current, [name_server], name="replicated", broker_id=1, settings=SMALL))
    await_copy(master, slave)  # while that is the first segment: its slave asks for no other
    send(master, 1021)
    send(master, 200)
    end = await_copy(master, slave)
    assert end > 2 * SEGMENT
    slave.stop()
    master.stop()

    new_master = JavaBroker(fleet, current, [name_server], name="replicated", settings=SMALL)
    shutil.copytree(slave.store_dir, new_master.store_dir)
    new_slave = FuseeBroker(fleet, current, [name_server], name="replicated", broker_id=1, settings=SMALL)
    shutil.copytree(master.store_dir, new_slave.store_dir)
    started(new_master)
    started(new_slave)
    send(new_master, 1021)
    assert await_copy(new_master, new_slave) > end + SEGMENT
    new_slave.stop()
    new_master.kill()


def test_our_slave_copies_the_log_of_a_java_master_and_they_swap_roles(
    fleet: Fleet, current: Runtime, name_server: FuseeNameServer
) -> None:
    master = started(JavaBroker(fleet, current, [name_server], name="swapped", settings=SMALL))
    send(master, 700)
    slave = started(FuseeBroker(fleet, current, [name_server], name="swapped", broker_id=1, settings=SMALL))
    send(master, 1021)
    assert await_copy(master, slave) > 2 * SEGMENT
    slave.kill()
    send(master, 300)
    slave.start()
    slave.await_ready()
    send(master, 300)
    end = await_copy(master, slave)
    assert master.stop() is not None
    slave.stop()

    # Its log may begin later than the Java broker's, but ends as that does.
    new_master = FuseeBroker(fleet, current, [name_server], name="swapped", settings=SMALL)
    shutil.copytree(slave.store_dir, new_master.store_dir)
    new_slave = JavaBroker(fleet, current, [name_server], name="swapped", broker_id=1, settings=SMALL)
    shutil.copytree(master.store_dir, new_slave.store_dir)
    started(new_master)
    started(new_slave)
    send(new_master, 1021)
    size = int(new_master.runtime_info()["commitLogMaxOffset"])
    assert size > end + SEGMENT
    eventually(
        "the Java broker follows as a slave",
        lambda: int(new_slave.runtime_info()["commitLogMaxOffset"]) == size,
        timeout_s=60,
    )
    start = first_segment(new_master)
    assert log_of(new_slave, start, size) == log_of(new_master, start, size)
    new_slave.kill()
    new_master.stop()


def test_our_slave_is_cut_to_what_a_restored_java_master_has(
    fleet: Fleet, current: Runtime, name_server: FuseeNameServer
) -> None:
    master = started(JavaBroker(fleet, current, [name_server], name="restored", settings=SMALL))
    send(master, 100)
    master.stop()
    backup = master.store_dir.with_name("backup")
    shutil.copytree(master.store_dir, backup)
    started(master)
    slave = started(FuseeBroker(fleet, current, [name_server], name="restored", broker_id=1, settings=SMALL))
    await_copy(master, slave)  # while that is the first segment: the reference sends a new slave no other
    send(master, 800)
    before = await_copy(master, slave)
    slave.stop()
    master.kill()
    shutil.rmtree(master.store_dir)
    shutil.copytree(backup, master.store_dir)
    started(master)
    assert int(master.runtime_info()["commitLogMaxOffset"]) < before - SEGMENT // 2
    send(master, 1021)
    slave.start()
    slave.await_ready()
    assert await_copy(master, slave) > 0
    send(master, 50)
    await_copy(master, slave)
    slave.stop()
    master.kill()
