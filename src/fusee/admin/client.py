"""Admin: every operation on topics, groups, offsets, messages and brokers as one typed call.

The parts are written by subject; `Admin` is all of them. The command line and the console stand on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusee.admin.access import AccessCalls
from fusee.admin.controllers import ControllerCalls
from fusee.admin.dead_letters import DeadLetterCalls
from fusee.admin.diagnosis import DiagnosisCalls
from fusee.admin.follow import FollowCalls
from fusee.admin.life import LifeCalls
from fusee.admin.offsets import queues_in
from fusee.admin.stream_groups import StreamGroupCalls
from fusee.admin.transactions import TransactionCalls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fusee.message.model import MessageQueue


class Admin(
    DeadLetterCalls,
    TransactionCalls,
    LifeCalls,
    FollowCalls,
    DiagnosisCalls,
    AccessCalls,
    ControllerCalls,
    StreamGroupCalls,
):
    """Operates a cluster through its name servers (Java: DefaultMQAdminExt, mqadmin).

    Calls that change something on several brokers try all of them and raise `AdminError` with each one's cause when
    some failed; calls that ask return what could be learnt, with `failures` where the view has them. A broker is named
    by its name (its master is meant) or its address; without one, and without a cluster, every master is meant. Names
    of topics and groups are as brokers have them, with their namespace.

    It needs no start: it uses the session's connections, and is of no use after the session is closed.
    """

    async def allocate_queues(
        self, topic: str, client_ids: Sequence[str], *, group: str = "", strategy: str = "AVG"
    ) -> Mapping[str, tuple[MessageQueue, ...]]:
        """Which queues each client would get of a topic (mqadmin allocateMQ), by client id."""
        from fusee.client.consumer import assignment

        divide = assignment.strategy(strategy)
        queues = sorted(queues_in(topic, await self._route(topic)), key=assignment.queue_order)
        members = sorted(set(client_ids), key=assignment.id_order)
        return {member: tuple(divide.allocate(group, member, queues, members)) for member in members}
