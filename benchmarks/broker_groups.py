"""Broker groups under measurement: masters and slaves of one make with a name server of that make, one settings file.

Java's brokers have small heaps here: there are up to four at a time, and none of them has much to do.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks.broker_frames import ask, ask_whole, has_route
from benchmarks.brokers import STOP_LIMIT_S, TEMPLATE_TOPIC, free_broker_port, fusee_name_server
from benchmarks.errors import BenchmarkError
from benchmarks.frames import frame, json_header
from benchmarks.machine import cores
from benchmarks.peers import rocketmq
from benchmarks.plan import REPOSITORY
from benchmarks.results import OURS
from benchmarks.server_process import ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from benchmarks.plan import Plan

ASYNC_MASTER: Final = "ASYNC_MASTER"
SYNC_MASTER: Final = "SYNC_MASTER"
PEER: Final = f"RocketMQ {rocketmq.VERSION}"
HEAP: Final = "512m"
READY_LIMIT_S: Final = 90.0
LEVEL_LIMIT_S: Final = 120.0
POLL_S: Final = 0.02

UPDATE_TOPIC: Final = 17
RUNTIME_INFO: Final = 28
CLUSTER_INFO: Final = 106
GET_TOPIC: Final = 351


class GroupBroker:
    """One broker of a group: its process, while it runs, and where it is asked."""

    def __init__(self, name: str, broker_id: int, folder: Path) -> None:
        self.name = name
        self.broker_id = broker_id
        self.folder = folder
        self.port = free_broker_port()
        self.ha_port = free_port()
        self.server: ServerProcess | None = None

    @property
    def label(self) -> str:
        return f"{self.name}-{self.broker_id}"

    @property
    def pid(self) -> int:
        if self.server is None:
            raise BenchmarkError(f"{self.label} is not running")
        return self.server.pid

    def log_end_offset(self) -> int:
        """How far its log is."""
        answer = ask_whole(self.port, frame(json_header(RUNTIME_INFO, {})))
        if answer.code:
            raise BenchmarkError(f"{self.label} does not say how far its log is: code {answer.code}")
        return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


class BrokerGroups:
    """Groups of a master and slaves, from empty stores; a context manager that leaves nothing behind."""

    def __init__(self, make: str, plan: Plan, *, groups: int = 1, slaves: int = 1, role: str = ASYNC_MASTER) -> None:
        """`make` is OURS or PEER."""
        self.make = make
        self._plan = plan
        self._groups = groups
        self._slaves = slaves
        self._role = role
        self._stack = ExitStack()
        self._name_server: ServerProcess | None = None
        self._folder = Path()
        self.brokers: dict[tuple[str, int], GroupBroker] = {}

    @property
    def name_server_address(self) -> str:
        if self._name_server is None:
            raise BenchmarkError(f"the name server of {self.make} is not running")
        return f"127.0.0.1:{self._name_server.port}"

    @property
    def masters(self) -> list[GroupBroker]:
        return [broker for broker in self.brokers.values() if not broker.broker_id]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._plan.build.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="groups-", dir=self._plan.build))
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._name_server = stack.enter_context(self._new_name_server())
            self._stack = stack
            for number in range(self._groups):
                self.start(f"broker-{chr(ord('a') + number)}", 0)
            for master in self.masters:
                for broker_id in range(1, self._slaves + 1):
                    self.start(master.name, broker_id)
            self._wait_registered()
            for master in self.masters:
                self.wait_level(master)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._name_server = None

    def start(self, name: str, broker_id: int) -> GroupBroker:
        """A broker more, which listens when this returns."""
        broker = GroupBroker(name, broker_id, self._folder / f"{name}-{broker_id}")
        broker.folder.mkdir()
        settings = broker.folder / "broker.properties"
        settings.write_text(self._settings(broker))
        broker.server = self._stack.enter_context(self._process(broker, settings))
        self.brokers[name, broker_id] = broker
        return broker

    def create_topic(self, topic: str, *, queues: int) -> None:
        """On every master; returns when clients can find it."""
        for master in self.masters:
            fields = {
                "topic": topic,
                "defaultTopic": TEMPLATE_TOPIC,
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            }
            code, _ = ask(master.port, frame(json_header(UPDATE_TOPIC, fields)))
            if code:
                raise BenchmarkError(f"{master.label} of {self.make} does not make the topic {topic}: code {code}")
        assert self._name_server is not None
        port = self._name_server.port
        _eventually(f"{topic} has no route", READY_LIMIT_S, lambda: has_route(port, topic))

    def wait_known(self, topic: str) -> None:
        """Returns when slaves know the topic as well, which takes Java's up to a minute."""
        known = frame(json_header(GET_TOPIC, {"topic": topic}))
        _eventually(
            f"slaves do not know {topic}",
            READY_LIMIT_S,
            lambda: all(ask(one.port, known)[0] == 0 for one in self.brokers.values()),
        )

    def wait_level(self, master: GroupBroker) -> None:
        """Returns when every slave of this master has its log."""
        slaves = [one for one in self.brokers.values() if one.name == master.name and one.broker_id]
        _eventually(
            f"the slaves of {master.label} do not catch up",
            LEVEL_LIMIT_S,
            lambda: all(one.log_end_offset() >= master.log_end_offset() for one in slaves),
        )

    def _wait_registered(self) -> None:
        assert self._name_server is not None
        port = self._name_server.port

        def is_registered() -> bool:
            answer = ask_whole(port, frame(json_header(CLUSTER_INFO, {})))
            text = answer.body.decode()
            return not answer.code and all(f"127.0.0.1:{one.port}" in text for one in self.brokers.values())

        _eventually("not all brokers are registered", READY_LIMIT_S, is_registered)

    def _new_name_server(self) -> ServerProcess:
        if self.make == OURS:
            return fusee_name_server(self._folder, self._plan.logs / "ha-namesrv-fusee.log")
        return rocketmq.name_server(self._plan, cores=cores().every)

    def _process(self, broker: GroupBroker, settings: Path) -> ServerProcess:
        every, log_path = cores().every, self._plan.logs / f"ha-{self.make.split()[0]}-{broker.label}.log"
        if self.make != OURS:
            return rocketmq.broker(settings, port=broker.port, heap=HEAP, cores=every, log_path=log_path)
        return ServerProcess(
            f"Fusee's {broker.label}",
            [sys.executable, "-m", "fusee", "broker", "-c", str(settings), "--log-level", "warning"],
            port=broker.port,
            cores=every,
            log_path=log_path,
            cwd=REPOSITORY,
            stop_limit_s=STOP_LIMIT_S,
        )

    def _settings(self, broker: GroupBroker) -> str:
        """The file of both makes: RocketMQ's names and defaults, loopback only."""
        store = broker.folder / "store"
        values = {
            "brokerClusterName": "BenchmarkCluster",
            "brokerName": broker.name,
            "brokerId": str(broker.broker_id),
            "brokerRole": "SLAVE" if broker.broker_id else self._role,
            # Without this a SYNC_MASTER of the reference waits for no slave.
            "inSyncReplicas": str(self._slaves + 1),
            # Without this a slave of the reference refuses every pull, also when its master is gone.
            "slaveReadEnable": "true",
            "namesrvAddr": self.name_server_address,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(broker.port),
            "haListenPort": str(broker.ha_port),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "autoCreateTopicEnable": "true",
            "flushDiskType": "ASYNC_FLUSH",
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())


def _eventually(what: str, limit_s: float, is_so: Callable[[], bool]) -> None:
    """Waits until `is_so()`; a server that does not answer yet is waited for as well."""
    deadline = time.monotonic() + limit_s
    cause = ""
    while True:
        try:
            if is_so():
                return
        except BenchmarkError as error:
            cause = f": {error}"
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{what} within {limit_s:.0f} s{cause}")
        time.sleep(POLL_S)
