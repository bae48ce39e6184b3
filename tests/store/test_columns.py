"""Records as Arrow columns, against the records decoded one by one."""

from __future__ import annotations

import lzma
import mmap
import random
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.errors import MessageError, RecordError
from fusee.message.compression import compress, compressed_sys_flag, decompress_message
from fusee.message.flags import CompressionType
from fusee.message.model import StoredMessage
from fusee.message.record import decode_record, encode_blank, encode_record, iterate_records, pack_record
from fusee.store.columns import (
    BYTES_MAX,
    COLUMNS,
    ROWS_VECTORISED_MIN,
    columns_schema,
    decode_columns,
    iterate_columns,
)
from tests.golden import GoldenFrame, frames
from tests.message import strategies

TESTS = Path(__file__).parent.parent
V4 = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
ANSWERS = [frame for frame in frames() if frame.messages]
MANY = ROWS_VECTORISED_MIN


@cache
def golden_log() -> bytes:
    """Four log files of a store that Java wrote, end to end, up to some zero bytes."""
    return lzma.decompress((TESTS / "golden" / "store_records.log.xz").read_bytes())


@cache
def golden_messages() -> list[StoredMessage]:
    log = golden_log()
    lines = lzma.decompress((TESTS / "golden" / "store_records.jsonl.xz").read_bytes()).splitlines()
    decoded = [msgspec.json.decode(line) for line in lines]
    return [decode_record(log, line["commitLogOffset"]) for line in decoded if line["kind"] == "record"]


def record(
    body: bytes = b"body",
    properties: bytes = b"TAGS\x01paid\x02",
    sys_flag: int = 0,
    topic: bytes = b"orders",
    version: int = 1,
    host: bytes = V4,
) -> bytes:
    return pack_record(topic, body, properties, 7, 3, 5, 41, 5000, sys_flag, 1_700, host, 1_800, V4, 2, 99, version)


