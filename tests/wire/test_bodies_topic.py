"""Topic bodies: Java's bytes, both forms of a registration, and damage of every kind."""

from __future__ import annotations

import zlib
from contextlib import suppress
from struct import pack

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fusee.errors import FieldError, FuseeError
from fusee.wire.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicQueueMappingInfo,
    decode_data_version,
    decode_register_body,
    decode_topic_list,
    encode_data_version,
    encode_register_body,
    encode_topic_list,
    topic_from_text,
    topic_to_text,
)
from fusee.wire.codes import RequestCode
from tests.golden import GoldenFrame, frames

REGISTRATIONS = [frame for frame in frames() if frame.role == "request" and frame.code == RequestCode.REGISTER_BROKER]


def is_compressed(frame: GoldenFrame) -> bool:
    return frame.body_bytes[:1] == b"x"


def read(body: bytes, *, compressed: bool = False, version: int = 513) -> RegisterBrokerBody:
    return decode_register_body(body, compressed=compressed, version=version)


def test_plain_registrations_of_java_read_and_write_back_to_the_same_bytes() -> None:
    plain = [frame for frame in REGISTRATIONS if not is_compressed(frame)]
    assert len(plain) > 10
    for frame in plain:
        body = read(frame.body_bytes)
        assert body.topic_config_serialize_wrapper.topic_config_table
        assert encode_register_body(body) == frame.body_bytes, frame.id


def test_compressed_registrations_of_java_read_and_write_back_to_the_same_bytes() -> None:
    compressed = [frame for frame in REGISTRATIONS if is_compressed(frame)]
    assert len(compressed) == 4
    for frame in compressed:
        body = read(frame.body_bytes, compressed=True)
        assert body.topic_config_serialize_wrapper.topic_config_table
        again = encode_register_body(body, compress=True)
        assert zlib.decompress(again) == zlib.decompress(frame.body_bytes), frame.id


def test_first_byte_decides_the_form_whatever_the_header_says() -> None:
    for frame in REGISTRATIONS:
        assert read(frame.body_bytes, compressed=True) == read(frame.body_bytes, compressed=False)


def test_data_versions_of_java_read_and_write_back_to_the_same_bytes() -> None:
    bodies = [
        frame.body_bytes
        for frame in frames()
        if RequestCode.QUERY_DATA_VERSION in (frame.code, frame.request_code) and frame.body_length
    ]
    assert len(bodies) > 10
    for body in bodies:
        version = decode_data_version(body)
        assert version.timestamp > 0
        assert encode_data_version(version) == body


def test_topic_lists_of_java_read_and_write_back_to_the_same_bytes() -> None:
    lists = {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER}
    bodies = [f.body_bytes for f in frames() if f.role == "response" and f.request_code in lists]
    assert len(bodies) > 5
    for body in bodies:
        assert encode_topic_list(decode_topic_list(body)) == body


def test_topic_list_with_broker_address() -> None:
    body = encode_topic_list(TopicList(broker_addr="h:1", topic_list=["t"]))
    assert body == b'{"brokerAddr":"h:1","topicList":["t"]}'


def test_empty_registration_is_a_broker_without_topics() -> None:
    assert read(b"") == RegisterBrokerBody(filter_server_list=[])


def test_registration_of_ancient_broker_is_the_topic_table_alone() -> None:
    body = b'{"dataVersion":{"counter":1},"topicConfigTable":{"t":{"topicName":"t","perm":4}}}'
    registration = read(body, version=36)
    table = registration.topic_config_serialize_wrapper
    assert table.topic_config_table == {"t": TopicConfig(topic_name="t", perm=4)}
    assert table.data_version == DataVersion(counter=1)
    assert registration.filter_server_list is None


def test_compressed_registration_before_5_has_no_mappings() -> None:
    body = RegisterBrokerBody(
        filter_server_list=["f"],
        topic_config_serialize_wrapper=TopicConfigTable(topic_config_table={"t": TopicConfig(topic_name="t")}),
    )
    inflated = zlib.decompress(encode_register_body(body, compress=True))
    old = zlib.compress(inflated[:-4])
    assert read(old, compressed=True, version=411) == body
    with pytest.raises(FieldError, match="inside an integer"):
        read(old, compressed=True, version=413)


# An object with nothing but a `$ref` text is a reference in this dialect.
NAMES = st.text(st.characters(blacklist_categories=["Z", "C"]), min_size=1, max_size=10).filter("$ref".__ne__)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
TOPICS = st.builds(
    TopicConfig,
    attributes=st.dictionaries(NAMES, st.text(max_size=5), max_size=2),
    perm=NUMBERS,
    read_queue_nums=NUMBERS,
    write_queue_nums=NUMBERS,
    topic_filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    topic_name=NAMES,
)
VERSIONS = st.builds(
    DataVersion,
    counter=st.integers(0, 2**63 - 1),
    state_version=st.integers(0, 2**63 - 1),
    timestamp=st.integers(0, 2**63 - 1),
)
MAPPINGS = st.builds(
    TopicQueueMappingInfo, topic=NAMES, bname=NAMES, curr_id_map=st.dictionaries(st.integers(0, 9), st.integers(0, 9))
)


