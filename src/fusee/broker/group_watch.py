"""Who is in this broker's group now, as name servers know it, asked while a slave needs to know (code 901).

A slave learns of its master with each registration, every half a minute. One that follows no master asks every second
instead: a master that comes, or comes back elsewhere, is found at once, and asked where its log comes from (906). One
that may act for its master asks always, since who is there decides who acts.

Name servers are asked one after the other until one answers. What it says holds until the next answer. Without name
servers a master is looked for where haMasterAddress points to, on the port before: a broker's usual two ports.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fusee.errors import FuseeError
from fusee.service import Periodic
from fusee.transport.link import format_address, parse_address
from fusee.wire.bodies.route import MASTER_ID, decode_member_group
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.namesrv import GetBrokerMemberGroup
from fusee.wire.headers.replication import ExchangeHaInfo, ExchangeHaInfoResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fusee.broker.config import BrokerConfig
    from fusee.clock import Timers
    from fusee.transport.client import Client

_log = logging.getLogger(__name__)

_TIMEOUT: Final = 3.0


class GroupQuestions:
    """Asks name servers, and the brokers of the group."""

    def __init__(self, *, config: BrokerConfig, client: Client) -> None:
        self.config = config
        self._client = client

    async def members(self) -> dict[int, str]:
        """Who is in the group: addresses by broker id. Raises FuseeError when no name server says."""
        config = self.config
        header = GetBrokerMemberGroup(cluster_name=config.broker_cluster_name, broker_name=config.broker_name)
        failure: FuseeError | None = None
        for name_server in config.name_servers:
            try:
                answer = await self._ask(name_server, Command.request(RequestCode.GET_BROKER_MEMBER_GROUP, header))
                return decode_member_group(answer.body).broker_addrs
            except FuseeError as error:
                failure = error
        if failure is not None:
            raise failure
        if not config.name_servers and config.ha_master_address:
            host, port = parse_address(config.ha_master_address)
            return {MASTER_ID: format_address((host, port - 1))}
        return {}

    async def ha_address(self, master: str) -> str | None:
        """Where this master sends its log from."""
        answer = await self._ask(master, Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHaInfo()))
        return answer.read(ExchangeHaInfoResponse).master_ha_address

    async def announce_master(self, slave: str, address: str, ha_address: str) -> None:
        """Tell a slave that its master is here."""
        header = ExchangeHaInfo(master_ha_address=ha_address, master_flush_offset=0, master_address=address)
        await self._ask(slave, Command.request(RequestCode.EXCHANGE_BROKER_HA_INFO, header))

    async def delay_offsets(self, slave: str) -> bytes:
        """How far a slave knows delayed messages to be delivered, by itself or the master."""
        return (await self._ask(slave, Command.request(RequestCode.GET_ALL_DELAY_OFFSET))).body

    async def _ask(self, address: str, command: Command) -> Command:
        answer = await self._client.request(address, command, timeout=_TIMEOUT)
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark, address, command.code)
        return answer


class GroupWatch:
    """A slave's eye on its group."""

    def __init__(
        self,
        *,
        questions: GroupQuestions,
        timers: Timers,
        is_needed: Callable[[], bool],
        is_master_wanted: Callable[[], bool],
        on_members: Callable[[Mapping[int, str]], object],
        on_master: Callable[[str, str], object],
    ) -> None:
        """`on_members` hears who is there, `on_master` the addresses of the master: for clients, and of its log."""
        self._questions = questions
        self._is_needed = is_needed
        self._is_master_wanted = is_master_wanted
        self._on_members = on_members
        self._on_master = on_master
        self._looks = Periodic(timers, questions.config.sync_broker_member_group_period / 1000, self._look)
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    def start(self) -> None:
        self._looks.start()

    def stop(self) -> None:
        self._looks.stop()
        if self._task is not None:
            self._task.cancel()

    def _look(self) -> None:
        if self._task is None and self._is_needed():
            self._task = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        try:
            members = await self._questions.members()
            self._on_members(members)
            master = members.get(MASTER_ID)
            if master is not None and self._is_master_wanted():
                ha_address = await self._questions.ha_address(master)
                if ha_address is not None:
                    self._on_master(master, ha_address)
        except FuseeError as error:
            if not self._is_failing:
                _log.info("who is in the group is not known now: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False
        finally:
            self._task = None
