"""Headers of staged batches, which are Fusee's own: stage, commit, drop, and ask how far an application is."""

from __future__ import annotations

from fusee.wire.fields import Header, Int32, Int64


class StageMessages(Header, kw_only=True):
    """Code 60001: part `sequence`, counted from 0, of a transaction; the body has its messages as a batch send has."""

    application: str
    batch_id: Int64
    transaction: str
    sequence: Int32
    topic: str
    queue_id: Int32
    born_timestamp_ms: Int64
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 0
    handed_at: Int32 | None = None
    """Where in the memory of this connection's handover the messages lie, when they are not in the body."""
    handed_size: Int32 | None = None


class StageMessagesResponse(Header, kw_only=True):
    """`already_committed`: the batch was committed before, so nothing is kept."""

    already_committed: bool = False


class CommitStagedBatch(Header, kw_only=True):
    """Code 60002: publish these transactions (the body) and nothing else of this batch.

    `one_shot`: no later batch of this application will come, so that it is forgotten sooner.
    """

    application: str
    batch_id: Int64
    one_shot: bool = False


class CommitStagedBatchResponse(Header, kw_only=True):
    """The last batch that is committed, and whether it was before this request."""

    already_committed: bool
    last_batch_id: Int64
    messages: Int64 = 0


class DropStagedBatch(Header, kw_only=True):
    """Code 60003: forget these transactions (the body)."""

    application: str


class DropStagedBatchResponse(Header, kw_only=True):
    """How many of them were there."""

    dropped: Int32


class GetStagedBatch(Header, kw_only=True):
    """Code 60004."""

    application: str


class GetStagedBatchResponse(Header, kw_only=True):
    """The last committed batch, -1 for none, and what is staged; the body is the commit as it was decided."""

    last_batch_id: Int64
    transactions: Int32
    staged_bytes: Int64
