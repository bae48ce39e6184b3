"""Which consumer groups are those of streams on Spark: a mark at the name servers, under the name of the group.

A stream commits offsets to a group and is no consumer of it: no connection of the group tells what it is, and its name
is the user's to choose. So a stream with a group writes a key of the name servers' key-value configuration, which every
RocketMQ has and nobody else reads, when it first tells the group how far it is:

    namespace FUSEE_STREAM_GROUPS    key GROUP    value {"engine":"spark","since_ms":1767225600000}

The mark stays when the stream has ended, as the group's offsets do.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from fusee.admin.settings import SettingCalls

_log = logging.getLogger(__name__)

NAMESPACE: Final = "FUSEE_STREAM_GROUPS"


class StreamMark(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream says of itself: what runs it, and when it last began."""

    engine: str
    since_ms: int


class StreamGroupCalls(SettingCalls):
    """Groups of streams."""

    async def mark_stream_group(self, group: str, mark: StreamMark) -> None:
        """Write at every name server that a stream commits to this group. Raises AdminError."""
        await self.put_kv(NAMESPACE, group, msgspec.json.encode(mark).decode())

    async def stream_groups(self) -> dict[str, StreamMark]:
        """The groups that streams have marked, by name; what cannot be read is left out."""
        found: dict[str, StreamMark] = {}
        for group, text in sorted((await self.kv_table(NAMESPACE)).items()):
            try:
                found[group] = msgspec.json.decode(text, type=StreamMark)
            except msgspec.DecodeError as error:
                _log.debug("the mark of group %s is not one: %s", group, error)
        return found
