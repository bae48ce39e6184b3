"""Steps that recur, spelled short: sends, pulls, heartbeats, offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusee.message.batch import BatchElement, join_batch
from fusee.message.hashing import java_string_hash
from fusee.message.properties import encode_properties
from fusee.wire.codes import LanguageCode
from fusee.wire.codes import RequestCode as Rq
from fusee.wire.command import PROTOCOL_VERSION
from tests.interop.differential.steps import (
    ADMIN,
    Ask,
    Begin,
    Request,
    Tell,
    log_offset_in_id,
    message_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fusee.wire.command import Command
    from tests.interop.differential.steps import Body, Fields, Outcome, Value

# A time long ago, so that it is compared and not taken for now.
BORN_MS: Final = 1_400_000_000_000
PRODUCERS: Final = "d_producers"

# Flags of a pull.
COMMIT: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4
CLASS_FILTER: Final = 8
LITE: Final = 16


def ask(
    name: str,
    code: int,
    *,
    body: Body = b"",
    via: str = ADMIN,
    until: Callable[[Command], bool] | None = None,
    keep: Mapping[str, Callable[[Command], Any]] | None = None,
    view: Callable[[Outcome], Any] | None = None,
    silent: bool = False,
    version: int = PROTOCOL_VERSION,
    language: LanguageCode = LanguageCode.JAVA,
    **fields: Value,
) -> Ask:
    """A question; what is not an option is a field of the header, as it is spelled on the wire."""
    return Ask(
        name=name,
        via=via,
        request=Request(code=code, fields=fields, body=body, version=version, language=language),
        until=until,
        keep=keep or {},
        view=view,
        silent=silent,
    )


def tell(name: str, code: int, *, body: Body = b"", via: str = ADMIN, **fields: Value) -> Tell:
    return Tell(name=name, via=via, request=Request(code=code, fields=fields, body=body))


def as_json(value: Any) -> bytes:
    return msgspec.json.encode(value)


# Sending


def send(
    name: str,
    topic: str | None,
    queue_id: Value = 0,
    *,
    body: bytes = b"body",
    properties: Mapping[str, str] | str | None = None,
    key: str | None = "",
    long_names: bool = False,
    code: int | None = None,
    remember: str | None = None,
    via: str = ADMIN,
    version: int = PROTOCOL_VERSION,
    view: Callable[[Outcome], Any] | None = None,
    **more: Value,
) -> Ask:
    """A send. `key` is its unique key: the name of the step unless given, None for none at all.

    The message's place is remembered as `remember`.log_offset, .id and .queue_offset.
    """
    if isinstance(properties, str):
        text = properties
    else:
        unique = {} if key is None else {"UNIQ_KEY": key or name.replace(" ", "_")}
        text = encode_properties({**(properties or {}), **unique}).decode()
    said: dict[str, Value] = {
        "producerGroup": PRODUCERS,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": BORN_MS,
        "flag": 0,
        "properties": text,
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
        **more,
    }
    keep = {}
    if remember is not None:
        keep = {
            f"{remember}.log_offset": log_offset_in_id,
            f"{remember}.id": message_id,
            f"{remember}.queue_offset": lambda answer: int(answer.all_fields()["queueOffset"]),
        }
    if code is None:
        code = Rq.SEND_MESSAGE if long_names else Rq.SEND_MESSAGE_V2
    fields = said if long_names else {_SHORT.get(field, field): value for field, value in said.items()}
    request = Request(code=code, fields=fields, body=body, version=version)
    return Ask(name=name, via=via, request=request, keep=keep, view=view)


_SHORT: Final = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "brokerName": "n",
}


def batch_of(*bodies: bytes, keys: str = "B", tags: str | None = None) -> bytes:
    """The body of a batch of small messages with unique keys."""
    elements = []
    for index, body in enumerate(bodies):
        properties = {"UNIQ_KEY": f"{keys}-{index}", "KEYS": f"{keys}-key"}
        if tags is not None:
            properties["TAGS"] = tags
        elements.append(BatchElement(index, body, encode_properties(properties)))
    return join_batch(elements)


def send_batch(name: str, topic: str, queue_id: int = 0, *, body: bytes, **more: Any) -> Ask:
    return send(name, topic, queue_id, body=body, **{"code": Rq.SEND_BATCH_MESSAGE, "batch": True, **more})


# Reading


def pull_fields(
    topic: str | None,
    queue_id: Value = 0,
    queue_offset: Value = 0,
    *,
    group: str | None = "d_readers",
    subscription: str | None = "*",
    **more: Value,
) -> Fields:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": subscription,
        "subVersion": 0,
        **more,
    }


def pull(
    name: str,
    topic: str | None,
    queue_id: Value = 0,
    queue_offset: Value = 0,
    *,
    via: str = ADMIN,
    code: int = Rq.PULL_MESSAGE,
    until: Callable[[Command], bool] | None = None,
    keep: Mapping[str, Callable[[Command], Any]] | None = None,
    view: Callable[[Outcome], Any] | None = None,
    **more: Any,
) -> Ask:
    """A pull that brings its own subscription unless told otherwise."""
    request = Request(code=code, fields=pull_fields(topic, queue_id, queue_offset, **more))
    return Ask(name=name, via=via, request=request, until=until, keep=keep or {}, view=view)


def begin_pull(name: str, topic: str, queue_id: int = 0, queue_offset: int = 0, *, via: str, **more: Any) -> Begin:
    """A pull that waits for a message."""
    fields = pull_fields(
        topic, queue_id, queue_offset, **{"sysFlag": SUBSCRIPTION | SUSPEND, "suspendTimeoutMillis": 15_000, **more}
    )
    return Begin(name=name, via=via, request=Request(code=Rq.PULL_MESSAGE, fields=fields))


def max_offset(name: str, topic: str, queue_id: int = 0, **more: Any) -> Ask:
    return ask(name, Rq.GET_MAX_OFFSET, topic=topic, queueId=queue_id, **more)


def committed(name: str, group: str, topic: str, queue_id: int = 0, **more: Any) -> Ask:
    return ask(name, Rq.QUERY_CONSUMER_OFFSET, consumerGroup=group, topic=topic, queueId=queue_id, **more)


def commit(name: str, group: str, topic: str, queue_id: int, offset: int, **more: Any) -> Ask:
    fields: Any = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset, **more}
    return ask(name, Rq.UPDATE_CONSUMER_OFFSET, **fields)


# Clients


def subscription(topic: str, text: str = "*", *, version: int = 1, kind: str = "TAG") -> dict[str, Any]:
    tags = [] if text == "*" or kind != "TAG" else [tag.strip() for tag in text.split("||")]
    return {
        "classFilterMode": False,
        "codeSet": [java_string_hash(tag) for tag in tags],
        "expressionType": kind,
        "subString": text,
        "subVersion": version,
        "tagsSet": tags,
        "topic": topic,
    }


def consumer(
    group: str,
    subscriptions: Sequence[dict[str, Any]],
    *,
    model: str = "CLUSTERING",
    kind: str = "CONSUME_PASSIVELY",
    where: str = "CONSUME_FROM_LAST_OFFSET",
) -> dict[str, Any]:
    return {
        "consumeFromWhere": where,
        "consumeType": kind,
        "groupName": group,
        "messageModel": model,
        "subscriptionDataSet": list(subscriptions),
        "unitMode": False,
    }


def heartbeat(
    name: str,
    client_id: str,
    *,
    via: str,
    consumers: Sequence[dict[str, Any]] = (),
    producers: Sequence[str] = (),
    fingerprint: int = 0,
    without_subscriptions: bool = False,
    **more: Any,
) -> Ask:
    body = {
        "clientID": client_id,
        "consumerDataSet": list(consumers),
        "heartbeatFingerprint": fingerprint,
        "producerDataSet": [{"groupName": group} for group in producers],
        "withoutSub": without_subscriptions,
    }
    return ask(name, Rq.HEART_BEAT, via=via, body=as_json(body), **more)


def queue(topic: str, queue_id: int = 0, broker_name: str = "broker-a") -> dict[str, Any]:
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


# Administration


def create_topic(name: str, topic: str | None, *, queues: int = 4, **more: Any) -> Ask:
    fields: dict[str, Any] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        **more,
    }
    return ask(name, Rq.UPDATE_AND_CREATE_TOPIC, **fields)


def group_settings(group: str | None, **more: Any) -> dict[str, Any]:
    return {"groupName": group, **more}


def create_group(name: str, group: str | None, *, settings: Mapping[str, Any] | None = None) -> Ask:
    return ask(name, Rq.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=as_json(group_settings(group, **(settings or {}))))
