"""Records of staged batches: the staged messages, and what was decided about them (docs/formats/staged_batches.md).

Both kinds are ordinary records of two system topics, so that they reach slaves with the log and any RocketMQ store can
open it:

    rmq_sys_FUSEE_STAGED      one *part* for each request: its body has messages as a batch send has them, its
                              properties say whose they are and where they are to go
    rmq_sys_FUSEE_STAGED_OP   one record for each event, a JSON body, told apart by its tag:

        commit       the batch of an application is decided: these parts are published, everything else of it is void
        done         all messages of a commit are in their queues
        drop         these transactions are forgotten
        checkpoint   the last batch of every application, and from where on the two queues must be read

A published message has the log offset of its part in the field of the prepared transaction, which nothing else uses in
a message that is no transaction. It tells after a crash what is published already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from fusee.broker.rewrites import number_of, real_place, with_real_place
from fusee.errors import StoreCorruptError
from fusee.message.flags import with_host_families
from fusee.message.hashing import tags_code
from fusee.message.properties import find_property, find_tag
from fusee.message.topics import STAGED_OP_TOPIC, STAGED_TOPIC
from fusee.store.new_record import NewRecord
from fusee.wire.bodies.staged import StagedPart

if TYPE_CHECKING:
    from fusee.message.model import StoredMessage
    from fusee.store.results import Dispatched

STAGED_QUEUE: Final = 0
_APPLICATION: Final = b"STAGED_APP"
_BATCH: Final = b"STAGED_BATCH"
_TRANSACTION: Final = b"STAGED_TXN"
_SEQUENCE: Final = b"STAGED_SEQ"
_COUNT: Final = b"STAGED_COUNT"


class Commit(msgspec.Struct, rename="camel", tag_field="op", tag="commit"):
    """A decision: `parts` are the log offsets of what is published, in that order.

    `others` has what the decision is about at other brokers, by name.
    """

    application: str
    batch_id: int
    transactions: list[StagedPart]
    parts: list[int]
    others: dict[str, list[StagedPart]] = {}
    one_shot: bool = False


class Done(msgspec.Struct, rename="camel", tag_field="op", tag="done"):
    """The commit at this log offset is published."""

    commit_offset: int


class Drop(msgspec.Struct, rename="camel", tag_field="op", tag="drop"):
    """These transactions are forgotten."""

    application: str
    transactions: list[str]


class Fence(msgspec.Struct, rename="camel", array_like=True, frozen=True):
    """The last committed batch of an application, and where its commit stands in the log."""

    application: str
    batch_id: int
    commit_offset: int
    time_ms: int
    one_shot: bool = False


class Checkpoint(msgspec.Struct, rename="camel", tag_field="op", tag="checkpoint"):
    """What was known here; the rest is in the two queues from these queue offsets on."""

    staged_offset: int
    op_offset: int
    fences: list[Fence]


Op: TypeAlias = Commit | Done | Drop | Checkpoint

_decode_op: Final[msgspec.json.Decoder[Op]] = msgspec.json.Decoder(Op)
_encode_op = msgspec.json.Encoder().encode

CHECKPOINT_TAG_CODE: Final = tags_code(b"checkpoint")
FENCE_SIZE: Final = 96
"""Bytes that a fence takes in a checkpoint at most, beside the application's name."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """Staged messages of one request, as their record tells."""

    application: str
    batch_id: int
    transaction: str
    sequence: int
    count: int
    topic: str
    queue_id: int
    log_offset: int
    queue_offset: int
    size: int
    time_ms: int


def part_record(
    *,
    application: str,
    batch_id: int,
    transaction: str,
    sequence: int,
    count: int,
    topic: str,
    queue_id: int,
    body: bytes,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_host: bytes,
) -> NewRecord:
    """The record of a part. `sys_flag` is that of the messages."""
    properties = b"%b\x01%b\x02%b\x01%d\x02%b\x01%b\x02%b\x01%d\x02%b\x01%d\x02" % (
        _APPLICATION,
        application.encode(),
        _BATCH,
        batch_id,
        _TRANSACTION,
        transaction.encode(),
        _SEQUENCE,
        sequence,
        _COUNT,
        count,
    )
    return NewRecord(
        STAGED_TOPIC,
        STAGED_QUEUE,
        body,
        with_real_place(properties, topic, queue_id),
        0,
        with_host_families(sys_flag, born_host, store_host),
        born_timestamp_ms,
        born_host,
        store_host,
    )


def part_of(record: Dispatched) -> Part:
    """What a record of the staged topic says. Raises StoreCorruptError when it is not ours."""
    raw = record.properties
    application, transaction = find_property(raw, _APPLICATION), find_property(raw, _TRANSACTION)
    batch_id, sequence, count = number_of(raw, _BATCH), number_of(raw, _SEQUENCE), number_of(raw, _COUNT)
    place = real_place(raw)
    if (
        application is None
        or transaction is None
        or batch_id is None
        or sequence is None
        or count is None
        or place is None
    ):
        raise StoreCorruptError(f"{STAGED_TOPIC}: the record at log offset {record.log_offset} cannot be read")
    return Part(
        application.decode(),
        batch_id,
        transaction.decode(),
        sequence,
        count,
        *place,
        record.log_offset,
        record.queue_offset,
        record.size,
        record.store_timestamp_ms,
    )


def op_record(op: Op, *, host: bytes, now_ms: int) -> NewRecord:
    """The record of an event."""
    tag = type(op).__name__.lower().encode()
    return NewRecord(
        STAGED_OP_TOPIC,
        STAGED_QUEUE,
        _encode_op(op),
        b"TAGS\x01%b\x02WAIT\x01true\x02" % tag,
        sys_flag=with_host_families(0, host, host),
        born_timestamp_ms=now_ms,
        born_host=host,
        store_host=host,
    )


def op_of(message: StoredMessage) -> Op:
    """What a record of the op topic says. Raises StoreCorruptError when it is not ours."""
    try:
        return _decode_op.decode(message.body)
    except msgspec.MsgspecError as error:
        tag = (find_tag(message.properties_bytes) or b"").decode("utf-8", "replace")
        raise StoreCorruptError(
            f"{STAGED_OP_TOPIC}: the {tag or 'untagged'} record at log offset {message.log_offset} cannot be read: "
            f"{error}"
        ) from error
