"""The real client's decoder reads the records that we write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from fusee.message.batch import BatchElement, join_batch, split_batch
from fusee.message.compression import compress, compressed_sys_flag, decompress_message
from fusee.message.flags import CompressionType, SysFlag, TransactionType, with_host_families
from fusee.message.hosts import pack_host, unpack_host
from fusee.message.model import StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.record import body_crc, decode_record, encode_record, seal_record, with_crc_tail

if TYPE_CHECKING:
    from tests.interop.harness.programs import Judge

pytestmark = [pytest.mark.interop, pytest.mark.quick, pytest.mark.timeout(600)]

HOST_V4 = pack_host("192.0.2.17", 54321)
HOST_V6 = pack_host("2001:db8::17", 65535)
BODY = "a body, un corps, 消息体 ".encode() * 200
PROPERTIES = {"KEYS": "k1 k2", "TAGS": "TagA", "UNIQ_KEY": "7F0000010000000000000000000000FF", "é": "消息 🚀"}
ELEMENTS = [
    BatchElement(0, b"first", encode_properties({"KEYS": "one"})),
    BatchElement(-7, b"", b""),
    BatchElement(7, "troisième".encode(), encode_properties({"TAGS": "t", "n": "3"})),
]


def stored(
    *,
    body: bytes = BODY,
    sys_flag: int = 0,
    topic: str = "TopicTest",
    properties: bytes | None = None,
    born_host: bytes = HOST_V4,
    store_host: bytes = HOST_V4,
    version: int = 1,
) -> StoredMessage:
    """A message with every number different and near an edge."""
    return StoredMessage(
        topic=topic,
        queue_id=2**31 - 2,
        queue_offset=2**40 + 3,
        log_offset=2**50 + 5,
        body=body,
        properties_bytes=encode_properties(PROPERTIES) if properties is None else properties,
        flag=-11,
        sys_flag=with_host_families(sys_flag, born_host, store_host),
        born_timestamp_ms=1_700_000_000_013,
        born_host_bytes=born_host,
        store_timestamp_ms=1_700_000_000_017,
        store_host_bytes=store_host,
        reconsume_times=19,
        prepared_transaction_offset=2**45 + 23,
        body_crc=body_crc(body),
        version=version,
    )


def compressed(kind: CompressionType) -> StoredMessage:
    return stored(body=compress(BODY, kind), sys_flag=compressed_sys_flag(0, kind))


MESSAGES = {
    "plain": stored(),
    "without_body": stored(body=b""),
    "without_properties": stored(properties=b""),
    "from_ipv6": stored(born_host=HOST_V6),
    "stored_at_ipv6": stored(store_host=HOST_V6),
    "all_ipv6": stored(born_host=HOST_V6, store_host=HOST_V6),
    "longest_topic_of_version_1": stored(topic="t" * 127),
    "version_2": stored(topic="%RETRY%" + "g" * 250, version=2),
    "large_properties": stored(properties=encode_properties({"p": "v" * 32_000})),
    **{f"compressed_with_{kind.name.lower()}": compressed(kind) for kind in CompressionType},
    "compressed_without_type": stored(body=compress(BODY), sys_flag=SysFlag.COMPRESSED),
    **{f"transaction_{kind.name.lower()}": stored(sys_flag=kind.value) for kind in TransactionType},
    "inner_batch": stored(body=join_batch(ELEMENTS), sys_flag=SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_java_reads_our_record(record_judge: Judge, name: str) -> None:
    record = encode_record(MESSAGES[name])
    assert record_judge.read(record) == expected(decode_record(record))


def test_java_reads_a_sealed_record(record_judge: Judge) -> None:
    message = stored(properties=with_crc_tail(encode_properties(PROPERTIES)))
    answer = record_judge.read(seal_record(encode_record(message)))
    assert answer["event"] == "decoded"
    assert {name: answer["properties"][name] for name in PROPERTIES} == PROPERTIES


def test_java_refuses_a_record_with_a_damaged_body(record_judge: Judge) -> None:
    damaged = msgspec.structs.replace(stored(), body_crc=body_crc(BODY) ^ 1)
    assert record_judge.read(encode_record(damaged))["event"] == "rejected"


def expected(message: StoredMessage) -> dict[str, Any]:
    plain = decompress_message(message)
    batch = message.sys_flag & (SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)
    return {
        "event": "decoded",
        "topic": message.topic,
        "unread": 0,
        "storeSize": message.store_size,
        "bodyCrc": message.body_crc,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "logOffset": message.log_offset,
        "sysFlag": plain.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": java_host(message.born_host_bytes),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": java_host(message.store_host_bytes),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "body": plain.body.hex() or None,
        "msgId": message.offset_id,
        "properties": dict(message.properties),
        "inner": [
            {
                "body": element.body.hex(),
                "flag": element.flag,
                # Java's constructor of a message sets this one.
                "properties": {"WAIT": "true", **element.properties},
                "queueOffset": message.queue_offset + place,
            }
            for place, element in enumerate(split_batch(message.body))
        ]
        if batch
        else None,
    }


def java_host(host: bytes) -> str:
    ip, port = unpack_host(host)
    # Java writes an IPv6 address in full, without leading zeros.
    words = [f"{int.from_bytes(host[at : at + 2], 'big'):x}" for at in range(0, 16, 2)]
    return f"{':'.join(words) if ':' in ip else ip}|{port}"
