"""Bodies of the locks by which an orderly consumer owns a queue."""

from __future__ import annotations

import msgspec

from fusee.wire.bodies.queue_ref import QueueRef


class LockBatchRequest(msgspec.Struct, rename="camel", kw_only=True):
    """Codes 41 and 42 (Java: LockBatchRequestBody, UnlockBatchRequestBody)."""

    client_id: str
    consumer_group: str
    queues: list[QueueRef] = msgspec.field(default_factory=list, name="mqSet")
    only_this_broker: bool = False


class LockBatchResponse(msgspec.Struct, rename="camel", kw_only=True):
    """The queues that were locked (Java: LockBatchResponseBody)."""

    locked: list[QueueRef] = msgspec.field(default_factory=list, name="lockOKMQSet")
