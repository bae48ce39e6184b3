"""A broker of either make in the folder of the other, and back: what docs/migration.md promises."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import fusee.sync
from tests.interop.harness.servers import FuseeBroker, FuseeNameServer, JavaBroker

if TYPE_CHECKING:
    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC, GROUP = "Moved", "movers"
# Long enough to be waiting still when the broker is stopped, short enough to be waited for.
SETTINGS = {"messageDelayLevel": "1s 20s"}


@pytest.fixture
def name_server(fleet: Fleet) -> Iterator[FuseeNameServer]:
    server = FuseeNameServer(fleet, "migration-namesrv")
    server.start()
    server.await_ready()
    yield server
    server.stop()


class Household:
    """One broker at a time, each in a copy of the folder that the one before left, and one group that reads on."""

    def __init__(self, fleet: Fleet, runtime: Runtime, name_server: FuseeNameServer) -> None:
        self._fleet, self._runtime, self._name_server = fleet, runtime, name_server
        self._broker: JavaBroker | None = None

    def move_to(self, make: type[JavaBroker]) -> None:
        before = self._broker
        self._broker = broker = make(self._fleet, self._runtime, [self._name_server], name="moved", settings=SETTINGS)
        if before is not None:
            before.stop()
            shutil.copytree(before.store_dir, broker.store_dir)
        broker.start()
        broker.await_ready()

    def end(self) -> None:
        assert self._broker is not None
        self._broker.stop()

    def connect(self) -> fusee.sync.Connection:
        return fusee.sync.connect(self._name_server.address)


def send(mq: fusee.sync.Connection, first: int, count: int) -> list[str]:
    bodies = [f"{number}" for number in range(first, first + count)]
    for body in bodies:
        mq.send(TOPIC, body, key=f"key-{body}", tag="moved")
    return bodies


def read(mq: fusee.sync.Connection, count: int) -> list[str]:
    """The next messages of the group, which are committed then."""
    bodies: list[str] = []
    with mq.pull_consumer(TOPIC, group=GROUP, consume_from="first") as messages:
        while len(bodies) < count:
            bodies += [each.body.decode() for each in messages.poll(max_messages=min(10, count - len(bodies)))]
        messages.commit()
    return bodies


def test_group_goes_on_from_java_to_fusee_and_back(
    fleet: Fleet, current: Runtime, name_server: FuseeNameServer
) -> None:
    household = Household(fleet, current, name_server)
    household.move_to(JavaBroker)
    with household.connect() as mq:
        mq.admin.create_topic(TOPIC, queues=2)
        sent = send(mq, 0, 60)
        seen = read(mq, 25)
        mq.send(TOPIC, "delayed in Java", delay_level=2)

    household.move_to(FuseeBroker)
    with household.connect() as mq:
        sent += send(mq, 60, 40)
        seen += read(mq, 76)  # what Java had left, the delayed one, and what is new
        assert sorted(seen) == sorted([*sent, "delayed in Java"])
        (found,) = mq.admin.messages_by_key(TOPIC, "key-7")
        assert found.body == b"7"
        sent += send(mq, 100, 30)
        seen += read(mq, 10)
        mq.send(TOPIC, "delayed in Fusee", delay_level=2)

    household.move_to(JavaBroker)
    with household.connect() as mq:
        sent += send(mq, 130, 10)
        seen += read(mq, 31)
        for number in (3, 77, 110, 135):
            (found,) = mq.admin.messages_by_key(TOPIC, f"key-{number}")
            assert found.body == b"%d" % number
        assert mq.admin.lag(GROUP, TOPIC, owners=False).total == 0
    household.end()
    assert sorted(seen) == sorted([*sent, "delayed in Java", "delayed in Fusee"])
