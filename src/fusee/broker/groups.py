"""The consumer groups of a broker, saved in config/subscriptionGroup.json (Java: SubscriptionGroupManager).

Some groups of tools are there from the start; what the file says of them goes before. Others are made by an
administrator (`put`) or when they are first seen (`find`), if the configuration allows that and the name is legal.

The forbidden table holds, by group and topic, permission bits taken from a group; only PERM_READ is ever asked about.
When the last bit of a topic is given back only that topic is forgotten. (Java forgets all topics of the group then, and
neither saves it nor makes a new data version.)

A SubscriptionGroupConfig in the table is never altered, only replaced.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.broker.attributes import GROUP_ATTRIBUTES, altered
from fusee.broker.config import spelled
from fusee.broker.documents import (
    SUBSCRIPTION_GROUPS,
    DocumentTable,
    TableDocument,
    TableFullError,
    next_version,
    pretty,
)
from fusee.errors import MessageError
from fusee.message.topics import TOOLS_CONSUMER_GROUP, TRANSACTION_GROUP, is_system_group, validate_group
from fusee.wire.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from fusee.wire.bodies.topic import PERM_READ, DataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fusee.broker.config import BrokerConfig
    from fusee.clock import Clock
    from fusee.store.filesystem import FileSystem

TOOL_GROUPS: Final = (
    TOOLS_CONSUMER_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""Groups that are there from the start."""

FORBIDDEN_PER_GROUP_MAX: Final = 10_000

_GROUPS: Final = "subscriptionGroupTable"
_FORBIDDEN: Final = "forbiddenTable"


def _text(value: SubscriptionGroupConfig | dict[str, int]) -> str:
    return pretty(value, 2)


