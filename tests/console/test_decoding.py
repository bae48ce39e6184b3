"""Bodies for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.console.decoding import Form, decoded


@pytest.mark.parametrize(
    ("body", "form", "shown_as", "text"),
    [
        (b'{"a":1}', "auto", "json", '{\n  "a": 1\n}'),
        (b'{"a":1}', "text", "text", '{"a":1}'),
        (b"{broken", "auto", "text", "{broken"),
        (b"{broken", "json", "text", "{broken"),
        ("grüße\n".encode(), "auto", "text", "grüße\n"),
        (b"\x00\x01", "auto", "hex", "00000000  00 01                                            .."),
        (b"\x00\x01", "text", "text", "\x00\x01"),
        (b"\xff", "text", "hex", "00000000  ff                                               ."),
        (b"", "auto", "text", ""),
    ],
)
def test_the_form_that_fits(body: bytes, form: Form, shown_as: str, text: str) -> None:
    found = decoded(body, form)
    assert (found.form, found.text, found.size) == (shown_as, text, len(body))


@given(st.binary(max_size=300), st.sampled_from(["auto", "text", "json", "hex"]))
def test_anything_is_shown_and_long_ones_are_cut(body: bytes, form: Form) -> None:
    found = decoded(body, form, shown_max=64)
    assert found.size == len(body)
    assert found.is_cut == (len(body) > 64)
