"""Hypothesis strategies for messages and their parts, shared by the tests of this package."""

from __future__ import annotations

from hypothesis import strategies as st

from fusee.message.batch import BatchElement
from fusee.message.flags import with_host_families
from fusee.message.model import StoredMessage
from fusee.message.properties import encode_properties
from fusee.message.record_layout import body_crc, record_size

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
bodies = st.binary(max_size=200)

property_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=12
)
properties = st.dictionaries(property_text, property_text, max_size=6)

# What a property string may look like when nobody was careful: few letters, many separators.
untidy_properties = st.lists(
    st.sampled_from([b"a", b"b", b"TAGS", b"KEYS", b"\x01", b"\x02", b"\x01\x02", b"\xff"]), max_size=24
).map(b"".join)


@st.composite
def stored_messages(draw: st.DrawFn) -> StoredMessage:
    """A message that a record can hold: both versions, both address families for each host."""
    born_host = draw(hosts)
    store_host = draw(hosts)
    sys_flag = with_host_families(draw(int32), born_host, store_host)
    topic = draw(st.one_of(st.text("abcXYZ019_-%|ü", max_size=20), st.text("r%", min_size=120, max_size=255)))
    topic_size = len(topic.encode())
    version = draw(st.sampled_from([1, 2])) if topic_size <= 127 else 2
    body = draw(bodies)
    raw_properties = draw(st.one_of(properties.map(encode_properties), untidy_properties))
    return StoredMessage(
        topic=topic,
        queue_id=draw(int32),
        queue_offset=draw(int64),
        log_offset=draw(int64),
        body=body,
        properties_bytes=raw_properties,
        flag=draw(int32),
        sys_flag=sys_flag,
        born_timestamp_ms=draw(int64),
        born_host_bytes=born_host,
        store_timestamp_ms=draw(int64),
        store_host_bytes=store_host,
        reconsume_times=draw(int32),
        prepared_transaction_offset=draw(int64),
        body_crc=body_crc(body),
        version=version,
        store_size=record_size(sys_flag, len(body), topic_size, len(raw_properties), version),
    )


batch_elements = st.builds(BatchElement, flag=int32, body=bodies, properties_bytes=properties.map(encode_properties))


@st.composite
def mutated(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were right until some were changed, cut off or added."""
    data = bytearray(draw(originals))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[place] = draw(st.integers(0, 255))
            case 1:
                del data[place:]
            case 2:
                data[place:place] = draw(st.binary(max_size=8))
            case _:
                data[place : place + 4] = draw(st.sampled_from([b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"]))
    return bytes(data)
