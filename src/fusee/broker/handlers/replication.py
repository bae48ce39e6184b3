"""What brokers of one group tell each other of the log stream: where it comes from, and how far it was flushed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.replication import (
    ExchangeHaInfo,
    ExchangeHaInfoResponse,
    NotifyMinBrokerIdChange,
    ResetMasterFlushOffset,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.broker.acting import Acting
    from fusee.broker.config import BrokerConfig
    from fusee.replication import Replica
    from fusee.store.engine import MessageStore
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command


class ReplicationHandlers:
    """Codes 905, 906 and 908. `addresses` gives where this broker serves clients, and slaves.

    `acting` is the part of a slave that acts for its master; the master is answered when that has ended.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        replica: Replica | None,
        addresses: Callable[[], tuple[str, str]],
        acting: Acting | None = None,
    ) -> None:
        self.config = config
        self._store = store
        self._replica = replica
        self._addresses = addresses
        self._acting = acting
        self._end_at_start = store.written_offset

    def routes(self) -> dict[RequestCode, Handler]:
        """What is served here."""
        return {
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.min_broker_changed,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flushed,
        }

    def min_broker_changed(self, command: Command, link: Link) -> Command:
        """905: a name server says that the smallest id of the group is another one now."""
        header = command.read(NotifyMinBrokerIdChange)
        if self._acting is not None and header.min_broker_id is not None:
            self._acting.min_broker_changed(header.min_broker_id)
        return command.reply(ResponseCode.SUCCESS)

    async def exchange(self, command: Command, link: Link) -> Command:
        """906: a slave is told its master's addresses, a master is asked for its own."""
        header = command.read(ExchangeHaInfo)
        if header.master_ha_address is not None:
            if self._replica is not None:
                self._replica.set_master(header.master_ha_address, header.master_address)
            if self._acting is not None:
                await self._acting.master_comes()
        elif self.config.is_master:
            address, ha_address = self._addresses()
            return command.reply(
                ResponseCode.SUCCESS,
                ExchangeHaInfoResponse(
                    master_ha_address=ha_address, master_flush_offset=self._end_at_start, master_address=address
                ),
            )
        return command.reply(ResponseCode.SUCCESS)

    def reset_master_flushed(self, command: Command, link: Link) -> Command:
        """908: a slave is told how far its master's log is on disk; kept in the checkpoint, as the reference does."""
        header = command.read(ResetMasterFlushOffset)
        if not self.config.is_master:
            self._store.checkpoint.master_flushed_offset = header.master_flush_offset
        return command.reply(ResponseCode.SUCCESS)
