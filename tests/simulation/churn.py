"""A group of consumers under churn: members come, go and die, wires break, brokers and name servers start again.

Everything is real but the three seams: the network is in memory, disks are simulated, time is a manual clock. One seed
decides everything that happens and when; the same seed gives the same run, event for event, as long as strings hash
alike (`PYTHONHASHSEED`), because sets of queues are walked in the order of their hashes.

A run is a number of steps. In each, something is done and some time passes; a `Witness` looks on. At the end all is
healed, and what was acknowledged must be consumed within `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from fusee.broker import Broker
from fusee.client.consumer.options import ConsumeResult
from fusee.client.consumer.push import Consumer
from fusee.client.producer import Producer
from fusee.client.received import ReceivedMessage
from fusee.client.results import SendResult
from fusee.client.session import Session
from fusee.errors import ConnectError, FuseeError
from fusee.message.model import MessageQueue
from tests.simulation.watched_world import WatchedWorld
from tests.simulation.witness import PromiseBrokenError, Witness

TOPIC: Final = "orders"
GROUP: Final = "workers"
TOPICS: Final = (TOPIC, f"%RETRY%{GROUP}")
QUEUES: Final = 4
MEMBERS_MAX: Final = 5
PATIENCE_S: Final = 1800.0
LATENCY_S: Final = 0.002


@dataclass(frozen=True)
class Plan:
    """What kind of run."""

    seed: int
    steps: int
    ordered: bool
    brokers: int = 2

    @property
    def command(self) -> str:
        """What repeats it."""
        kind = " --ordered" if self.ordered else ""
        return f"python -m tests.simulation --seed {self.seed} --steps {self.steps}{kind}"


@dataclass
class Outcome:
    """What came of it."""

    plan: Plan
    digest: str = ""
    seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    deliveries: int = 0
    failures: int = 0
    commits: int = 0
    races: int = 0

    def __str__(self) -> str:
        acts = ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))
        return (
            f"seed {self.plan.seed}{' in order' if self.plan.ordered else ''}: {self.plan.steps} steps, "
            f"{self.seconds:.0f} s of its own time, {self.acknowledged} messages, {self.deliveries} deliveries "
            f"({self.failures} failed), {self.commits} commits ({self.races} races); {acts}; digest {self.digest}"
        )


class Member:
    """One consumer in a process of its own."""

    def __init__(self, churn: Churn, name: str, session: Session) -> None:
        self.churn = churn
        self.name = name
        self.session = session
        self.is_dead = False
        self.consumer = Consumer(
            session,
            {TOPIC: "*"},
            group=GROUP,
            listener=self.listen,
            ordered=churn.plan.ordered,
            consume_from="first",
            missing_topic="wait",
            consume_thread_max=churn.random.choice((1, 4, 20)),
        )

    async def listen(self, message: ReceivedMessage) -> ConsumeResult:
        """Take some time, and fail now and then."""
        churn, number = self.churn, int(message.body)
        queue, queue_offset = message.queue, message.queue_offset
        await self._live()
        churn.tell(churn.witness.handed, self.name, queue, queue_offset, number)
        pause = churn.random.choice((0.0, 0.0, 0.0, 0.01, 0.2, 1.0))
        if pause:
            over = asyncio.Event()
            self.session.timers.call_later(pause, over.set)
            await over.wait()
        await self._live()
        fails = churn.is_calm is False and churn.random.random() < 0.03
        churn.tell(churn.witness.finished, self.name, queue, queue_offset, number, succeeded=not fails)
        return ConsumeResult.RETRY_LATER if fails else ConsumeResult.SUCCESS

    async def _live(self) -> None:
        if self.is_dead:
            await asyncio.get_running_loop().create_future()


class Churn(WatchedWorld):
    """The world, and what is done to it."""

    def __init__(self, plan: Plan) -> None:
        churn = self

        class WatchedBroker(Broker):
            def _make_tables(self) -> None:
                super()._make_tables()
                churn.watch(self)

        self.broker_type = WatchedBroker
        super().__init__(brokers=plan.brokers, name_servers=2, seed=plan.seed)
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.witness = Witness(self.clock.monotonic, ordered=plan.ordered, race_s=2 * LATENCY_S)
        self.members: list[Member] = []
        self.is_calm = False
        self._numbers = 0
        self._sends: set[asyncio.Future[SendResult]] = set()
        self._down: dict[str, float] = {}
        """Brokers that are down, and when they are to be started."""
        self._names_down: dict[str, float] = {}
        self._held: dict[tuple[str, str], float] = {}
        """Wires that are interrupted, and until when."""
        self._deaf: set[str] = set()
        """Members that cannot see that the broker which starts now has ended before."""

    # Brokers that are watched

    async def start_broker(self, name: str) -> Broker:
        host = self.broker_hosts[name]
        self._deaf = {member.name for member in self.members if self.network.weather(member.session.ip, host).held}
        return await super().start_broker(name)

    def watch(self, broker: Broker) -> None:
        """To be called when a broker has read its tables, and before it is open."""
        name, offsets = broker.config.broker_name, broker.offsets
        found = {
            MessageQueue(topic, name, queue_id): committed_offset
            for topic in TOPICS
            for queue_id, committed_offset in offsets.query_all(GROUP, topic).items()
        }
        self.tell(self.witness.restarted, name, found, self._deaf)
        commit = offsets.commit

        def watched(group: str, topic: str, queue_id: int, queue_offset: int, **more: Any) -> bool:
            is_taken = commit(group, topic, queue_id, queue_offset, **more)
            if group == GROUP and topic in TOPICS:
                by = str(more.get("client_address", "")).rpartition(":")[0]
                now_at = offsets.query(group, topic, queue_id)
                self.tell(self.witness.committed, MessageQueue(topic, name, queue_id), now_at, by)
            return is_taken

        offsets.commit = watched  # type: ignore[method-assign]

    # The run

    async def play(self) -> None:
        """All steps, and the end."""
        await self.start()
        self.create_topic(TOPIC, QUEUES)
        await self.advance(1.0)
        session = await self.session("10.0.9.250", instance_name="producer")
        self.producer = Producer(session)
        await self.do(self.producer.start())
        await self.join()
        for _ in range(self.plan.steps):
            await self._step()
        await self._finish()

    async def _step(self) -> None:
        acts: list[tuple[Callable[[], Coroutine[Any, Any, object]], int]] = [
            (self.send, 40), (self.wait, 12), (self.join, 6), (self.leave, 4), (self.kill_member, 4), (self.cut, 6),
            (self.hold, 4), (self.stop_a_broker, 1), (self.kill_a_broker, 1), (self.stop_a_name_server, 1),
        ]  # fmt: skip
        act = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]
        self.done[act.__name__.replace("_", " ")] += 1
        await act()
        await self.advance(self.random.choice((0.0, 0.001, 0.05, 0.3, 1.0)))
        await self._mend()

    async def _mend(self, *, at_once: bool = False) -> None:
        """End what has lasted long enough."""
        now = float("inf") if at_once else self.clock.monotonic()
        for (a, b), until in list(self._held.items()):
            if until <= now:
                del self._held[a, b]
                self.network.release(a, b)
        for name, until in list(self._down.items()):
            if until <= now:
                del self._down[name]
                await self.start_broker(name)
        for host, until in list(self._names_down.items()):
            if until <= now:
                del self._names_down[host]
                await self.start_name_server(host)

    async def _finish(self) -> None:
        self.is_calm = True
        self.witness.happened("all is mended")
        await self._mend(at_once=True)
        while len(self.members) < 2:
            await self.join()
        deadline = self.clock.monotonic() + PATIENCE_S
        while (self._sends or self.witness.missing or self.lag) and self.clock.monotonic() < deadline:
            await self.advance(5.0)
        self.witness.check_end()
        # What is consumed and not yet committed when members leave in order is committed by that.
        await self.send()
        while self._sends or self.witness.missing:
            await self.advance(0.05)
        for member in list(self.members):
            await self._part(member)
        assert not self.lag, f"{self.lag} messages are consumed and not committed, though every member left in order"
        await self.do(self.producer.close())
        await self.close()

    @property
    def lag(self) -> int:
        """Messages of the topic that are stored and not committed."""
        return sum(
            broker.store.max_offset(TOPIC, queue_id) - max(broker.offsets.query(GROUP, TOPIC, queue_id), 0)
            for broker in self.brokers.values()
            for queue_id in range(QUEUES)
        )

    # What is done

    async def send(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            self._numbers += 1
            number = self._numbers
            sending = self.producer.send(TOPIC, str(number).encode())
            self._sends.add(sending)
            sending.add_done_callback(lambda done, number=number: self._sent(number, done))  # type: ignore[misc]
        await self.settle()

    def _sent(self, number: int, sending: asyncio.Future[SendResult]) -> None:
        self._sends.discard(sending)
        if not sending.cancelled() and sending.exception() is None:
            result = sending.result()
            self.tell(self.witness.sent, number, result.queue, result.queue_offset)

    async def wait(self) -> None:
        await self.advance(self.random.choice((2.0, 5.0, 20.0)))

    async def join(self) -> None:
        if len(self.members) >= MEMBERS_MAX:
            return
        self._hosts += 1
        host = f"10.0.{10 + self._hosts // 200}.{1 + self._hosts % 200}"
        session = self.new_session(host, instance_name="member")
        try:
            await self.do(session.start())
        except ConnectError:  # no name server is there, and a client cannot begin without
            self.sessions.remove(session)
            return
        for broker_host in self.broker_hosts.values():
            weather = self.network.weather(host, broker_host)
            weather.latency = self.random.choice((0.0, 0.0, LATENCY_S))
            weather.chunk_max = self.random.choice((0, 0, 300))
        member = Member(self, host, session)
        self.witness.happened(f"{host} joins")
        self.members.append(member)
        await self.do(member.consumer.start())

    async def leave(self) -> None:
        if self.members:
            await self._part(self.random.choice(self.members))

    async def _part(self, member: Member) -> None:
        self.members.remove(member)
        self.witness.happened(f"{member.name} leaves")
        await self.do(member.consumer.close(), 300.0)
        await self.do(member.session.close(), 300.0)
        self.sessions.remove(member.session)
        self.witness.happened(f"{member.name} has left")

    async def kill_member(self) -> None:
        if self.members:
            member = self.random.choice(self.members)
            self.members.remove(member)
            member.is_dead = True
            self.kill_session(member.session)
            self.witness.gone(member.name)
            self.witness.happened(f"{member.name} is killed")

    async def cut(self) -> None:
        """Connections break; they can be made again at once."""
        if self.members:
            member = self.random.choice(self.members)
            for host in self._some_brokers():
                self.network.cut(member.session.ip, host)
                self.witness.happened(f"the connection of {member.name} to {host} is cut")

    async def hold(self) -> None:
        """Nothing passes for a while; it may be shorter or longer than what a broker waits."""
        if self.members:
            member = self.random.choice(self.members)
            seconds = self.random.choice((0.5, 5.0, 40.0, 70.0, 150.0))
            for host in self._some_brokers():
                self.network.weather(member.session.ip, host).held = True
                self._held[member.session.ip, host] = self.clock.monotonic() + seconds
                self.witness.happened(f"{member.name} and {host} are parted for {seconds} s")

    def _some_brokers(self) -> list[str]:
        hosts = list(self.broker_hosts.values())
        return hosts if self.random.random() < 0.5 else [self.random.choice(hosts)]

    async def stop_a_broker(self) -> None:
        if name := self._choose_broker():
            self.witness.happened(f"{name} stops")
            await self.stop_broker(name)

    async def kill_a_broker(self) -> None:
        if name := self._choose_broker():
            self.witness.happened(f"{name} is killed")
            self.kill(name)

    def _choose_broker(self) -> str:
        if not self.brokers:
            return ""
        name = self.random.choice(sorted(self.brokers))
        self._down[name] = self.clock.monotonic() + self.random.choice((0.5, 5.0, 40.0))
        return name

    async def stop_a_name_server(self) -> None:
        host = self.random.choice(self.name_server_hosts)
        if host not in self._names_down:
            self._names_down[host] = self.clock.monotonic() + self.random.choice((1.0, 35.0))
            await self.do(self.name_servers.pop(host).stop())


def simulate(plan: Plan) -> Outcome:
    """Run this plan. Raises PromiseBrokenError, or whatever else went wrong, with the command that repeats it."""
    outcome = Outcome(plan)

    async def run() -> None:
        churn = Churn(plan)
        try:
            await churn.play()
        except (PromiseBrokenError, FuseeError, AssertionError) as error:
            raise PromiseBrokenError(f"{error}\n\nto see it again: {plan.command}") from error
        finally:
            witness = churn.witness
            outcome.digest = witness.digest
            outcome.seconds = churn.clock.monotonic()
            outcome.done = churn.done
            outcome.acknowledged = len(witness.acknowledged)
            outcome.deliveries, outcome.failures = witness.deliveries, witness.failures
            outcome.commits, outcome.races = witness.commits, witness.races

    asyncio.run(run())
    return outcome