def rows(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch; times as numbers, because a record may hold times that no calendar has."""
    batch.validate(full=True)
    shown = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if pyarrow.types.is_timestamp(column.type):
            column = column.cast(pyarrow.int64())
        shown[name] = column.to_pylist()
    return [dict(zip(shown, values, strict=True)) for values in zip(*shown.values(), strict=True)]


def expected(messages: list[StoredMessage]) -> list[dict[str, Any]]:
    return [
        {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "queue_offset": message.queue_offset,
            "log_offset": message.log_offset,
            "store_size": message.store_size,
            "version": message.version,
            "flag": message.flag,
            "sys_flag": message.sys_flag,
            "born_timestamp": message.born_timestamp_ms,
            "born_host": message.born_host,
            "store_timestamp": message.store_timestamp_ms,
            "store_host": message.store_host,
            "reconsume_times": message.reconsume_times,
            "prepared_transaction_offset": message.prepared_transaction_offset,
            "body_crc": message.body_crc,
            "body": message.body,
            "tag": message.tag,
            "keys": list(message.keys),
            "unique_id": message.unique_id,
            "properties": list(message.properties.items()),
        }
        for message in messages
    ]


def grown(records: list[bytes], seed: int = 1) -> list[bytes]:
    """These records over and over, out of order, until there are enough to be decoded as arrays."""
    chosen = records * (MANY // len(records) + 1)
    random.Random(seed).shuffle(chosen)
    return chosen


# Equality with the decoder of one record


def test_decode_when_java_wrote_the_log_equals_its_records() -> None:
    batch = decode_columns(golden_log(), from_log=True)
    assert batch.schema == columns_schema()
    assert batch.num_rows == 337 >= MANY
    assert rows(batch) == expected(golden_messages())


@pytest.mark.parametrize("frame", ANSWERS, ids=lambda frame: frame.id)
def test_decode_when_java_answered_equals_its_messages(frame: GoldenFrame) -> None:
    body = frame.body_bytes
    messages = list(iterate_records(body))
    plain = [decompress_message(message) for message in messages]
    assert rows(decode_columns(body)) == expected(messages)
    assert rows(decode_columns(body, decompress=True)) == expected(plain)
    copies = MANY // len(messages) + 1
    assert rows(decode_columns(body * copies)) == expected(messages * copies)
    assert rows(decode_columns(body * copies, decompress=True)) == expected(plain * copies)


@given(st.lists(strategies.stored_messages(), min_size=1, max_size=6), st.integers(0, 99))
def test_decode_when_records_are_of_any_kind_equals_each(messages: list[StoredMessage], seed: int) -> None:
    few = list(map(encode_record, messages))
    for records in (few, grown(few, seed)):
        data = b"".join(records)
        assert rows(decode_columns(data)) == expected(list(map(decode_record, records)))


@given(st.lists(strategies.untidy_properties, min_size=1, max_size=12), st.integers(0, 99))
def test_decode_when_properties_are_untidy_reads_them_as_leniently(untidy: list[bytes], seed: int) -> None:
    few = [record(properties=raw) for raw in untidy]
    for records in (few, grown(few, seed)):
        data = b"".join(records)
        wanted = ("properties", "tag", "keys")
        every = expected(list(map(decode_record, records)))
        assert rows(decode_columns(data, columns=wanted)) == [{name: row[name] for name in wanted} for row in every]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\x01paid\x02KEYS\x01one\x02UNIQ_KEY\x01AB\x02",
        b"TAGS\x01paid\x02KEYS\x01one\x02TAGS\x01open",
        b"KEYS\x01 one  two three \x02",
        b"KEYS\x01  \x02a\x01b\x02",
        b"\x02\x02\x01\x02a\x01\x02\x01b\x02c",
        "TAGS\x01Zürich\x02größe\x01\N{GRINNING FACE}\x02".encode(),
        b"TAGS\x01\xff\xfe\x02\xc3\x01\xc3\x02\xed\xa0\x80\x01\xf0\x90\x80\x02\xff\x01x\x02",
        b"a\x01b\x01c\x02",
        b"\x00\x01\x00\x02",
        b"n\x01" + b"v" * 32000,
    ],
)
@pytest.mark.parametrize("neighbour", [None, b"", b"TAGS\x01paid\x02", b"\x02x\x01y", b"\x80\x01\x80"])
def test_decode_when_one_shape_of_properties_fills_the_batch_reads_it(
    properties: bytes, neighbour: bytes | None
) -> None:
    pair = record(properties=properties) + (b"" if neighbour is None else record(properties=neighbour))
    for data in (pair, pair * MANY):
        assert rows(decode_columns(data)) == expected(list(iterate_records(data)))


@pytest.mark.parametrize(
    "strings",
    [
        [b"ab\x011\x02c\x012\x02", b"a\x013\x02bc\x014\x02"],
        [b"a\x011\x02b\x012\x02", b"a\x013\x02", b"b\x014\x02a\x015\x02b\x016\x02"],
        [b"TAGS\x011\x02KEYS\x012\x02", b"KEYS\x013\x02TAGS\x014\x02"],
    ],
)
def test_decode_when_names_only_seem_to_repeat_keeps_rows_apart(strings: list[bytes]) -> None:
    data = b"".join(record(properties=raw) for raw in strings) * MANY
    assert rows(decode_columns(data)) == expected(list(iterate_records(data)))


def test_decode_when_versions_and_hosts_are_mixed_reads_all() -> None:
    shapes = [
        record(topic=b"t" * 128),
        record(topic=b"x", version=2),
        record(host=V6, sys_flag=0x10),
        record(topic="größe".encode()),
        record(b"", b"", topic=b""),
        record(host=bytes([10, 0, 0, 1, 0, 0, 0, 80])),
        record(topic=b"r" * 32767, properties=b"a\x01" + b"b" * 32765),
    ]
    data = b"".join(grown(shapes))
    batch = decode_columns(data)
    assert rows(batch) == expected(list(iterate_records(data)))
    assert set(batch.column("born_host").to_pylist()) == {"127.0.0.1:10911", "[::1]:10911", "10.0.0.1:80"}


# What is asked for


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("name", COLUMNS)
def test_decode_when_one_column_is_asked_gives_only_it(name: str, count: int) -> None:
    data = (record() + record(properties=b"KEYS\x01k\x02")) * count
    batch = decode_columns(data, columns=[name])
    assert batch.schema == columns_schema([name])
    assert rows(batch) == [{name: row[name]} for row in expected(list(iterate_records(data)))]


def test_decode_when_columns_are_asked_keeps_their_order() -> None:
    batch = decode_columns(record(), columns=("body", "store_timestamp"))
    assert batch.schema.names == ["body", "store_timestamp"]


@pytest.mark.parametrize("columns", [["offset"], ["body", "body"], []])
def test_decode_when_columns_make_no_sense_names_those_there_are(columns: list[str]) -> None:
    with pytest.raises(MessageError, match="choose from topic, queue_id, .*properties, each at most once"):
        decode_columns(record(), columns=columns)


@pytest.mark.parametrize("data", [b"", bytearray(), memoryview(b""), [], [b"", b""]])
def test_decode_when_there_is_nothing_gives_an_empty_batch(data: Any) -> None:
    assert decode_columns(data) == pyarrow.RecordBatch.from_pylist([], schema=columns_schema())
    assert decode_columns(data, columns=["body"], positions=[]).num_rows == 0


def test_decode_when_times_are_times_says_so() -> None:
    batch = decode_columns(record(), columns=["born_timestamp"])
    assert str(batch.column(0)[0]) == "1970-01-01 00:00:01.700000+00:00"


# Where the bytes come from


@pytest.mark.parametrize("count", [3, MANY + 5])
def test_decode_when_bytes_are_held_elsewhere_gives_the_same(count: int) -> None:
    records = grown([record(), record(b"x" * 50), record(topic=b"t" * 200)])[:count]
    data = b"".join(records)
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    wanted = decode_columns(data)
    views = [memoryview(record) for record in records]
    forms: list[Any] = [bytearray(data), memoryview(b"12" + data)[2:], records, tuple(views), mapped]
    for form in forms:
        assert decode_columns(form) == wanted
    batch = decode_columns(mapped)
    mapped[:] = bytes(len(data))
    mapped.close()  # would fail if a column looked into it
    assert batch == wanted


@pytest.mark.parametrize("count", [5, 2 * MANY])
def test_decode_when_positions_are_given_reads_only_those(count: int) -> None:
    records = [record(str(number).encode() * 3) for number in range(count)]
    data = b"".join(records)
    positions = np.cumsum([0, *map(len, records)])[:-1]
    odd = positions[1::2]
    assert decode_columns(data, positions=positions) == decode_columns(data)
    batch = decode_columns(b"garbage" + data, positions=(odd + 7).tolist())
    assert batch == decode_columns(records[1::2])


@pytest.mark.parametrize("count", [2, MANY])
@pytest.mark.parametrize("shift", [-10_000_000, 1, 10_000_000, 2**62])
def test_decode_when_a_position_is_wrong_names_it(count: int, shift: int) -> None:
    data = record() * count
    positions = [number * len(record()) for number in range(count)]
    positions[-1] += shift
    with pytest.raises(RecordError, match=f"record at {positions[-1]}: "):
        decode_columns(data, positions=positions)


@pytest.mark.parametrize("count", [2, MANY])
def test_decode_when_positions_go_back_says_so(count: int) -> None:
    positions = [number * len(record()) for number in range(count)][::-1]
    with pytest.raises(RecordError, match=f"record at {positions[1]}: .*ascending order"):
        decode_columns(record() * count, positions=positions)


@pytest.mark.parametrize("count", [1, MANY])
def test_decode_when_blanks_are_not_expected_is_refused(count: int) -> None:
    data = record() * count + encode_blank(20) + bytes(12)
    with pytest.raises(RecordError, match=f"record at {len(record()) * count}: this is the blank"):
        decode_columns(data)
    assert decode_columns(data + record(), from_log=True) == decode_columns(record() * (count + 1))


@pytest.mark.parametrize("count", [1, MANY])
def test_decode_when_a_log_has_a_hole_is_refused(count: int) -> None:
    data = record() * count + bytes(5000)
    assert decode_columns(data, from_log=True).num_rows == count
    with pytest.raises(RecordError, match=f"record at {len(record()) * count}: nothing was written here"):
        decode_columns(data + record(), from_log=True)
    with pytest.raises(RecordError, match=f"record at {len(record()) * count}: "):
        decode_columns(data)


# Large buffers


@pytest.mark.parametrize("batch_size", [-1, 1, 1000, 30_000, 10**9])
def test_iterate_when_batches_are_small_or_large_gives_all_rows_once(batch_size: int) -> None:
    batches = list(iterate_columns(golden_log(), from_log=True, batch_size=batch_size))
    assert all(batch.num_rows for batch in batches)
    assert [row for batch in batches for row in rows(batch)] == expected(golden_messages())
    if batch_size == 30_000:
        assert 3 < len(batches) < 337 // 2
        assert all(pyarrow.compute.sum(batch.column("store_size")).as_py() < 2 * 30_000 for batch in batches)


def test_iterate_when_a_record_is_bad_gives_the_batches_before_it() -> None:
    data = record() * 100
    bad = 60 * len(record())
    broken = data[:bad] + b"\xff" + data[bad + 1 :]
    found = iterate_columns(broken, batch_size=50 * len(record()), columns=["tag"])
    assert next(found).num_rows == 50
    assert next(found).num_rows == 10
    with pytest.raises(RecordError, match=f"record at {bad}: "):
        next(found)
    with pytest.raises(RecordError, match=f"record at {len(data)}: only 3"):
        list(iterate_columns(data + b"end", columns=["tag"], decompress=True))
    with pytest.raises(RecordError, match="record at 0: only 3"):
        list(iterate_columns(b"end", batch_size=0))


def test_decode_when_records_lie_too_far_apart_is_refused() -> None:
    one = record()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    with mmap.mmap(-1, BYTES_MAX + 4096, flags=flags) as mapped:
        positions = [number * 4096 for number in range(MANY)] + [BYTES_MAX]
        for position in positions:
            mapped[position : position + len(one)] = one
        with pytest.raises(RecordError, match="decode fewer records at once") as caught:
            decode_columns(mapped, positions=positions)
        assert decode_columns(mapped, positions=positions[:-1]).num_rows == MANY
        del caught  # its frames look into the map


# Compressed bodies


@pytest.mark.parametrize("count", [1, MANY])
def test_decompress_when_some_bodies_are_compressed_gives_all_plain(count: int) -> None:
    plain = b"plain body " * 100
    shapes = [record(plain), record(b"", b"")]
    shapes += [record(compress(plain, kind), sys_flag=compressed_sys_flag(0, kind)) for kind in CompressionType]
    data = b"".join(shapes) * count
    stored = list(iterate_records(data))
    assert rows(decode_columns(data)) == expected(stored)
    assert rows(decode_columns(data, decompress=True)) == expected(list(map(decompress_message, stored)))


@pytest.mark.parametrize("count", [1, MANY])
def test_decompress_when_no_body_is_compressed_changes_nothing(count: int) -> None:
    assert decode_columns(record() * count, decompress=True) == decode_columns(record() * count)


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    ("body", "sys_flag", "why"),
    [
        (b"not zlib", 0x1, "not valid ZLIB"),
        (compress(bytes(5001)), 0x1, "larger than the limit of 5000"),
        (b"x", 0x701, "compression type 7"),
    ],
)
def test_decompress_when_a_body_cannot_be_names_its_record(body: bytes, sys_flag: int, why: str, count: int) -> None:
    data = record() * count + record(body, sys_flag=sys_flag)
    with pytest.raises(RecordError, match=f"record at {len(record()) * count}: .*{why}"):
        decode_columns(data, decompress=True, body_size_max=5000)


# Bytes that are no records


@given(
    st.one_of(
        st.binary(max_size=200),
        strategies.mutated(st.lists(strategies.stored_messages().map(encode_record), max_size=3).map(b"".join)),
    ),
    st.sampled_from([0, MANY]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=200)
def test_decode_when_bytes_are_arbitrary_gives_rows_or_a_record_error(
    data: bytes, before: int, from_log: bool, decompress: bool
) -> None:
    data = record() * before + data
    wanted = outcome(lambda: expected(decoded(data, decompress)))
    found = outcome(lambda: rows(decode_columns(data, from_log=from_log, decompress=decompress)))
    if isinstance(wanted, list) or not (from_log or decompress or "UTF-8" in wanted):
        assert found == wanted
    elif isinstance(found, str):
        assert re.match(r"record at \d+: ", found)
    else:
        assert from_log  # blanks and unwritten bytes are no error there


def decoded(data: bytes, decompress: bool) -> list[StoredMessage]:
    messages = list(iterate_records(data))
    return list(map(decompress_message, messages)) if decompress else messages


def outcome(decode: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]] | str:
    """The rows, or the words of the error."""
    try:
        return decode()
    except MessageError as error:
        return str(error)


@given(st.data())
def test_decode_when_java_bytes_are_damaged_gives_rows_or_a_record_error(data: st.DataObject) -> None:
    log = bytearray(golden_log()[:40_000])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(log) - 4))
        log[place : place + 4] = data.draw(st.one_of(st.binary(min_size=4, max_size=4), st.just(bytes(4))))
    found = outcome(lambda: rows(decode_columns(log, from_log=True)))
    assert isinstance(found, list) or re.match(r"record at \d+: ", found)


@pytest.mark.parametrize("count", [0, MANY])
def test_decode_when_two_records_are_bad_names_the_first(count: int) -> None:
    start = record() * count
    body_lies = bytearray(record())
    body_lies[84:88] = b"\xff\xff\xff\xff"
    with pytest.raises(RecordError, match=f"record at {len(start)}: body of -1 bytes"):
        decode_columns(start + body_lies + b"\xff" * 100)


@pytest.mark.parametrize("count", [0, MANY])
def test_decode_when_a_topic_is_no_text_is_refused_if_it_is_wanted(count: int) -> None:
    data = record() * count + record(topic=b"\xc3") + record(topic=b"\x28")
    with pytest.raises(RecordError, match=f"record at {len(record()) * count}: the topic is not UTF-8"):
        decode_columns(data, columns=["topic"])
    if count:
        assert decode_columns(data, columns=["body"]).num_rows == count + 2


# The schema and its library


def test_schema_page_when_read_names_every_column_and_type() -> None:
    page = (TESTS.parent / "docs" / "formats" / "columns.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE)
    assert listed == [(field.name, str(field.type).replace(" ('", "('")) for field in columns_schema()]


def test_columns_when_pyarrow_is_missing_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from fusee.errors import FuseeError\n"
        "from fusee.store.columns import decode_columns\n"
        "try: decode_columns(b'')\n"
        "except FuseeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'fusee[arrow]'" in done.stdout


def test_columns_when_imported_load_no_pyarrow_and_no_loop() -> None:
    program = "import sys, fusee.store.columns; print({'pyarrow', 'asyncio', 'socket', 'ssl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
