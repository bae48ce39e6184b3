"""The log stream, compared with what a Java master and its slave said."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ProtocolError
from fusee.replication.frames import (
    HELLO,
    NO_RECORD,
    LogFacts,
    RecordFacts,
    ReportDecoder,
    TransferDecoder,
    broker_id_of,
    decode_facts,
    decode_record_facts,
    encode_facts,
    encode_identity,
    encode_question,
    encode_record_facts,
    encode_report,
    encode_transfer,
    facts_of,
    question_of,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "ha" / "stream.jsonl.xz"


def lines() -> list[dict[str, Any]]:
    with lzma.open(GOLDEN, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("connection", [1, 2])
def test_golden_stream_is_read_and_written_byte_for_byte(connection: int) -> None:
    chunks = [line for line in lines() if line["kind"] == "chunk" and line["conn"] == connection]
    said = {
        side: b"".join(bytes.fromhex(chunk["hex"]) for chunk in chunks if chunk["side"] == side)
        for side in ("slave->master", "master->slave")
    }
    reports = ReportDecoder().feed(said["slave->master"])
    assert len(reports) > 1
    assert b"".join(map(encode_report, reports)) == said["slave->master"]
    transfers = TransferDecoder().feed(said["master->slave"])
    assert b"".join(encode_transfer(*transfer) for transfer in transfers) == said["master->slave"]
    place = transfers[0][0]
    for log_offset, data in transfers:
        assert log_offset == place
        place += len(data)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=40)), max_size=6), st.data())
def test_any_chunking_gives_the_same_transfers(transfers: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(encode_transfer(*transfer) for transfer in transfers)
    decoder, found, position = TransferDecoder(), [], 0
    while position < len(stream):
        size = data.draw(st.integers(1, len(stream) - position))
        found += decoder.feed(stream[position : position + size])
        position += size
    assert found == transfers


def test_reports_that_arrive_in_pieces_are_put_together() -> None:
    decoder = ReportDecoder()
    stream = encode_report(7) + encode_report(2**40)
    assert [report for byte in stream for report in decoder.feed(bytes([byte]))] == [7, 2**40]


def test_words_of_our_slaves_are_told_apart() -> None:
    words = ReportDecoder().feed(
        encode_report(HELLO) + encode_question(0) + encode_question(2**60) + encode_identity(0) + encode_identity(7)
    )
    assert words[0] == HELLO == -1
    assert [question_of(word) for word in words] == [None, 0, 2**60, None, None]
    assert [broker_id_of(word) for word in words] == [None, None, None, 0, 7]
    assert question_of(5) is None
    assert broker_id_of(5) is None


@given(st.integers(0, 2**62 - 2), st.integers(0, 2**62 - 1))
def test_any_question_and_identity_is_read_as_it_was_written(log_offset: int, broker_id: int) -> None:
    question, identity = ReportDecoder().feed(encode_question(log_offset) + encode_identity(broker_id))
    assert (question_of(question), broker_id_of(question)) == (log_offset, None)
    assert (question_of(identity), broker_id_of(identity)) == (None, broker_id)


def test_answers_of_our_masters_are_read_as_they_were_written() -> None:
    facts, record = LogFacts(4096, 2**50, 1 << 30), facts_of(b"a record")
    stream = encode_facts(facts) + encode_record_facts(77, record) + encode_record_facts(78, facts_of(None))
    first, second, third = TransferDecoder().feed(stream)
    assert first[0] == HELLO
    assert decode_facts(first[1]) == facts
    assert (second[0], third[0]) == (-79, -80)
    assert decode_record_facts(second[1]) == record == RecordFacts(8, crc32(b"a record"))
    assert decode_record_facts(third[1]) == NO_RECORD
    with pytest.raises(ProtocolError):
        decode_facts(b"short")
    with pytest.raises(ProtocolError):
        decode_record_facts(b"short")


@pytest.mark.parametrize("head", [b"\xff" * 12, b"\x00" * 8 + b"\xff" * 4, b"\x00" * 8 + b"\x7f\xff\xff\xff"])
def test_what_is_no_transfer_is_an_error(head: bytes) -> None:
    with pytest.raises(ProtocolError):
        TransferDecoder().feed(head)
