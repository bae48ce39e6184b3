"""Opens a handover (code 60021); what is handed over is sent and staged with requests of those handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.headers.handover import OpenHandover, OpenHandoverResponse

if TYPE_CHECKING:
    from fusee.broker.config import BrokerConfig
    from fusee.broker.handovers import Handovers
    from fusee.transport.link import Link
    from fusee.transport.router import Handler
    from fusee.wire.command import Command


class HandoverHandlers:
    """Code 60021."""

    def __init__(self, *, config: BrokerConfig, handovers: Handovers) -> None:
        self.config = config
        self._handovers = handovers

    def routes(self) -> dict[RequestCode, Handler]:
        return {RequestCode.OPEN_HANDOVER: self.open}

    def open(self, command: Command, link: Link) -> Command:
        header = command.read(OpenHandover)
        handover = self._handovers.open(link, header.size) if self.config.handover_enable else None
        if handover is None:
            return command.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark="no handover for this connection: it comes from another machine, has one already, there are too "
                "many, or they are off (handoverEnable); send the bytes instead",
            )
        return command.reply(header=OpenHandoverResponse(path=handover.path, size=handover.size, mark=handover.mark))
