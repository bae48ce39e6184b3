"""Topics as brokers announce them: configuration, data version, and the body of a registration.

A broker announces its topics in one of two forms (Java: RegisterBrokerBody):

* JSON, an object with `filterServerList` and `topicConfigSerializeWrapper`;
* compressed, one zlib stream of length-prefixed parts, all integers 32 bits and big-endian:

      length, DataVersion as JSON count of topics, then per topic: length, "name readQueues writeQueues
      perm filterType attributesJSON" length, filter server list as a JSON array count of queue mappings,
      then per mapping: length, TopicQueueMappingInfo as JSON   (senders from 5.0.0 on)

The text form of a topic has neither `topicSysFlag` nor `order`; they read back as 0 and false. The header
field `compressed` is not to be trusted: Java 5.5.0 compresses and still says false, and its own name
server then refuses the body. `decode_register_body` goes by the first byte instead (`{` or zlib's 0x78).

Fields are declared in the alphabetical order of their wire names: the order in which Java writes them.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Any, Final

import msgspec

from fusee.errors import FieldError, ProtocolError
from fusee.wire.fields import Int32, Int64
from fusee.wire.lenient_json import decode_json, dumps_fastjson, loads

PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

UNIT_FLAG: Final = 1
UNIT_SUBSCRIPTION_FLAG: Final = 2
"""Bits of `topic_sys_flag`."""

REGISTER_BODY_SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes that a compressed registration may grow to. A million topics of usual length fit."""

# Release numbers of the sender, compared with the version in its command header.
_REGISTER_BODY_VERSION: Final = 37
_MAPPING_VERSION: Final = 413

_ZLIB_FIRST_BYTE: Final = 0x78
_INT32: Final = Struct(">i")