@st.composite
def registrations(draw: st.DrawFn) -> RegisterBrokerBody:
    topics = draw(st.lists(TOPICS, max_size=4))
    mappings = draw(st.lists(MAPPINGS, max_size=2))
    return RegisterBrokerBody(
        filter_server_list=draw(st.lists(NAMES, max_size=2)),
        topic_config_serialize_wrapper=TopicConfigTable(
            data_version=draw(VERSIONS),
            topic_config_table={topic.topic_name: topic for topic in topics},
            topic_queue_mapping_info_map={mapping.topic: mapping for mapping in mappings},
        ),
    )


@given(registrations(), st.booleans())
def test_registration_reads_back_in_both_forms(body: RegisterBrokerBody, compress: bool) -> None:
    assert read(encode_register_body(body, compress=compress), compressed=compress) == body


@given(TOPICS)
def test_topic_text_reads_back(topic: TopicConfig) -> None:
    assert topic_from_text(topic_to_text(topic).decode()) == topic


def test_topic_text_of_old_and_odd_senders() -> None:
    assert topic_from_text("t 3 4 6 SINGLE_TAG") == TopicConfig(topic_name="t", read_queue_nums=3, write_queue_nums=4)
    spaced = topic_from_text('t 3 4 6 SINGLE_TAG {"a":"b c"}')
    assert spaced.attributes == {"a": "b c"}
    assert topic_from_text("t 3 4 6 SINGLE_TAG {broken").attributes == {}


@pytest.mark.parametrize("text", ["", "t", "t 1 2 3", "t x 2 6 SINGLE_TAG", "t 1 2 99999999999 SINGLE_TAG"])
def test_topic_text_when_malformed_names_the_line(text: str) -> None:
    with pytest.raises(FieldError, match="malformed topic"):
        topic_from_text(text)


def test_compressed_registration_over_the_limit_is_refused_before_it_fills_memory() -> None:
    bomb = zlib.compress(bytes(1_000_000))
    with pytest.raises(FieldError, match="larger than 1000 bytes"):
        decode_register_body(bomb, compressed=True, version=513, size_max=1000)


@pytest.mark.parametrize(
    ("inflated", "words"),
    [
        (b"", "inside an integer"),
        (b"\0\0\0", "inside an integer"),
        (pack(">i", -1), "length -1"),
        (pack(">i", 2**31 - 1), "length 2147483647"),
        (pack(">i", 2) + b"{}" + pack(">i", 5), "inside an integer"),
        (pack(">i", 2) + b"{}" + pack(">ii", 1, 10) + b"short", "inside a part of 10 bytes"),
        (pack(">i", 2) + b"{}" + pack(">ii", 1, 2) + b"\xff\xff" + bytes(8), "not UTF-8"),
    ],
)
def test_compressed_registration_when_damaged_is_an_error(inflated: bytes, words: str) -> None:
    with pytest.raises(FieldError, match=words):
        read(zlib.compress(inflated), compressed=True)


@pytest.mark.parametrize("body", [b"\0\0\0\1", b"nonsense", b"[]", b"   "])
def test_registration_of_no_known_form_is_an_error(body: bytes) -> None:
    with pytest.raises(FieldError, match=r"neither JSON nor a zlib stream|not a zlib stream"):
        read(body)


def test_compressed_registration_when_cut_is_an_error() -> None:
    body = encode_register_body(RegisterBrokerBody(), compress=True)
    with pytest.raises(FieldError, match="ends before its zlib stream does"):
        read(body[:-5], compressed=True)


@given(st.binary(max_size=200), st.booleans())
@example(b"x\x9c", True)
def test_any_bytes_give_a_registration_or_an_error_of_ours(body: bytes, compressed: bool) -> None:
    for content in (body, zlib.compress(body), b'{"topicConfigSerializeWrapper":' + body):
        with suppress(FuseeError):
            assert isinstance(read(content, compressed=compressed), RegisterBrokerBody)


def test_fields_are_declared_in_the_order_of_their_wire_names() -> None:
    for struct in (DataVersion, TopicConfig, TopicQueueMappingInfo, TopicConfigTable, RegisterBrokerBody, TopicList):
        names = [field.encode_name for field in msgspec.structs.fields(struct)]
        assert names == sorted(names), struct
