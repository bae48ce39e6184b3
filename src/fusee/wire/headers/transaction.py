"""Headers of transactions: the producer's verdict, the broker's question, and asking again by hand."""

from __future__ import annotations

import msgspec

from fusee.wire.fields import Header, Int32, Int64, RpcHeader


class EndTransaction(RpcHeader, kw_only=True):
    """Code 37; `commit_or_rollback` 0 unknown, 8 commit, 12 roll back (Java: EndTransactionRequestHeader)."""

    topic: str | None = None
    producer_group: str
    half_queue_offset: Int64 = msgspec.field(name="tranStateTableOffset")
    log_offset: Int64 = msgspec.field(name="commitLogOffset")
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionState(RpcHeader, kw_only=True):
    """Code 39, broker to producer (Java: CheckTransactionStateRequestHeader)."""

    topic: str | None = None
    half_queue_offset: Int64 = msgspec.field(name="tranStateTableOffset")
    log_offset: Int64 = msgspec.field(name="commitLogOffset")
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessage(Header, kw_only=True):
    """Code 323 (Java: ResumeCheckHalfMessageRequestHeader)."""

    topic: str | None = None
    msg_id: str | None = None
