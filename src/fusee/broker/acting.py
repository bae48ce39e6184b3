"""A slave that acts for its master while that is away (slave acting master; in Java parts of BrokerController).

With enableSlaveActingMaster, and supportActingMaster on the name servers, the slave with the smallest id takes the
master's place when that is gone: name servers show it as the master of a group that can only be read, so consumers pull
from it, commit to it and lock queues on it. With enableRemoteEscape it also delivers delayed messages, into the queues
of other groups (`escape`), from where the master has stopped: that is in the log it has.

    follower -> acting     name servers know no smaller id, and the log stream from the master is not there
    acting -> follower     a smaller id is there, or the log stream, or the master has said that it comes

A master that comes back in a group of such brokers first tells its slaves (906), which ends the acting, and asks how
far they have delivered (45), so that nothing is delivered again. A slave that does not answer in time is not waited
for.

Half messages wait for their master, which asks about them when it is back. (Java's slave sends them to other groups as
new half messages: those that are committed then come twice, when the master asks about them, too.)
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fusee.broker.delay_progress import decode_delay_offsets
from fusee.errors import FuseeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fusee.broker.config import BrokerConfig
    from fusee.broker.delay import DelayDelivery
    from fusee.broker.escape import Escape
    from fusee.broker.group_watch import GroupQuestions

_log = logging.getLogger(__name__)


class Acting:
    """Whether a slave acts for its master, and what it does then."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        has_master: Callable[[], bool],
        delay: DelayDelivery,
        escape: Escape,
        on_change: Callable[[], object],
    ) -> None:
        """`has_master` says whether the log stream from the master is there; `on_change` hears when acting changes."""
        self.config = config
        self._has_master = has_master
        self._delay = delay
        self._escape = escape
        self._on_change = on_change
        self.min_broker_id: int | None = None
        """The smallest id of the group that name servers know; None before they have said."""
        self.is_acting = False

    # What happens

    def min_broker_changed(self, min_broker_id: int) -> None:
        """A name server says that the smallest id of the group is another one now."""
        self.min_broker_id = min_broker_id
        self.decide()

    def members_known(self, members: Mapping[int, str]) -> None:
        """A name server says who is in the group."""
        if members:
            self.min_broker_changed(min(members))

    async def master_comes(self) -> None:
        """The master says that it is there: act no more, and return when nothing is under way."""
        self.min_broker_changed(0)
        await self._escape.settled()

    def decide(self) -> None:
        """See whether to act."""
        config = self.config
        acts = config.enable_slave_acting_master and self.min_broker_id == config.broker_id and not self._has_master()
        if acts == self.is_acting:
            return
        self.is_acting = acts
        if acts:
            _log.warning("this slave acts for its master from now on: name servers know no smaller broker id")
            if config.enable_remote_escape:
                self._delay.start(unclean=True)
        else:
            _log.warning("this slave no longer acts for its master")
            self._escape.hold_back()
            self._delay.stop()
        self._on_change()

    def stop(self) -> None:
        """End with the broker."""
        self.is_acting = False
        self._delay.stop()
        self._escape.stop()


async def delivered_by_slaves(
    questions: GroupQuestions, *, address: str, ha_address: str, own_id: int
) -> dict[int, int]:
    """Tell the slaves of this master that it comes; by delay level how far they have delivered for it.

    A slave that cannot be asked is left out: what it has delivered may come again.
    """
    try:
        members = await questions.members()
    except FuseeError as error:
        _log.warning("name servers do not say who acted for this master: %s", error)
        return {}
    slaves = [slave for broker_id, slave in members.items() if broker_id != own_id]
    answers = await asyncio.gather(*(_delivered_by(questions, slave, address, ha_address) for slave in slaves))
    positions: dict[int, int] = {}
    for answer in answers:
        for level, position in answer.items():
            positions[level] = max(position, positions.get(level, 0))
    return positions


async def _delivered_by(questions: GroupQuestions, slave: str, address: str, ha_address: str) -> dict[int, int]:
    try:
        await questions.announce_master(slave, address, ha_address)
        return decode_delay_offsets(await questions.delay_offsets(slave)).offset_table
    except FuseeError as error:
        _log.warning(
            "slave %s does not say what it has delivered for this master, which may come again: %s", slave, error
        )
        return {}
