"""The log stream, compared with what a Java master and its slave said."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ProtocolError
from fusee.replication.frames import ReportDecoder, TransferDecoder, encode_report, encode_transfer

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


@pytest.mark.parametrize("data", [b"\xff" * 8, b"GET / HTTP/1.1\r\n" + b"\xff" * 8])
def test_what_is_no_report_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ReportDecoder().feed(data)


@pytest.mark.parametrize("head", [b"\xff" * 12, b"\x00" * 8 + b"\xff" * 4, b"\x00" * 8 + b"\x7f\xff\xff\xff"])
def test_what_is_no_transfer_is_an_error(head: bytes) -> None:
    with pytest.raises(ProtocolError):
        TransferDecoder().feed(head)
