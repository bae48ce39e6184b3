"""A queue by name, as bodies spell it: in lists, and as the key of statistics and offset tables."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Int32


class QueueRef(msgspec.Struct, rename="camel", kw_only=True, frozen=True, gc=False):
    """One queue of a topic on one broker group (Java: MessageQueue)."""

    broker_name: str
    queue_id: Int32
    topic: str
