"""What a slave of ours serves beside real programs: tables of a Java master, reads when it is gone, acting for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.broker_frames import ask, send_frames
from tests.interop.harness import probe
from tests.interop.harness.processes import eventually
from tests.interop.harness.servers import FuseeBroker, FuseeNameServer, JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.harness.processes import Fleet
    from tests.interop.harness.toolchain import Runtime

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "Served"
GROUP = "served_readers"
QUERY_OFFSET = 14
UPDATE_OFFSET = 15
GET_GROUP = 352
GET_TOPIC = 351
ACTING = {"enableSlaveActingMaster": "true", "slaveReadEnable": "true"}


class ActingNameServer(JavaNameServer):
    """One that shows a slave in its master's place."""

    def _command(self, folder: Path) -> list[str]:
        command = super()._command(folder)
        with (folder / "namesrv.conf").open("a") as config:
            config.write("supportActingMaster=true\nnotifyMinBrokerIdChanged=true\n")
        return command


def send(broker: JavaBroker, count: int) -> None:
    for frame in send_frames(TOPIC, queues=1, count=count):
        assert ask(broker.port, frame)[0] == 0


def commit(broker: JavaBroker, queue_offset: int) -> None:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(queue_offset)}
    assert probe.ask(broker.address, UPDATE_OFFSET, fields).code == 0


def committed(broker: JavaBroker) -> str | None:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "setZeroIfNotFound": "false"}
    return probe.ask(broker.address, QUERY_OFFSET, fields).fields.get("offset")


def pull(broker: JavaBroker, queue_offset: int) -> probe.Answer:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return probe.ask(broker.address, probe.PULL_MESSAGE, fields)


def test_our_slave_has_the_tables_of_a_java_master_and_serves_when_it_is_gone(fleet: Fleet, current: Runtime) -> None:
    name_server = FuseeNameServer(fleet, "served-namesrv")
    name_server.start()
    name_server.await_ready()
    master = JavaBroker(fleet, current, [name_server], name="served")
    master.start()
    master.await_ready()
    slave = FuseeBroker(fleet, current, [name_server], name="served", broker_id=1)
    slave.start()
    slave.await_ready()
    send(master, 20)
    assert probe.ask(master.address, GET_GROUP, {"group": GROUP}).code == 0
    commit(master, 5)
    eventually("the slave has the offset", lambda: committed(slave) == "5", timeout_s=60)
    eventually(
        "the slave has the topic", lambda: probe.ask(slave.address, GET_TOPIC, {"topic": TOPIC}).code == 0, timeout_s=60
    )
    assert pull(slave, 0).code == 2, "the master is there"
    master.kill()
    eventually("the slave serves", lambda: pull(slave, 5).code == 0, timeout_s=30)
    assert int(pull(slave, 5).fields["nextBeginOffset"]) == 20
    assert pull(slave, 99).fields["nextBeginOffset"] == "99", "nobody is moved by a slave"
    commit(slave, 17)
    master.start()
    master.await_ready()
    eventually("the master has what was committed meanwhile", lambda: committed(master) == "17", timeout_s=90)
    slave.stop()
    master.stop()
    name_server.stop()


def test_our_slave_acts_for_its_master_under_a_java_name_server(fleet: Fleet, current: Runtime) -> None:
    name_server = ActingNameServer(fleet, "acting-namesrv", current)
    name_server.start()
    name_server.await_ready()
    master = FuseeBroker(fleet, current, [name_server], name="acting", settings=ACTING)
    master.start()
    master.await_ready()
    slave = FuseeBroker(fleet, current, [name_server], name="acting", broker_id=1, settings=ACTING)
    slave.start()
    slave.await_ready()
    send(master, 5)
    eventually(
        "the slave has the messages",
        lambda: slave.runtime_info()["commitLogMaxOffset"] == master.runtime_info()["commitLogMaxOffset"],
        timeout_s=30,
    )

    def shown() -> dict[str, str]:
        route = probe.ask(name_server.address, probe.GET_ROUTE, {"topic": TOPIC}).json()
        addresses: dict[str, str] = route["brokerDatas"][0]["brokerAddrs"]
        return addresses

    assert shown() == {"0": master.address, "1": slave.address}
    master.kill()
    eventually("the slave is shown as master", lambda: shown() == {"0": slave.address}, timeout_s=30)
    eventually("the slave serves", lambda: pull(slave, 0).code == 0, timeout_s=5)
    master.start()
    master.await_ready()
    eventually("the master is the master again", lambda: shown().get("0") == master.address, timeout_s=30)
    slave.stop()
    master.stop()
    name_server.stop()
