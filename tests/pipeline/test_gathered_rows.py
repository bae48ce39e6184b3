"""Rows of several batches fill a request end to end, in their order, and never past what a broker takes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.batch import split_batch
from fusee.pipeline import gathered_rows
from fusee.pipeline.gathered_rows import GatheredRows
from fusee.pipeline.row_encoding import Columns, EncodedRows, encode_rows
from fusee.pipeline.write_routes import STORED_BYTES_MAX, WriteQueue

QUEUE = WriteQueue("broker", 0)
EXTRA = 100


def rows(*sizes: int, first: int = 0) -> EncodedRows:
    """Rows of these sizes, each of a letter of its own."""
    return encode_rows(
        Columns(pa.array([b"%c" % (97 + (first + number) % 26) * size for number, size in enumerate(sizes)])),
        first_row=0,
    )


def room(size: int, extra: int = EXTRA) -> GatheredRows:
    return GatheredRows(QUEUE, memoryview(bytearray(size)), None, extra)


def bodies(gathered: GatheredRows) -> list[bytes]:
    return [element.body for element in split_batch(bytes(gathered.body))]


def test_batches_follow_each_other_until_it_is_full() -> None:
    gathered = room(200)
    first, second = rows(10, 20), rows(30, 40, 10, first=2)
    assert gathered.take(first, 0) == 2
    assert (gathered.count, gathered.size) == (2, 74)
    assert gathered.take(second, 0) == 2
    assert gathered.take(second, 2) == 2
    assert bodies(gathered) == [b"a" * 10, b"b" * 20, b"c" * 30, b"d" * 40]
    assert gathered.size == 188


def test_first_row_is_taken_however_large_a_broker_makes_it() -> None:
    body = STORED_BYTES_MAX - 22
    gathered = room(body + 22)
    assert gathered.take(rows(body), 0) == 1
    assert gathered.take(rows(0), 0) == 0
    assert gathered.count == 1


def test_what_a_broker_adds_counts_for_all_rows() -> None:
    gathered = room(STORED_BYTES_MAX, extra=STORED_BYTES_MAX // 4)
    assert gathered.take(rows(10, 10), 0) == 2
    assert gathered.take(rows(10, 10, 10), 0) == 1
    assert gathered.count == 3


def test_messages_of_a_request_have_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_rows, "BATCH_COUNT_MAX", 5)
    gathered = room(1000)
    assert gathered.take(rows(1, 1, 1), 0) == 3
    assert gathered.take(rows(1, 1, 1), 0) == 2


@given(st.lists(st.lists(st.integers(0, 90), max_size=8), max_size=8), st.integers(112, 400), st.integers(0, 3))
def test_requests_have_all_rows_once_in_their_order(batches: list[list[int]], size: int, extra: int) -> None:
    requests = [room(size, extra)]
    wanted: list[bytes] = []
    for batch in batches:
        given_rows = rows(*batch, first=len(wanted))
        wanted += [element.body for element in split_batch(given_rows.body(0, len(batch)))]
        at = 0
        while at < len(batch):
            end = requests[-1].take(given_rows, at)
            if end == at:
                # Nothing more fits, not even the smallest step: the next row would pass the end.
                assert requests[-1].size + given_rows.size(at, at + 1) > size
                requests.append(room(size, extra))
            at = end
    assert [body for request in requests for body in bodies(request)] == wanted
    assert all(request.size <= request.capacity == size for request in requests)
