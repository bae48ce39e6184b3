"""A cluster of real processes on this machine: name servers, masters and slaves, to try things out and to break them.

    with LocalCluster(groups=2, replicas=2, name_servers=3, role="sync") as cluster:
        mq = fusee.connect(cluster.name_servers)
        cluster.kill("broker-a")

The processes are in sessions of their own and live on when whoever started them is gone; what is needed to find them
again is in the cluster's folder (`state_file`), so any process can open it and go on. `stop` ends all of them.

Every method blocks. `kill`, `pause` and `resume` take milliseconds and may be called from a coroutine; what asks
nodes (`start`, `restart`, `wait_ready`, `wait_level`, `status`) runs a loop of its own, so a coroutine calls it by
`asyncio.to_thread`.

States of a node: stopped -> starting -> running <-> paused -> killed | stopped | died -> starting ...
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from fusee.cluster import processes
from fusee.cluster.errors import ClusterError
from fusee.cluster.observation import Observer
from fusee.cluster.patience import Patience, breathe
from fusee.cluster.plan import (
    Node,
    NodeFiles,
    Shape,
    Wanted,
    broker_settings,
    check_settings,
    name_server_settings,
    nodes_of,
    ports_needed,
)
from fusee.cluster.ports import FreePorts, taken_ports
from fusee.cluster.processes import ProcessState
from fusee.cluster.readiness import behind, readiness
from fusee.cluster.state_file import ClusterState, locked, read_state, remove_state, write_state
from fusee.errors import ConfigError
from fusee.service import run

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
    from types import TracebackType

    from fusee.cluster.status import ClusterStatus

    Progress = Callable[[str, int, int], object]

T = TypeVar("T")

READY_TIMEOUT: Final = 60.0
STOP_GRACE: Final = 30.0
CLUSTER_NAME: Final = "DefaultCluster"
_LOOK_INTERVAL: Final = 0.05
_SIGNAL_LOOK: Final = 0.001
_PORT_TRIES: Final = 5
_LOG_LINES: Final = 6
_LOG_TAIL_SIZE: Final = 16 * 1024


class LocalCluster:
    """One cluster, in one folder."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        groups: int = 2,
        replicas: int = 2,
        replicated_groups: int | None = None,
        name_servers: int = 3,
        role: str = "async",
        flush: str = "async",
        host: str = "127.0.0.1",
        first_port: int = 0,
        first_broker_port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """A new cluster, or the one that is already in the folder `data`, if that has the same shape.

        Without `data` it lives in a temporary folder, which `stop` deletes. `replicated_groups` says how
        many groups have slaves, if not all. `role` and `flush` are `sync` or `async`,
        `settings` are more settings for every broker, in either spelling. Raises ConfigError.
        """
        processes.check_system()
        self._shape = Shape(
            groups=groups,
            replicas=replicas,
            replicated_groups=replicated_groups,
            name_servers=name_servers,
            role=role,
            flush=flush,
            host=host,
            first_port=first_port,
            first_broker_port=first_broker_port,
            settings=check_settings(settings or {}),
        )
        self._is_temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="fusee-cluster-") if data is None else data).absolute()
        self._made: list[Path] = []
        known = read_state(self.data)
        if known is not None and known.shape != self._shape:
            raise ConfigError(
                f"{self.data} holds another cluster: {known.shape.text}. Start that one without options, use "
                f"another folder, or remove it by `fusee cluster stop --remove --data {self.data}`"
            )

    @classmethod
    def open(cls, data: Path | str) -> Self:
        """The cluster that is in this folder. Raises ClusterError when there is none."""
        processes.check_system()
        found = read_state(Path(data).absolute())
        if found is None:
            raise ClusterError(
                f"there is no cluster in {data}: start one by `fusee cluster start --data {data}`, or give the folder "
                "of yours by --data"
            )
        return cls(data, **msgspec.structs.asdict(found.shape))

    def __repr__(self) -> str:
        return f"<LocalCluster {self.data}: {self._shape.text}>"

    # What it is

    @property
    def state(self) -> ClusterState:
        """What is written down of it now. Raises ClusterError when it was never started, or was removed."""
        found = read_state(self.data)
        if found is None:
            raise ClusterError(f"there is no cluster in {self.data}: it was not started yet, or was removed")
        return found

    @property
    def shape(self) -> Shape:
        """How large it is and what it promises."""
        return self._shape

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name: name servers, then masters and slaves group by group."""
        return {node.name: node for node in self.state.nodes}

    @property
    def name_servers(self) -> str:
        """The addresses of all name servers, for `fusee.connect`."""
        return self.state.name_server_addresses

    @property
    def addresses(self) -> dict[str, str]:
        """Where each node is reached, by its name."""
        return {node.name: node.address for node in self.state.nodes}

    def node(self, name: str) -> Node:
        """The node of this name. Raises ClusterError with those that there are."""
        nodes = self.nodes
        if name not in nodes:
            close = get_close_matches(name, nodes, n=1)
            hint = f", did you mean {close[0]}?" if close else ";"
            raise ClusterError(f"no node is called {name!r}{hint} there are {', '.join(nodes)}")
        return nodes[name]

    def is_running(self, name: str) -> bool:
        """Whether its process runs, and is not paused."""
        return self.process_state(name) is ProcessState.RUNNING

    def process_state(self, name: str) -> ProcessState:
        """Whether its process runs, is paused, or is gone."""
        return _process_state(self.node(name))

    def store_path(self, name: str) -> Path:
        """Where a broker keeps its messages."""
        return NodeFiles(self.data, self.node(name)).store

    def log_path(self, name: str) -> Path:
        """What a node printed, over all its starts."""
        return NodeFiles(self.data, self.node(name)).log

    def config_path(self, name: str) -> Path:
        """The settings of a node; what is changed there holds from its next start on."""
        return NodeFiles(self.data, self.node(name)).config

    # Life of the whole

    def start(self, *, timeout: float = READY_TIMEOUT, progress: Progress | None = None) -> Self:
        """Start every node and wait until they have found each other.

        A cluster that was stopped comes back with its data and its ports. Whatever fails, nothing is left running.
        `progress(what, done, total)` hears how far it is. Raises ClusterError.
        """
        patience = Patience(timeout)
        tell = progress or _tell_nobody
        try:
            self.data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(
                f"{self.data} cannot be made: {error.strerror or error}; choose another --data"
            ) from error
        with FreePorts(self._shape.host) as ports:
            with locked(self.data):
                self._check_not_running()
                is_first = self._write_down(ports)
                try:
                    self._check_ports(self.state.nodes)
                    self._launch_all(self.state.name_servers)
                except BaseException:
                    self._give_up(is_first)
                    raise
            elsewhere = ports if is_first and not self._shape.first_port else None
            try:
                self._wait_answering(self.state.name_servers, "name servers", patience, tell, elsewhere)
                with locked(self.data):
                    self._launch_all(self.state.brokers)
                self._wait_answering(self.state.brokers, "brokers", patience, tell, elsewhere)
                self._wait_ready(patience, tell)
            except BaseException:
                with locked(self.data):
                    self._give_up(is_first)
                raise
        return self

    def wait_ready(self, timeout: float = READY_TIMEOUT, *, progress: Progress | None = None) -> None:
        """Wait until every running name server leads to every running broker, and slaves are at their masters.

        Nodes that are killed, stopped or paused are not waited for. Raises ClusterError, saying what is missing.
        """
        self._wait_ready(Patience(timeout), progress or _tell_nobody)

    def wait_level(self, timeout: float = READY_TIMEOUT) -> None:
        """Wait until every running slave has all that its running master has. Raises ClusterError.

        While messages are sent that may never be so.
        """
        patience = Patience(timeout)

        async def wait() -> None:
            async with Observer() as observer:
                while missing := behind(await observer.look(self.state)):
                    if patience.is_over:
                        raise ClusterError(f"the slaves are not level after {timeout:g} s: {'; '.join(missing)}")
                    await asyncio.sleep(_LOOK_INTERVAL)

        _run(wait)

    def stop(self, *, grace: float = STOP_GRACE) -> list[str]:
        """End every node, in order and at once; the names of those that ran. Done twice, the second has nothing to do.

        Brokers get so many seconds to close their stores, and are killed then.
        """
        if read_state(self.data) is None:
            return []
        with locked(self.data):
            ended = self._end(self.state.nodes, grace=grace)
        if self._is_temporary:
            self.remove()
        return ended

    def remove(self) -> None:
        """Delete what the nodes kept. Raises ClusterError while one of them runs."""
        with locked(self.data):
            found = read_state(self.data)
            nodes = () if found is None else found.nodes
            up = [node.name for node in nodes if _process_state(node) is not ProcessState.GONE]
            if up:
                raise ClusterError(f"{', '.join(up)} still run; stop the cluster before you remove it")
            for node in nodes:
                shutil.rmtree(NodeFiles(self.data, node).folder, ignore_errors=True)
            remove_state(self.data)
        if not any(self.data.iterdir()):
            self.data.rmdir()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Life of one node

    def kill(self, name: str) -> None:
        """End a node as a crash would (kill -9). Raises ClusterError when it does not run."""
        with locked(self.data):
            node = self.node(name)
            process = self._process_of(node)
            write_state(self.data, self.state.with_node(_with(node, wanted=Wanted.KILLED)))
            processes.kill([process])

    def pause(self, name: str) -> None:
        """Let a node stand still (SIGSTOP): its connections stay open and nothing answers. Twice is the same."""
        self._signal(name, signal.SIGSTOP, ProcessState.PAUSED)

    def resume(self, name: str) -> None:
        """Let a paused node go on (SIGCONT)."""
        self._signal(name, signal.SIGCONT, ProcessState.RUNNING)

    def stop_node(self, name: str, *, grace: float = STOP_GRACE) -> bool:
        """End a node in order; whether it ran."""
        with locked(self.data):
            return bool(self._end((self.node(name),), grace=grace))

    def start_node(self, name: str) -> None:
        """Start a node that does not run, with its data and ports; `wait_ready` waits for it. Raises ClusterError."""
        with locked(self.data):
            node = self.node(name)
            if _process_state(node) is not ProcessState.GONE:
                assert node.process is not None
                raise ClusterError(f"{name} runs already, as process {node.process.pid}")
            self._check_ports((node,))
            self._launch(node)

    def restart(self, name: str, *, timeout: float = READY_TIMEOUT, progress: Progress | None = None) -> None:
        """End a node in order if it runs, start it again and wait until it has found the others."""
        patience = Patience(timeout)
        self.stop_node(name, grace=min(STOP_GRACE, timeout))
        others_gone = [node.name for node in self.state.nodes if _process_state(node) is ProcessState.GONE]
        self.start_node(name)
        self._wait_ready(patience, progress or _tell_nobody, passed_over=set(others_gone) - {name})

    def erase(self, name: str) -> None:
        """Delete the store of a broker that does not run: its disk is lost. Raises ClusterError."""
        with locked(self.data):
            node = self.node(name)
            if _process_state(node) is not ProcessState.GONE:
                raise ClusterError(f"{name} still runs; kill it before you delete its store")
            shutil.rmtree(NodeFiles(self.data, node).store, ignore_errors=True)

    # How it is

    def status(self) -> ClusterStatus:
        """Every node: its state, its lag, and what would be lost if it died now."""
        from fusee.cluster.status import cluster_status

        state = self.state

        async def look() -> ClusterStatus:
            async with Observer() as observer:
                return cluster_status(state, self.data, await observer.look(state))

        return _run(look)

    # Within

    def _check_not_running(self) -> None:
        found = read_state(self.data)
        nodes = () if found is None else found.nodes
        up = [node.name for node in nodes if _process_state(node) is not ProcessState.GONE]
        if up:
            raise ClusterError(
                f"the cluster in {self.data} runs already ({len(up)} of {len(nodes)} nodes: {', '.join(up)}). "
                f"`fusee cluster status --data {self.data}` shows it, `restart NAME` starts one node, `stop` ends all"
            )
        if found is not None and found.shape != self._shape:
            raise ClusterError(f"{self.data} holds another cluster by now: {found.shape.text}")
        self._end_strays(nodes)

    def _write_down(self, ports: FreePorts) -> bool:
        """Whether this is a new cluster, which is written down now. The lock is held."""
        if read_state(self.data) is not None:
            return False
        chosen = [] if self._shape.first_port else ports.choose(ports_needed(self._shape))
        nodes = nodes_of(self._shape, chosen)
        write_state(self.data, ClusterState(cluster=CLUSTER_NAME, shape=self._shape, nodes=nodes))
        return True

    def _give_up(self, is_first: bool) -> None:
        """End what was started. A new cluster is forgotten, so that another may be tried; its logs stay."""
        nodes = self.state.nodes
        self._end(nodes, grace=0)
        if is_first:
            for path in self._made:
                path.unlink(missing_ok=True)
            remove_state(self.data)

    def _launch_all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._launch(node)

    def _wait_answering(
        self, nodes: Sequence[Node], what: str, patience: Patience, tell: Progress, elsewhere: FreePorts | None
    ) -> None:
        """Wait until these answer; one whose port was snatched away gets another, if there may be others."""
        tries = {node.name: _PORT_TRIES for node in nodes}

        async def wait() -> None:
            waiting = dict.fromkeys(tries)
            async with Observer() as observer:
                while True:
                    for seen in await asyncio.gather(*(observer.see(self.node(name)) for name in waiting)):
                        name = seen.node.name
                        if seen.answers:
                            del waiting[name]
                        elif seen.process is ProcessState.GONE:
                            tries[name] -= 1
                            if elsewhere is None or not tries[name] or not taken_ports(seen.node.host, seen.node.ports):
                                raise self._ended_early(seen.node)
                            self._start_elsewhere(seen.node, elsewhere)
                    tell(what, len(tries) - len(waiting), len(tries))
                    if not waiting:
                        return
                    if patience.is_over:
                        raise ClusterError(f"{', '.join(waiting)} did not answer in time. {self._told(waiting)}")
                    await asyncio.sleep(_LOOK_INTERVAL)

        _run(wait)

    def _start_elsewhere(self, node: Node, ports: FreePorts) -> None:
        """Start a new node again, on other ports."""
        chosen = iter(ports.choose(len(node.ports)))
        moved = _with(node, port=next(chosen), fast_port=next(chosen, 0), ha_port=next(chosen, 0))
        with locked(self.data):
            NodeFiles(self.data, node).config.unlink(missing_ok=True)
            write_state(self.data, self.state.with_node(moved))
            self._launch(moved)

    def _wait_ready(self, patience: Patience, tell: Progress, *, passed_over: Collection[str] = ()) -> None:
        async def wait() -> None:
            async with Observer() as observer:
                while True:
                    observation = await observer.look(self.state)
                    for seen in observation.seen:
                        if seen.process is ProcessState.GONE and seen.node.name not in passed_over:
                            self._check_wanted(seen.node.name)
                    found = readiness(observation)
                    for what, (done, total) in (("registered", found.registered), ("replicating", found.attached)):
                        if total:
                            tell(what, done, total)
                    if found.is_ready:
                        return
                    if patience.is_over:
                        missing = "; ".join(found.missing)
                        raise ClusterError(
                            f"the cluster in {self.data} is not ready after {patience.seconds:g} s: {missing}. The "
                            "logs of its nodes are in the folders of their names"
                        )
                    await asyncio.sleep(_LOOK_INTERVAL)

        _run(wait)

    def _check_wanted(self, name: str) -> None:
        """Raises ClusterError when a node that is gone was not asked to go."""
        node = self.node(name)  # as it is now: somebody may have killed it since we looked
        if node.wanted is Wanted.UP and _process_state(node) is ProcessState.GONE:
            raise self._ended_early(node)

    def _launch(self, node: Node) -> None:
        """Start a process, and write down which it is. The lock is held."""
        files = NodeFiles(self.data, node)
        try:
            files.folder.mkdir(exist_ok=True)
            if not files.config.exists():
                files.config.write_text(self._settings(node, files))
                self._made.append(files.config)
        except OSError as error:
            raise ClusterError(f"{files.config} cannot be written: {error.strerror or error}") from error
        process = processes.launch(files.command, log=files.log, environment=_environment())
        write_state(self.data, self.state.with_node(_with(node, process=process, wanted=Wanted.UP)))

    def _settings(self, node: Node, files: NodeFiles) -> str:
        if not node.is_broker:
            return name_server_settings(node, files)
        state = self.state
        return broker_settings(
            node, files, state.shape, cluster=state.cluster, name_servers=state.name_server_addresses
        )

    def _check_ports(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            taken = taken_ports(node.host, node.ports)
            if taken:
                raise ClusterError(
                    f"{node.name} needs port {taken[0]} of {node.host}, which is taken: `ss -ltnp 'sport = "
                    f":{taken[0]}'` shows by whom. End that program, or start a cluster with another --port"
                )

    def _process_of(self, node: Node) -> processes.Process:
        """The process of a node. Raises ClusterError when it does not run."""
        if node.process is None or node.process.is_gone:
            raise ClusterError(
                f"{node.name} does not run; `fusee cluster restart {node.name} --data {self.data}` starts it"
            )
        return node.process

    def _signal(self, name: str, number: signal.Signals, wanted: ProcessState) -> None:
        with locked(self.data):
            process = self._process_of(self.node(name))
            process.send(number)
            # A stop signal takes effect a moment after it was sent.
            patience = Patience(STOP_GRACE)
            while (found := process.state) is not wanted:
                if found is ProcessState.GONE:
                    raise ClusterError(f"{name} ended before it could be {wanted.value}")
                if patience.is_over:
                    raise ClusterError(f"{name} is still {found.value} {STOP_GRACE:g} s after it got {number.name}")
                breathe(_SIGNAL_LOOK)

    def _end(self, nodes: Iterable[Node], *, grace: float) -> list[str]:
        """End these, brokers first, so that they can take their leave of the name servers. The lock is held."""
        ended: list[str] = []
        nodes = tuple(nodes)
        for node in nodes:
            if _process_state(node) is ProcessState.PAUSED and node.process is not None:
                node.process.send(signal.SIGCONT)  # or those that take their leave of it would wait
        for part in _brokers_first(nodes):
            up = [(node, node.process) for node in part if node.process is not None and not node.process.is_gone]
            for node, _ in up:
                write_state(self.data, self.state.with_node(_with(node, wanted=Wanted.STOPPED)))
            processes.end([process for _, process in up], grace=grace)
            ended += [node.name for node, _ in up]
        self._end_strays(nodes)
        return ended

    def _end_strays(self, nodes: Iterable[Node]) -> None:
        """End what an interrupted start left without writing it down."""
        known = {NodeFiles(self.data, node).command: node.process for node in nodes}
        processes.kill([found for command, found in processes.started_as(known) if found != known[command]])

    def _ended_early(self, node: Node) -> ClusterError:
        return ClusterError(f"{node.name} has ended by itself. {self._told((node.name,))}")

    def _told(self, names: Iterable[str]) -> str:
        """The last words of these nodes."""
        return " ".join(f"{name} said: {_last_lines(self.log_path(name))}" for name in names)


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run(work())
    raise ClusterError("this would hold up the event loop that calls it: use `await asyncio.to_thread(...)`")


def _with(node: Node, **changes: object) -> Node:
    return msgspec.structs.replace(node, **changes)


def _brokers_first(nodes: Iterable[Node]) -> tuple[list[Node], list[Node]]:
    nodes = list(nodes)
    return [node for node in nodes if node.is_broker], [node for node in nodes if not node.is_broker]


def _process_state(node: Node) -> ProcessState:
    return ProcessState.GONE if node.process is None else node.process.state


def _environment() -> dict[str, str]:
    """Ours, without what would override the files of the nodes."""
    dropped = ("FUSEE_BROKER_", "FUSEE_NAMESRV_", "NAMESRV_ADDR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    # What a node prints at its start is its log, and is looked at while it runs.
    return kept | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


def _last_lines(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LOG_TAIL_SIZE, 0))
            lines = file.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    return "\n".join(["", *lines, f"(all of it is in {log})"]) if lines else f"nothing; {log} is empty"


def _tell_nobody(what: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""
