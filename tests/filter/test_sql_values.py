"""Properties are found, and their text read, as Java finds and reads them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.filter.sql_values import double, double_order, find, int32, int64, number_order, same_text
from fusee.message.properties import find_property
from tests.message.strategies import untidy_properties


@given(untidy_properties, st.sampled_from([b"a", b"b", b"TAGS", b"KEYS"]))
def test_find_equals_find_property(raw: bytes, name: bytes) -> None:
    assert find(b"\x02" + raw + b"\x02", b"\x02" + name + b"\x01") == find_property(raw, name)


@given(st.integers(-(2**64), 2**64))
def test_integers_within_their_range_are_read(number: int) -> None:
    text = str(number).encode()
    for read, limit in ((int32, 2**31), (int64, 2**63)):
        if -limit <= number < limit:
            assert read(text) == number
        else:
            with pytest.raises(ValueError):
                read(text)


@pytest.mark.parametrize(
    "text", ["5_0", " 5", "5 ", "", "+", "-", "--5", "5.0", "5L", "0x5", "𝟓", "²", "５x", "\ud7ff"]
)
def test_no_integer_is_refused(text: str) -> None:
    for read in (int32, int64):
        with pytest.raises(ValueError):
            read(text.encode())


@pytest.mark.parametrize("text", ["5", "+5", "05", "５", "+٥", "0" * 5000 + "5"])
def test_integers_of_any_script_are_read(text: str) -> None:
    assert int32(text.encode()) == int64(text.encode()) == 5


@given(st.floats(allow_nan=False))
def test_doubles_are_read(number: float) -> None:
    text = repr(number).replace("inf", "Infinity").encode()
    assert double(text) == number
    if math.isfinite(number):
        assert double(b" " + text + b"d\t") == number
        hexadecimal = number.hex().encode()
        assert double(hexadecimal) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((b"1e999", math.inf), (b"-1e999", -math.inf), (b"0x1p5000", math.inf), (b"-0x1p5000", -math.inf)),
        *((b"0x1p-5000", 0.0), (b"0x0p99999999999", 0.0), (b".5", 0.5), (b"5.", 5.0), (b"5F", 5.0), (b"+5e-1D", 0.5)),
        *((b"0X.8P1", 1.0), (b"0x1.p1f", 2.0)),
    ],
)
def test_unusual_doubles_are_read(text: bytes, number: float) -> None:
    assert double(text) == number


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b".",
        b"e5",
        b"5e",
        b"1_0",
        b"nan",
        b"inf",
        b"infinity",
        b"0x1",
        b"0x.p1",
        b"5ff",
        b"Infinityf",
        b"\xef\xbc\x95",
    ],
)
def test_no_double_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        double(text)


@pytest.mark.parametrize(
    "text", [b"1" * 30_000 + b"x", b" " * 30_000 + b"x", b"1" + b" " * 30_000 + b"x", b"1e" + b"1" * 30_000 + b"x"]
)
def test_long_value_that_is_no_double_is_refused_in_linear_time(text: bytes) -> None:
    for _ in range(20):
        with pytest.raises(ValueError):
            double(text)


def test_double_order_is_total() -> None:
    ascending = [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]
    for i, left in enumerate(ascending):
        for j, right in enumerate(ascending):
            assert (double_order(left, right) > 0) is (i > j)
            assert (double_order(left, right) < 0) is (i < j)


def test_number_order_converts_integers_beside_doubles() -> None:
    assert number_order(2**53 + 1, 2**53) > 0
    assert number_order(2**53 + 1, float(2**53)) == 0


def test_same_text_sees_malformed_bytes_as_java_does() -> None:
    assert same_text(b"\xff", b"\xfe")
    assert not same_text(b"\xff", b"a")
    assert not same_text("é".encode(), "è".encode())
