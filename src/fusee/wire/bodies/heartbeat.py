"""Bodies by which clients tell a broker who they are and what they want.

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from fusee.errors import ProtocolError
from fusee.wire.fields import Int32, Int64
from fusee.wire.lenient_json import decode_json, dumps_fastjson, loads

_POSITIONS: Final = {
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE"),
}


class SubscriptionData(msgspec.Struct, rename="camel", kw_only=True):
    """What a group wants of a topic: tags as text and as hashes, or an SQL92 expression."""

    class_filter_mode: bool = False
    code_set: list[Int32] = []
    expression_type: str | None = "TAG"
    expression: str = msgspec.field(default="*", name="subString")
    sub_version: Int64 = 0
    tags_set: list[str] = []
    topic: str


class ProducerData(msgspec.Struct, rename="camel", kw_only=True):
    """One producer group of a client."""

    group_name: str


class ConsumerData(msgspec.Struct, rename="camel", kw_only=True):
    """One consumer group of a client."""

    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    consume_type: Literal["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"] = "CONSUME_PASSIVELY"
    group_name: str
    message_model: Literal["BROADCASTING", "CLUSTERING", "LITE_SELECTIVE"] = "CLUSTERING"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(msgspec.Struct, rename="camel", kw_only=True):
    """Code 34. With `without_sub` the subscriptions were left out and must not clear those known."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 = 0
    producer_data_set: list[ProducerData] = []
    without_sub: bool = False


def decode_heartbeat(body: bytes) -> HeartbeatData:
    """The heartbeat in this body. Raises ProtocolError when it is none.

    The C++ client writes Java's enumerations as their positions.
    """
    try:
        return decode_json(body, HeartbeatData)
    except ProtocolError:
        document = loads(body)
        consumers = document.get("consumerDataSet") if isinstance(document, dict) else None
        if not isinstance(consumers, list):
            raise
        for consumer in consumers:
            for field, names in _POSITIONS.items() if isinstance(consumer, dict) else ():
                position = consumer.get(field)
                if type(position) is int and 0 <= position < len(names):
                    consumer[field] = names[position]
        return decode_json(dumps_fastjson(document), HeartbeatData)


class CheckClientRequest(msgspec.Struct, rename="camel", kw_only=True):
    """Code 46 (Java: CheckClientRequestBody)."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class ConsumerIds(msgspec.Struct, rename="camel", kw_only=True):
    """Answer to code 38, in any order (Java: GetConsumerListByGroupResponseBody)."""

    consumer_id_list: list[str] = []
