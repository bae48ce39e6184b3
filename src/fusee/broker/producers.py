"""Who produces: producer groups and the connections of their members (Java: ProducerManager).

A state machine without I/O, as `consumers`. The broker needs producers for two things: to ask any member of a group
what became of a transaction (`pick`), and to hand a reply to the client that asked (`link_of`).

A client may be a member of several groups over one connection, and has two connections for a while after it lost one.
`link_of` gives the connection on which the client registered last, until that connection leaves its last group. (Java
forgets the client with its first farewell, whatever the connection.)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fusee.broker.consumers import Member
from fusee.errors import SystemBusyError
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fusee.broker.config import BrokerConfig
    from fusee.transport.link import Link
    from fusee.wire.codes import LanguageCode

_log = logging.getLogger(__name__)

UNSENT_BYTES_MAX: Final = 64 * 1024
"""A connection with more than this unread is asked only when every other is in the same state."""


class _Group:
    __slots__ = ("members", "order", "turn")

    def __init__(self) -> None:
        self.members: dict[Link, Member] = {}
        self.order: list[Link] | None = None
        self.turn = 0


class ProducerTable:
    """The producers that are online. `config` may be replaced at any time."""

    def __init__(self, *, config: BrokerConfig) -> None:
        self.config = config
        self._groups: dict[str, _Group] = {}
        self._groups_of_link: dict[Link, dict[str, Member]] = {}
        self._links: dict[str, Link] = {}

    # Looking

    def members(self, group: str) -> Mapping[Link, Member] | None:
        """The members of a group; None when it has none."""
        known = self._groups.get(group)
        return None if known is None else known.members

    def all(self) -> dict[str, Mapping[Link, Member]]:
        """Members by group."""
        return {name: group.members for name, group in self._groups.items()}

    def link_of(self, client_id: str) -> Link | None:
        """The connection of this client."""
        return self._links.get(client_id)

    def pick(self, group: str) -> Link | None:
        """A connection of the group, another one each time; one that does not read only when there is no better."""
        known = self._groups.get(group)
        if known is None:
            return None
        order = known.order
        if order is None:
            order = known.order = list(known.members)
        slow: Link | None = None
        for _ in order:
            known.turn = (known.turn + 1) % len(order)
            link = order[known.turn]
            if link.is_open:
                if link.unsent_bytes <= UNSENT_BYTES_MAX:
                    return link
                slow = slow or link
        return slow

    # What happens

    def register(
        self, group: str, link: Link, *, client_id: str, language: LanguageCode, version: int, now_ms: int
    ) -> Member:
        """A heartbeat for one group. Raises SystemBusyError at a limit, changing nothing."""
        known = self._groups.get(group)
        if known is not None:
            member = known.members.get(link)
            if member is not None and member.client_id == client_id:
                member.last_update_ms = now_ms
                return member
        self._check_limits(group, known, link)
        if known is None:
            known = self._groups[group] = _Group()
        old = known.members.get(link)
        if old is not None:
            old.is_registered = False
        member = known.members[link] = Member(link, client_id, language, version, now_ms)
        known.order = None
        self._groups_of_link.setdefault(link, {})[group] = member
        self._links[client_id] = link
        if old is not None:
            self._forget_client(old)
        return member

    def unregister(self, group: str, link: Link) -> bool:
        """A farewell; whether the connection was a member."""
        known = self._groups.get(group)
        member = None if known is None else known.members.pop(link, None)
        if known is None or member is None:
            return False
        member.is_registered = False
        known.order = None
        if not known.members:
            del self._groups[group]
        memberships = self._groups_of_link[link]
        del memberships[group]
        if not memberships:
            del self._groups_of_link[link]
        self._forget_client(member)
        return True

    def link_lost(self, link: Link) -> None:
        """The connection ended: its memberships are over. Harmless for one that had none."""
        for group in list(self._groups_of_link.get(link, {})):
            self.unregister(group, link)

    def expire(self, now_ms: int) -> list[Link]:
        """Remove members that have been silent for too long; their connections, to be closed."""
        oldest_ms = now_ms - self.config.channel_expired_timeout
        silent = [
            (group, link)
            for link, memberships in self._groups_of_link.items()
            for group, member in memberships.items()
            if member.last_update_ms < oldest_ms
        ]
        for group, link in silent:
            _log.warning("producer %s of group %s is removed: no heartbeat for too long", link.remote_address, group)
            self.unregister(group, link)
        return list(dict.fromkeys(link for _, link in silent))

    # Inside

    def _check_limits(self, group: str, known: _Group | None, link: Link) -> None:
        config = self.config
        if known is None:
            if len(self._groups) >= config.groups_max:
                raise SystemBusyError(
                    f"there are {len(self._groups)} producer groups, the limit, so {group} cannot be added; use fewer "
                    "names, or raise groupsMax of the broker",
                    code=ResponseCode.SYSTEM_BUSY,
                )
        elif link not in known.members and len(known.members) >= config.clients_per_group_max:
            raise SystemBusyError(
                f"producer group {group} has {len(known.members)} members, the limit; try again when some have left, "
                "or raise clientsPerGroupMax of the broker",
                code=ResponseCode.SYSTEM_BUSY,
            )

    def _forget_client(self, left: Member) -> None:
        """Forget the connection of a client that left a group, unless it is still there in another."""
        if self._links.get(left.client_id) is not left.link:
            return
        memberships = self._groups_of_link.get(left.link, {})
        if not any(member.client_id == left.client_id for member in memberships.values()):
            del self._links[left.client_id]
