"""The servers of a run: name servers of either make behind one interface, and the real broker.

`start` only launches and `await_ready` waits, so several virtual machines can come up at the same time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tests.interop.harness import probe
from tests.interop.harness.processes import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.harness.processes import Child, Fleet
    from tests.interop.harness.toolchain import Runtime

START_TIMEOUT_S: Final = 60.0
# The broker announces itself again every ten seconds at the most often.
REGISTRATION_TIMEOUT_S: Final = 45.0
# It sleeps here and there on its way out; one that is killed before its end leaves no clean store.
BROKER_STOP_TIMEOUT_S: Final = 60.0
CLUSTER: Final = "DefaultCluster"


class NameServer:
    """A name server that can be killed and started again on the same port with the same files."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.name = name
        self.port = fleet.ports.take()
        self.address = f"127.0.0.1:{self.port}"
        self._fleet = fleet
        self._folder = fleet.folder(name)
        self._child: Child | None = None

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.is_running

    def start(self) -> None:
        self._child = self._fleet.start(self.name, self._command(self._folder), self._folder)

    def await_ready(self) -> None:
        def answers() -> bool:
            assert self._child is not None
            self._child.assert_running()
            return probe.ask(self.address, probe.GET_CLUSTER_INFO).code == 0

        eventually(f"{self.name} answers on {self.address}", answers, timeout_s=START_TIMEOUT_S)

    def await_topic(self, topic: str) -> None:
        eventually(
            f"{self.name} knows {topic}",
            lambda: probe.route_of(self.address, topic),
            timeout_s=REGISTRATION_TIMEOUT_S,
        )

    def await_brokers(self, expected: dict[str, dict[str, str]], *, timeout_s: float = 15.0) -> None:
        """Waits until it knows exactly these brokers: name -> id -> address."""
        eventually(
            f"{self.name} knows the brokers {expected}",
            lambda: probe.brokers_of(self.address) == expected,
            timeout_s=timeout_s,
        )

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()

    def stop(self) -> int:
        """Asks it to end; the exit code."""
        assert self._child is not None
        return self._child.stop()

    def _command(self, folder: Path) -> list[str]:
        raise NotImplementedError


class FuseeNameServer(NameServer):
    """Fusee's name server in a process of its own."""

    def _command(self, folder: Path) -> list[str]:
        return [sys.executable, "-m", "fusee", "namesrv", "--listen", self.address]


class JavaNameServer(NameServer):
    """The real name server: the oracle."""

    def __init__(self, fleet: Fleet, name: str, runtime: Runtime) -> None:
        super().__init__(fleet, name)
        self._runtime = runtime

    def _command(self, folder: Path) -> list[str]:
        config = folder / "namesrv.conf"
        config.write_text(f"listenPort={self.port}\nbindAddress=127.0.0.1\n", encoding="utf-8")
        startup = "org.apache.rocketmq.namesrv.NamesrvStartup"
        return self._runtime.command(startup, "-c", str(config), home_dir=folder)


class JavaBroker:
    """The real broker, with a store that is small enough for a test."""

    def __init__(
        self,
        fleet: Fleet,
        runtime: Runtime,
        name_servers: list[NameServer],
        *,
        name: str = "broker-a",
        broker_id: int = 0,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.broker_id = broker_id
        # The broker listens on port, port - 2 (its second door) and the port for replicas.
        self.port = fleet.ports.take(-2, 1)
        self.address = f"127.0.0.1:{self.port}"
        self.name_servers = name_servers
        self._settings = settings or {}
        self._fleet = fleet
        self._runtime = runtime
        self._folder = fleet.folder(f"{name}-{broker_id}")
        self._child: Child | None = None

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.is_running

    @property
    def store_dir(self) -> Path:
        return self._folder / "store"

    def start(self) -> None:
        config = self._folder / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._configuration().items()), encoding="utf-8")
        command = self._runtime.command(
            "fusee.interop.tools.Serve",
            *("-c", str(config)),
            home_dir=self._folder,
            heap_mb=512,
            # A nearly full disk of the machine is not what is tested here.
            properties={
                "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
                "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.99",
            },
        )
        self._child = self._fleet.start(f"{self.name}-{self.broker_id}", command, self._folder)

    def await_ready(self) -> None:
        """Waits until it answers and every running name server knows it."""

        def answers() -> bool:
            assert self._child is not None
            self._child.assert_running()
            return probe.ask(self.address, probe.GET_BROKER_RUNTIME_INFO).code == 0

        eventually(f"{self.name} answers on {self.address}", answers, timeout_s=START_TIMEOUT_S)
        for name_server in self.name_servers:
            if name_server.is_running:
                self.await_registration(name_server)

    def await_registration(self, name_server: NameServer) -> None:
        def is_known() -> bool:
            addresses = probe.brokers_of(name_server.address).get(self.name, {})
            return addresses.get(str(self.broker_id)) == self.address

        eventually(f"{name_server.name} knows {self.name}", is_known, timeout_s=REGISTRATION_TIMEOUT_S)

    def runtime_info(self) -> dict[str, str]:
        table: dict[str, str] = probe.ask(self.address, probe.GET_BROKER_RUNTIME_INFO).json()["table"]
        return table

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()

    def begin_stop(self) -> None:
        """Asks it to end, which takes it seconds; `stop` waits for the end."""
        assert self._child is not None
        self._child.popen.terminate()

    def stop(self) -> int:
        assert self._child is not None
        return self._child.stop(timeout_s=BROKER_STOP_TIMEOUT_S)

    def _configuration(self) -> dict[str, str]:
        return {
            "brokerClusterName": CLUSTER,
            "brokerName": self.name,
            "brokerId": str(self.broker_id),
            "brokerRole": "ASYNC_MASTER" if self.broker_id == 0 else "SLAVE",
            "namesrvAddr": ";".join(name_server.address for name_server in self.name_servers),
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "registerNameServerPeriod": "10000",
            "autoCreateTopicEnable": "true",
            "storePathRootDir": str(self.store_dir),
            "storePathCommitLog": str(self.store_dir / "commitlog"),
            "mappedFileSizeCommitLog": str(16 << 20),
            "mappedFileSizeConsumeQueue": str(20_000),
            "mappedFileSizeTimerLog": str(1 << 20),
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            "diskMaxUsedSpaceRatio": "95",
            # A cold virtual machine on few cores is slow, not overloaded.
            "waitTimeMillsInSendQueue": "10000",
            "osPageCacheBusyTimeOutMills": "10000",
            **self._settings,
        }


class FuseeBroker(JavaBroker):
    """Our broker, with the settings file that the real one is given."""

    def start(self) -> None:
        config = self._folder / "broker.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._configuration().items()), encoding="utf-8")
        command = [sys.executable, "-m", "fusee", "broker", "-c", str(config)]
        self._child = self._fleet.start(f"{self.name}-{self.broker_id}", command, self._folder)
