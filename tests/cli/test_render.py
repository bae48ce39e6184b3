from __future__ import annotations

import pytest

from fusee.cli.render import body_text, count_text, error_text, shortened, size_text, span_text, time_text
from fusee.errors import SendFailedError


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (12_345, "12.3 s"),
        (90_000, "1 min 30 s"),
        (3_600_000, "1 h"),
        (3_661_000, "1 h 1 min"),
        (90_061_000, "1 d 1 h"),
        (-5_000, "-5 s"),
    ],
)
def test_spans(milliseconds: int, text: str) -> None:
    assert span_text(milliseconds) == text


def test_sizes_counts_times_and_bodies() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 3 * 1024**3)] == ["0 B", "1023 B", "1.0 KiB", "3.0 GiB"]
    assert (count_text(1_234_567), count_text(1.25)) == ("1,234,567", "1.2")
    assert time_text(0) == "-"
    assert len(time_text(1_700_000_000_123)) == len("2023-11-14 22:13:20.123")
    assert body_text(b"two\nlines\x1b[31m") == "two lines [31m"
    assert body_text(b"\xff\xfe") == "0xfffe"
    assert body_text(b"abcdef", 4) == "abc…"
    assert shortened("abc", 3) == "abc"


def test_spans_with_one_unit_and_errors_that_say_the_same_several_times() -> None:
    assert [span_text(each, 1) for each in (2_400, 90_000, 90_061_000)] == ["2 s", "1 min", "1 d"]
    once, twice = ValueError("the disk is full"), ValueError("the disk is full")
    failed = SendFailedError("(1) the disk is full (2) the disk is full", attempts=(once, twice), topic="orders")
    assert error_text(failed) == "the message for topic 'orders' could not be sent in 2 tries: the disk is full"
    mixed = SendFailedError("(1) a (2) b", attempts=(once, ValueError("b")), topic="orders")
    assert error_text(mixed) == "(1) a (2) b"
    assert error_text(ValueError("two\nlines")) == "two lines"
