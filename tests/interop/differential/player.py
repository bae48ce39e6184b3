"""Plays a script to one broker over the wire and keeps the outcome of every step.

Connections have names; each is opened when a step first uses it and is a client in its own right: requests that the
broker makes of it are answered as a client would, and kept for the step that waits for them.

A broker may take its time between storing a message and showing it in queues and index. So before a step that reads
the player waits, when something was stored, until the broker says that nothing is left to dispatch.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from fusee.clock import SystemClock
from fusee.errors import FuseeError, TransportError
from fusee.transport.link import Link, LinkLimits
from fusee.transport.router import Router
from fusee.transport.tcp import TcpNetwork
from fusee.wire.codes import RequestCode as Rq
from fusee.wire.command import Command
from fusee.wire.lenient_json import loads
from tests.interop.differential.masking import Mask
from tests.interop.differential.steps import (
    ADMIN,
    ANSWER_TIMEOUT_S,
    SILENCE_S,
    Ask,
    Begin,
    Finish,
    HangUp,
    Memory,
    NotRememberedError,
    Pushed,
    Step,
    Tell,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.interop.differential.steps import Outcome, Request

POLL_INTERVAL_S: Final = 0.02
WAIT_TIMEOUT_S: Final = 30.0
LEFT_OVER: Final = "left over/requests of the broker that no step waited for"

_STORING: Final = {
    *(Rq.SEND_MESSAGE, Rq.SEND_MESSAGE_V2, Rq.SEND_BATCH_MESSAGE, Rq.SEND_REPLY_MESSAGE, Rq.SEND_REPLY_MESSAGE_V2),
    *(Rq.CONSUMER_SEND_MSG_BACK, Rq.END_TRANSACTION, Rq.RESUME_CHECK_HALF_MESSAGE),
}
_OPEN_TO_CLIENTS: Final = {
    *(Rq.CHECK_TRANSACTION_STATE, Rq.NOTIFY_CONSUMER_IDS_CHANGED, Rq.RESET_CONSUMER_CLIENT_OFFSET),
    *(Rq.GET_CONSUMER_STATUS_FROM_CLIENT, Rq.GET_CONSUMER_RUNNING_INFO, Rq.CONSUME_MESSAGE_DIRECTLY),
    Rq.PUSH_REPLY_MESSAGE_TO_CLIENT,
}
# What a client says when it is asked: enough to see that the broker passes it on.
_CLIENT_ANSWERS: Final[dict[int, bytes]] = {
    Rq.GET_CONSUMER_STATUS_FROM_CLIENT: (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"d_plain"}:2}}'
    ),
    Rq.GET_CONSUMER_RUNNING_INFO: b'{"properties":{"PROP_CLIENT_VERSION":"V5_5_0"},"subscriptionSet":[]}',
    Rq.CONSUME_MESSAGE_DIRECTLY: b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}',
}


class _Client:
    """One connection to the broker and what the broker asked on it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.link: Link | None = None
        self.pushes: deque[Command] = deque()
        self.arrived = asyncio.Event()
        self._router = Router()
        lane = self._router.lane("client", 1000)
        for code in _OPEN_TO_CLIENTS:
            self._router.add(code, self._serve, lane)

    async def connect(self) -> Link:
        if self.link is None or not self.link.is_open:
            host, _, port = self._address.rpartition(":")
            self.link = await TcpNetwork().connect(self._new_link, host, int(port))
        return self.link

    async def hang_up(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None

    def _new_link(self) -> Link:
        clock = SystemClock()
        return Link(
            clock=clock,
            timers=asyncio.get_running_loop(),
            router=self._router,
            limits=LinkLimits(),
            pauses_reading=False,
        )

    def _serve(self, command: Command, link: Link) -> Command | None:
        self.pushes.append(command)
        self.arrived.set()
        return None if command.is_oneway else command.reply(body=_CLIENT_ANSWERS.get(command.code, b""))


class Player:
    """Plays to the broker at one address."""

    def __init__(self, address: str, *, silence_s: float = SILENCE_S) -> None:
        """`silence_s`: how long nothing must come before it is believed that nothing will."""
        self._address = address
        self._silence_s = silence_s
        self._clients: dict[str, _Client] = {}
        self._begun: dict[str, tuple[int, asyncio.Task[Command]]] = {}
        self._stored_something = False
        self.memory = Memory()
        self.mask = Mask({address: "<broker>"})

    async def play(self, script: Sequence[Step]) -> dict[str, Outcome]:
        """The masked outcome of every step, by name."""
        try:
            outcomes = {step.name: await self._outcome_of(step) for step in script}
            outcomes[LEFT_OVER] = self._left_over()
            return outcomes
        finally:
            for _, task in self._begun.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._begun.values()), return_exceptions=True)
            for client in self._clients.values():
                await client.hang_up()
            # Transports close in the next rounds of the loop.
            await asyncio.sleep(0.05)

    async def _outcome_of(self, step: Step) -> Outcome:
        try:
            match step:
                case Ask():
                    return await self._ask(step)
                case Tell():
                    link = await self._connect(step.via)
                    link.send_oneway(self._command(step.request))
                    return {"told": True}
                case Begin():
                    return await self._begin(step)
                case Finish():
                    return await self._finish(step)
                case Pushed():
                    return await self._pushed(step)
                case HangUp():
                    await self._client(step.via).hang_up()
                    return {"hung up": True}
                case _:
                    raise TypeError(f"no such step: {step}")
        except NotRememberedError as missing:
            return {"not asked": f"no earlier answer gave {missing}"}
        except TransportError as error:
            return {"no answer": type(error).__name__}

    async def _ask(self, step: Ask) -> Outcome:
        code = step.request.code
        if code not in _STORING and self._stored_something:
            await self._settle()
        link = await self._connect(step.via)
        if step.silent:
            try:
                answer = await link.request(self._command(step.request), self._silence_s)
            except TransportError:
                return {"silence": True}
            return self.mask.outcome(code, answer)
        answer = await link.request(self._command(step.request), ANSWER_TIMEOUT_S)
        if step.until is not None:
            deadline = asyncio.get_running_loop().time() + WAIT_TIMEOUT_S
            while not step.until(answer) and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(POLL_INTERVAL_S)
                answer = await link.request(self._command(step.request), ANSWER_TIMEOUT_S)
        self._keep(step.keep, answer)
        outcome = self.mask.outcome(code, answer)
        return outcome if step.view is None else step.view(outcome)

    async def _begin(self, step: Begin) -> Outcome:
        if self._stored_something:
            await self._settle()
        link = await self._connect(step.via)
        task = asyncio.ensure_future(link.request(self._command(step.request), ANSWER_TIMEOUT_S))
        self._begun[step.name.rpartition("/")[2]] = (step.request.code, task)
        # The request must be with the broker before the next step changes anything there.
        await asyncio.sleep(self._silence_s)
        return {"answered at once": task.done()}

    async def _finish(self, step: Finish) -> Outcome:
        code, task = self._begun.pop(step.begun)
        return self.mask.outcome(code, await task)

    async def _pushed(self, step: Pushed) -> Outcome:
        client = self._client(step.via)
        deadline = asyncio.get_running_loop().time() + WAIT_TIMEOUT_S
        while True:
            for push in client.pushes:
                if push.code == step.code:
                    client.pushes.remove(push)
                    self._keep(step.keep, push)
                    return self.mask.push(push)
            client.arrived.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(client.arrived.wait(), max(left_s, 0))
            except TimeoutError:
                return {"no request": step.code}

    def _keep(self, keep: Mapping[str, Callable[[Command], Any]], answer: Command) -> None:
        for name, find in keep.items():
            try:
                self.memory[name] = find(answer)
            except (LookupError, TypeError, ValueError, FuseeError):
                # An answer of another kind; whoever needs it will say so.
                self.memory.pop(name, None)

    def _command(self, request: Request) -> Command:
        if request.code in _STORING:
            self._stored_something = True
        return request.command(self.memory)

    async def _settle(self) -> None:
        """Waits until all that is stored can be read."""
        link = await self._connect(ADMIN)
        deadline = asyncio.get_running_loop().time() + WAIT_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            answer = await link.request(Command(Rq.GET_BROKER_RUNTIME_INFO), ANSWER_TIMEOUT_S)
            if answer.code != 0 or loads(answer.body)["table"].get("dispatchBehindBytes") in ("0", None):
                break
            await asyncio.sleep(POLL_INTERVAL_S)
        self._stored_something = False

    async def _connect(self, name: str) -> Link:
        link = await self._client(name).connect()
        self.mask.names[link.local_address] = f"<{name}>"
        return link

    def _client(self, name: str) -> _Client:
        if name not in self._clients:
            self._clients[name] = _Client(self._address)
        return self._clients[name]

    def _left_over(self) -> Outcome:
        return {
            name: {str(code): count for code, count in sorted(Counter(push.code for push in client.pushes).items())}
            for name, client in sorted(self._clients.items())
            if client.pushes
        }
