"""Bodies of POP consumption: batch acknowledgement, assignment of queues by the broker, request modes.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

import msgspec

from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.fields import Int32, Int64


class BatchAck(msgspec.Struct, kw_only=True):
    """Acknowledgements of one pop of one queue: bit i stands for queue offset `start_offset` + i.

    Bits are numbered from the lowest of the first byte; trailing zero bytes are left out.
    """

    bits: bytes = msgspec.field(default=b"", name="b")
    consumer_group: str = msgspec.field(name="c")
    invisible_time_ms: Int64 = msgspec.field(name="it")
    pop_timestamp_ms: Int64 = msgspec.field(name="pt")
    queue_id: Int32 = msgspec.field(name="q")
    retry: str = msgspec.field(default="0", name="r")
    revive_queue_id: Int32 = msgspec.field(name="rq")
    start_offset: Int64 = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")


class BatchAckRequest(msgspec.Struct, rename="camel", kw_only=True):
    """Code 200151 (Java: BatchAckMessageRequestBody)."""

    acks: list[BatchAck] = []
    broker_name: str | None = None


class QueryAssignmentRequest(msgspec.Struct, rename="camel", kw_only=True):
    """Code 400 (Java: QueryAssignmentRequestBody)."""

    client_id: str | None = None
    consumer_group: str
    message_model: str = "CLUSTERING"
    strategy_name: str = "AVG"
    topic: str


class QueueAssignment(msgspec.Struct, rename="camel", kw_only=True):
    """A queue and how to read it (Java: MessageQueueAssignment)."""

    attachments: dict[str, str] | None = None
    message_queue: QueueRef
    mode: str = "PULL"


class QueryAssignmentResponse(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 400; None while no route is known (Java: QueryAssignmentResponseBody)."""

    message_queue_assignments: list[QueueAssignment] | None = None


class MessageRequestMode(msgspec.Struct, rename="camel", kw_only=True):
    """Code 401 (Java: SetMessageRequestModeRequestBody)."""

    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0
    topic: str


class MessageRequestModeTable(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 402: by topic, then by group (Java: MessageRequestModeSerializeWrapper)."""

    message_request_mode_map: dict[str, dict[str, MessageRequestMode]] = {}
