"""What tests of staged batches ask: requests over a link, and what came of them."""

from __future__ import annotations

import msgspec

from fusee.message.batch import BatchElement, join_batch
from fusee.message.properties import encode_properties
from fusee.wire.bodies.staged import StagedPart, StagedParts, StagedTransactions
from fusee.wire.bodies.topic import TopicConfig
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.headers.staged import (
    CommitStagedBatch,
    CommitStagedBatchResponse,
    DropStagedBatch,
    GetStagedBatch,
    GetStagedBatchResponse,
    StageMessages,
)
from tests.broker.log_world import LogWorld

APP = "query-1"


def elements(*bodies: bytes, **properties: str) -> bytes:
    raw = encode_properties(properties)
    return join_batch([BatchElement(0, body, raw) for body in bodies])


def make_topics(world: LogWorld, *topics: str) -> None:
    for topic in topics or ("orders",):
        if world.topics.get(topic) is None:
            world.topics.put(TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4))


def stage(
    world: LogWorld,
    batch_id: int,
    transaction: str,
    *bodies: bytes,
    sequence: int = 0,
    topic: str = "orders",
    queue_id: int = 0,
    application: str = APP,
    body: bytes | None = None,
    **properties: str,
) -> Command:
    header = StageMessages(
        application=application,
        batch_id=batch_id,
        transaction=transaction,
        sequence=sequence,
        topic=topic,
        queue_id=queue_id,
        born_timestamp_ms=1_699_999_999_000,
    )
    raw = elements(*bodies, **properties) if body is None else body
    answer = world.ask(RequestCode.STAGE_MESSAGES, header, body=raw)
    assert answer is not None
    return answer


def commit(
    world: LogWorld,
    batch_id: int,
    parts: dict[str, int],
    *,
    application: str = APP,
    others: dict[str, dict[str, int]] | None = None,
    one_shot: bool = False,
) -> Command:
    header = CommitStagedBatch(application=application, batch_id=batch_id, one_shot=one_shot)
    body = StagedParts(
        transactions=[StagedPart(transaction=name, parts=count) for name, count in parts.items()],
        others={
            broker: [StagedPart(transaction=name, parts=count) for name, count in each.items()]
            for broker, each in (others or {}).items()
        },
    )
    answer = world.ask(RequestCode.COMMIT_STAGED_BATCH, header, body=msgspec.json.encode(body))
    assert answer is not None, "the commit was not answered"
    return answer


def committed(world: LogWorld, batch_id: int, parts: dict[str, int], *, application: str = APP) -> bool:
    """Commit with success; whether it was the first time."""
    answer = commit(world, batch_id, parts, application=application)
    assert answer.code == ResponseCode.SUCCESS, answer
    return not answer.read(CommitStagedBatchResponse).already_committed


def drop(world: LogWorld, *transactions: str, application: str = APP) -> Command:
    body = msgspec.json.encode(StagedTransactions(transactions=list(transactions)))
    answer = world.ask(RequestCode.DROP_STAGED_BATCH, DropStagedBatch(application=application), body=body)
    assert answer is not None
    return answer


def asked(world: LogWorld, application: str = APP) -> tuple[GetStagedBatchResponse, StagedParts]:
    answer = world.ask(RequestCode.GET_STAGED_BATCH, GetStagedBatch(application=application))
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    return answer.read(GetStagedBatchResponse), msgspec.json.decode(answer.body, type=StagedParts)
