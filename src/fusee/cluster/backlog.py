"""What lies in a stretch of a node's log, read from its files without disturbing it: how many messages, how old.

The node may be running, paused or dead. A stretch begins wherever a slave's copy ends, which may be inside a record:
that record counts, as the slave cannot have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.errors import StoreError
from fusee.store.offline.files import OfflineStore
from fusee.store.offline.inspect import log_end
from fusee.store.offline.walk import Chunk, LogEnd, walk

if TYPE_CHECKING:
    from pathlib import Path

COUNTED_MAX: Final = 64 * 1024 * 1024
"""Bytes of a stretch whose messages are counted one by one; those of a longer one are estimated from its beginning."""

_CHUNK_SIZE: Final = 1 << 20


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a log."""

    messages: int
    is_estimated: bool = False


def log_end_of(store: Path) -> int | None:
    """Where the log of this store ends; None when there is no store, or none that can be read."""
    try:
        with OfflineStore(store) as opened:
            return log_end(opened)[0] if opened.log else 0
    except StoreError:
        return None


def backlog(store: Path, log_offset: int, end_offset: int) -> Backlog | None:
    """What lies between these two places; None when the store cannot be read."""
    if end_offset <= log_offset:
        return Backlog(messages=0)
    try:
        with OfflineStore(store) as opened:
            return _count(opened, max(log_offset, opened.log.min_offset), end_offset)
    except StoreError:
        return None


def store_time_after(store: Path, log_offset: int) -> int | None:
    """When the first whole message from there on was stored, in milliseconds; None when there is none."""
    try:
        with OfflineStore(store) as opened:
            for event in walk(opened.log, max(log_offset, opened.log.min_offset), _CHUNK_SIZE):
                if isinstance(event, Chunk):
                    return int(event.store_timestamps[0])
    except StoreError:
        pass
    return None


def _count(store: OfflineStore, log_offset: int, end_offset: int) -> Backlog:
    messages = 0
    counted_offset = log_offset
    for event in walk(store.log, log_offset, _CHUNK_SIZE):
        if isinstance(event, LogEnd):
            break
        if isinstance(event, Chunk):
            messages += int((event.log_offsets < end_offset).sum())
            counted_offset = event.log_offset + int(event.parts.record_end[-1])
        elif event.log_offset < end_offset:
            messages += 1  # the rest of a record that was cut
            counted_offset = event.end_offset
        if counted_offset >= end_offset:
            break
        if counted_offset - log_offset > COUNTED_MAX:
            share = (end_offset - log_offset) / (counted_offset - log_offset)
            return Backlog(messages=round(messages * share), is_estimated=True)
    return Backlog(messages=messages)