class GroupTable(DocumentTable):
    """All consumer groups of one broker. `folder` is the store's config/; `config` may be replaced while it runs."""

    def __init__(self, *, config: BrokerConfig, folder: Path, files: FileSystem, clock: Clock) -> None:
        self.config = config
        self.state_version = 0
        """Version of the store's state machine, part of every new data version; 0 without a controller."""
        self._clock = clock
        self._document = TableDocument(
            folder / SUBSCRIPTION_GROUPS,
            files,
            document_type=SubscriptionGroupTable,
            texts={_GROUPS: _text, _FORBIDDEN: _text},
        )
        self._version = DataVersion(timestamp=clock.time_ms())
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._all: Mapping[str, SubscriptionGroupConfig] = MappingProxyType(self._groups)
        self._forbidden: dict[str, dict[str, int]] = {}
        for name in TOOL_GROUPS:
            self._set(SubscriptionGroupConfig(group_name=name))

    # Saving

    def load(self) -> None:
        """Take over what the file says. Raises StoreCorruptError when neither it nor its `.bak` can be read."""
        document = self._document.load()
        if document is None:
            return
        for name, group in document.subscription_group_table.items():
            if group.group_name != name:
                group = msgspec.structs.replace(group, group_name=name)  # noqa: PLW2901
            self._groups[name] = group
            self._document.loaded(_GROUPS, name, group)
        for name, topics in document.forbidden_table.items():
            self._forbidden[name] = topics
            self._document.loaded(_FORBIDDEN, name, topics)
        self._version = document.data_version

    # Reading

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, or None."""
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, made if that is allowed; None when it is not, or the name is illegal. Raises TableFullError."""
        found = self._groups.get(group)
        if found is not None:
            return found
        if not self.config.auto_create_subscription_group and not is_system_group(group):
            return None
        try:
            validate_group(group)
        except MessageError:
            return None
        self._check_room([group])
        made = SubscriptionGroupConfig(group_name=group)
        self._next_version()
        self._set(made)
        return made

    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        """All groups by name: a view, not a copy."""
        return self._all

    def __len__(self) -> int:
        return len(self._groups)

    def page(self, known: DataVersion | None, first: int, count: int) -> dict[str, SubscriptionGroupConfig]:
        """Up to `count` groups in order of name from the `first` on, or from the start when `known` is outdated."""
        start = max(first, 0) if known == self._version else 0
        return {name: self._groups[name] for name in sorted(self._groups)[start : start + max(count, 0)]}

    # Changing

    def put(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Make or replace a group; its `attributes` are alterations, `+key` and `-key`. The group as it is now.

        Raises InvalidAttributeError or TableFullError; nothing has changed then.
        """
        return self.put_all([group])[0]

    def put_all(self, groups: Sequence[SubscriptionGroupConfig]) -> list[SubscriptionGroupConfig]:
        """As `put`, for several: all of them, or none when one is refused."""
        made: dict[str, SubscriptionGroupConfig] = {}
        for group in groups:
            name = group.group_name
            current = made.get(name) or self._groups.get(name)
            attributes = altered(GROUP_ATTRIBUTES, current.attributes if current else None, group.attributes)
            made[name] = msgspec.structs.replace(group, attributes=attributes)
        self._check_room(list(made))
        for group in made.values():
            self._next_version()
            self._set(group)
        return [made[group.group_name] for group in groups]

    def delete(self, group: str) -> bool:
        """Forget the group and what it is forbidden; whether there was one."""
        if self._forbidden.pop(group, None) is not None:
            self._document.changed(_FORBIDDEN, group, None)
        if self._groups.pop(group, None) is None:
            return False
        self._next_version()
        self._document.changed(_GROUPS, group, None)
        return True

    def disable_consume(self, group: str) -> None:
        """Let the group consume no more, until an administrator allows it again."""
        found = self._groups.get(group)
        if found is not None:
            self._next_version()
            self._set(msgspec.structs.replace(found, consume_enable=False))

    def take_over(self, table: SubscriptionGroupTable) -> None:
        """Have the groups of this table and no others, and what they are forbidden: a slave's way.

        Raises TableFullError; nothing has changed then.
        """
        groups, forbidden = table.subscription_group_table, table.forbidden_table
        if max(len(groups), len(forbidden)) > self.config.groups_max:
            raise TableFullError(
                f"the master has {len(groups)} groups, this slave has room for {spelled('groups_max')}="
                f"{self.config.groups_max}: raise it to the master's"
            )
        changes: dict[str, SubscriptionGroupConfig | None] = {name: None for name in self._groups if name not in groups}
        changes.update((name, group) for name, group in groups.items() if self._groups.get(name) != group)
        forbids: dict[str, dict[str, int] | None] = {name: None for name in self._forbidden if name not in forbidden}
        forbids.update((name, topics) for name, topics in forbidden.items() if self._forbidden.get(name) != topics)
        self._version = table.data_version
        self._groups.update(groups)
        self._forbidden.update(forbidden)
        for name, group in changes.items():
            if group is None:
                del self._groups[name]
        for name, topics in forbids.items():
            if topics is None:
                del self._forbidden[name]
        self._document.changed_all(_GROUPS, changes)
        self._document.changed_all(_FORBIDDEN, forbids)

    # What groups are forbidden

    def forbidden(self, group: str, topic: str) -> int:
        """The permission bits that the group does not have on this topic."""
        topics = self._forbidden.get(group)
        return max(topics.get(topic, 0), 0) if topics else 0

    def is_readable(self, group: str, topic: str) -> bool:
        """Whether the group may read this topic."""
        return not self._forbidden or not self.forbidden(group, topic) & PERM_READ

    @property
    def forbidden_table(self) -> Mapping[str, dict[str, int]]:
        """Permission bits taken away, by group and topic."""
        return MappingProxyType(self._forbidden)

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Allow or forbid the group to read this topic. Raises TableFullError."""
        before = self.forbidden(group, topic)
        bits = before & ~PERM_READ if readable else before | PERM_READ
        if bits == before:
            return
        topics = dict(self._forbidden.get(group, {}))
        if bits:
            if topic not in topics:
                self._check_forbidden_room(group, topics)
            topics[topic] = bits
        else:
            del topics[topic]
        if topics:
            self._forbidden[group] = topics
        else:
            del self._forbidden[group]
        self._next_version()
        self._document.changed(_FORBIDDEN, group, topics or None)

    def _check_room(self, groups: Sequence[str]) -> None:
        added = sum(group not in self._groups for group in groups)
        if added and len(self._groups) + added > self.config.groups_max:
            raise TableFullError(
                f"no room for group {groups[-1]!r}: {spelled('groups_max')}={self.config.groups_max} is reached; "
                "delete groups that nobody uses, or raise it"
            )

    def _check_forbidden_room(self, group: str, topics: Mapping[str, int]) -> None:
        if len(topics) >= FORBIDDEN_PER_GROUP_MAX:
            raise TableFullError(f"group {group!r} is forbidden {len(topics)} topics, which is as many as are kept")
        if group not in self._forbidden and len(self._forbidden) >= self.config.groups_max:
            raise TableFullError(
                f"no room to forbid group {group!r} anything: {spelled('groups_max')}={self.config.groups_max} groups "
                "are forbidden something"
            )

    def _set(self, group: SubscriptionGroupConfig) -> None:
        self._groups[group.group_name] = group
        self._document.changed(_GROUPS, group.group_name, group)

    def _next_version(self) -> None:
        self._version = next_version(self._version, self._clock, self.state_version)
