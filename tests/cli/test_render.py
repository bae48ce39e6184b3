from __future__ import annotations

import pytest

from fusee.cli.render import body_text, count_text, shortened, size_text, span_text, time_text


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
