"""The short way through properties, against the one that reads everything."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.message.properties import encode_properties
from fusee.message.record import encode_record
from fusee.pipeline.batches import record_batches
from fusee.pipeline.property_columns import UniformProperties, uniform_properties
from fusee.store.columns import decode_columns
from fusee.store.record_scan import find_records, locate_parts
from tests.pipeline.test_batches import message

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=20)


def records(strings: list[bytes]) -> bytes:
    return b"".join(
        encode_record(message(number, b"b" * (number % 7), properties_bytes=raw)) for number, raw in enumerate(strings)
    )


def found(data: bytes) -> UniformProperties | None:
    return uniform_properties(data, locate_parts(data, find_records(data)[0]))


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=6, unique=True), st.data())
def test_rows_with_the_same_names_are_what_the_decoder_says(names: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.lists(TEXT, min_size=len(names), max_size=len(names)), min_size=1, max_size=60))
    raw = records([encode_properties(dict(zip(names, row, strict=True))) for row in rows])
    uniform = found(raw)
    assert uniform is not None
    decoded = decode_columns(raw, columns=["properties", "tag"])
    (batch,) = record_batches([raw], ("properties", "tags"), broker_name="b")
    assert batch.column(0).equals(decoded.column(0))
    assert batch.column(1).equals(decoded.column(1))
    for index, name in enumerate(names):
        assert uniform.values(name).to_pylist() == [row[index] for row in rows]
    assert uniform.values("not there").null_count == len(rows)


GOOD = b"TAGS\x01a\x02KEYS\x01k\x02"


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"TAGS\x01a\x02",
        b"KEYS\x01k\x02TAGS\x01a\x02",
        b"TAGS\x01a\x02KEYX\x01k\x02",
        b"TAGS\x01a\x02KEYS\x01\x02",
        b"TAGS\x01\x02KEYS\x01k\x02",
        b"\x01a\x02KEYS\x01k\x02",
        b"TAGS\x01a\x02KEYS\x01k",
        b"TAGS\x01a\x01b\x02KEYS\x01k\x02",
        b"TAGS\x01a\x00b\x02KEYS\x01k\x02",
        b"TAGS\x01\xff\x02KEYS\x01k\x02",
        b"TAGS\x01a\x02TAGS\x01k\x02",
        b"\x02\x01",
    ],
)
@pytest.mark.parametrize("place", [0, 25, 49])
def test_whatever_is_unusual_takes_the_long_way_and_reads_the_same(other: bytes, place: int) -> None:
    strings = [GOOD] * 50
    strings[place] = other
    raw = records(strings)
    assert found(raw) is None
    decoded = decode_columns(raw, columns=["properties", "tag"])
    (batch,) = record_batches([raw], ("properties", "tags"), broker_name="b")
    assert batch.column(0).to_pylist() == decoded.column(0).to_pylist()
    assert batch.column(1).to_pylist() == decoded.column(1).to_pylist()


def test_names_that_are_in_all_rows_twice_or_longer_than_a_word() -> None:
    assert found(records([b"TAGS\x01a\x02TAGS\x01b\x02"] * 50)) is None
    names = ["n" * length for length in range(1, 30)]
    strings = [encode_properties(dict.fromkeys(names, f"{row}")) for row in range(50)]
    assert found(records(strings)) is not None
    strings[7] = strings[7].replace(b"n" * 29, b"n" * 28 + b"m")
    assert found(records(strings)) is None
    assert found(records([b""] * 50)) is None