class DataVersion(msgspec.Struct, rename="camel", kw_only=True, frozen=True, gc=False):
    """How new a table is. Two versions are the same table only when all three numbers agree."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0


class TopicConfig(msgspec.Struct, rename="camel", kw_only=True):
    """One topic on one broker."""

    attributes: dict[str, str] = {}
    order: bool = False
    perm: Int32 = PERM_READ | PERM_WRITE
    read_queue_nums: Int32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 16


class TopicQueueMappingInfo(msgspec.Struct, rename="camel", kw_only=True):
    """Which logical queues of a static topic a broker hosts: logical to physical queue id."""

    bname: str = ""
    curr_id_map: dict[int, int] = {}
    dirty: bool = False
    epoch: Int64 = 0
    scope: str = "__global__"
    topic: str = ""
    total_queues: Int32 = 0


class TopicConfigTable(msgspec.Struct, rename="camel", kw_only=True):
    """All topics of a broker, or those that changed (Java: TopicConfigAndMappingSerializeWrapper)."""

    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = {}
    topic_queue_mapping_detail_map: dict[str, Any] = {}
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}


class RegisterBrokerBody(msgspec.Struct, rename="camel", kw_only=True):
    """What a broker says of itself beyond the header: its topics and its filter servers."""

    filter_server_list: list[str] | None = None
    """None leaves the known list as it is; empty removes it."""
    topic_config_serialize_wrapper: TopicConfigTable = msgspec.field(default_factory=TopicConfigTable)


class TopicList(msgspec.Struct, rename="camel", kw_only=True):
    """Names of topics, and for system topics the address of some broker."""

    broker_addr: str | None = None
    topic_list: list[str] = []


def decode_data_version(body: bytes) -> DataVersion:
    """The data version in this body. Raises ProtocolError when it is none."""
    return decode_json(body, DataVersion)


def encode_data_version(version: DataVersion) -> bytes:
    """The bytes Java writes for this version."""
    return dumps_fastjson(version)


def decode_topic_list(body: bytes) -> TopicList:
    """The topic list in this body."""
    return decode_json(body, TopicList)


def encode_topic_list(topics: TopicList) -> bytes:
    """The bytes Java writes for this list, in the order given."""
    return dumps_fastjson(topics)


def decode_register_body(
    body: bytes, *, compressed: bool, version: int, size_max: int = REGISTER_BODY_SIZE_MAX
) -> RegisterBrokerBody:
    """The registration in this body, whatever its form.

    Raises FieldError or ProtocolError when it is damaged, or larger than `size_max` when decompressed.

    `compressed` is the header's word, which decides only when the first byte does not. `version` is the
    sender's release number. An empty body is a broker without topics.
    """
    if not body:
        return RegisterBrokerBody(filter_server_list=[])
    first = body.lstrip()[:1]
    if first == b"{":
        if version < _REGISTER_BODY_VERSION:
            return RegisterBrokerBody(topic_config_serialize_wrapper=decode_json(body, TopicConfigTable))
        return decode_json(body, RegisterBrokerBody)
    if compressed or body[0] == _ZLIB_FIRST_BYTE:
        return _read_compressed(_inflate(body, size_max), with_mappings=version >= _MAPPING_VERSION)
    raise FieldError(f"register body of {len(body)} bytes begins with {first!r}: neither JSON nor a zlib stream")


def encode_register_body(body: RegisterBrokerBody, *, compress: bool = False) -> bytes:
    """The bytes of this registration; compressed ones must be sent with the header field `compressed`."""
    if not compress:
        return dumps_fastjson(body)
    table = body.topic_config_serialize_wrapper
    parts = [_with_length(dumps_fastjson(table.data_version)), _INT32.pack(len(table.topic_config_table))]
    parts.extend(_with_length(topic_to_text(topic)) for topic in table.topic_config_table.values())
    parts.append(_with_length(dumps_fastjson(body.filter_server_list or [])))
    mappings = table.topic_queue_mapping_info_map
    parts.append(_INT32.pack(len(mappings)))
    parts.extend(_with_length(dumps_fastjson(mapping)) for mapping in mappings.values())
    return zlib.compress(b"".join(parts), 9)


def topic_to_text(topic: TopicConfig) -> bytes:
    """One line of the compressed form."""
    return b"%s %d %d %d %s %s" % (
        topic.topic_name.encode(),
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type.encode(),
        dumps_fastjson(topic.attributes),
    )


def topic_from_text(text: str) -> TopicConfig:
    """The topic in one line of the compressed form. Raises FieldError naming the line."""
    parts = text.split(" ", 5)
    try:
        name, read_queues, write_queues, perm, filter_type = parts[:5]
        return msgspec.convert(
            {
                "topicName": name,
                "readQueueNums": read_queues,
                "writeQueueNums": write_queues,
                "perm": perm,
                "topicFilterType": filter_type,
                "attributes": _attributes(parts[5] if len(parts) > 5 else ""),
            },
            TopicConfig,
            strict=False,
        )
    except (ValueError, msgspec.ValidationError) as error:
        raise FieldError(f"register body has a malformed topic {text[:200]!r}: {error}") from error


def _attributes(text: str) -> dict[str, str]:
    try:
        # Senders before 5.0 write nothing here.
        return decode_json(text.encode(), dict[str, str]) if text else {}
    except ProtocolError:
        return {}  # as Java does: a topic is not lost for the sake of its attributes


def _with_length(part: bytes) -> bytes:
    return _INT32.pack(len(part)) + part


def _inflate(body: bytes, size_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, size_max + 1)
    except zlib.error as error:
        raise FieldError(f"register body is not a zlib stream: {error}") from error
    if len(data) > size_max:
        raise FieldError(f"register body is larger than {size_max} bytes when decompressed")
    if not inflater.eof:
        raise FieldError("register body ends before its zlib stream does")
    return data


def _read_compressed(data: bytes, *, with_mappings: bool) -> RegisterBrokerBody:
    parts = _Parts(data)
    table = TopicConfigTable(data_version=decode_json(parts.take(), DataVersion))
    for _ in range(parts.count()):
        topic = topic_from_text(parts.take_text())
        table.topic_config_table[topic.topic_name] = topic
    filter_servers = loads(parts.take())
    if with_mappings:
        for _ in range(parts.count()):
            mapping = decode_json(parts.take(), TopicQueueMappingInfo)
            table.topic_queue_mapping_info_map[mapping.topic] = mapping
    return RegisterBrokerBody(
        filter_server_list=[str(server) for server in filter_servers or ()],
        topic_config_serialize_wrapper=table,
    )


class _Parts:
    """Reads counts and length-prefixed parts one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        end = self._position + 4
        if end > len(self._data):
            raise FieldError(f"register body ends at byte {len(self._data)}, inside an integer")
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position = end
        # Each counted part needs at least its own length, so a lying count cannot make us loop for long.
        if value < 0 or value > len(self._data):
            raise FieldError(f"register body has the length {value} at byte {end - 4} of {len(self._data)}")
        return int(value)

    def take(self) -> bytes:
        size = self.count()
        end = self._position + size
        if end > len(self._data):
            raise FieldError(f"register body ends at byte {len(self._data)}, inside a part of {size} bytes")
        part = self._data[self._position : end]
        self._position = end
        return part

    def take_text(self) -> str:
        part = self.take()
        try:
            return part.decode()
        except UnicodeDecodeError as error:
            raise FieldError(f"register body has text that is not UTF-8: {part[:60]!r}") from error
