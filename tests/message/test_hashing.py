from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.hashing import java_string_hash, tags_code


def plain_hash(text: str) -> int:
    """The definition, step by step."""
    code = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) % 2**32
    return code - 2**32 if code >= 2**31 else code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("Grüße", 69215351),
        ("\U0001f600x", 54959989),
        ("polygenelubricants", -2147483648),
        ("FD00000000000000000000000000000226324E0E2F2A4F39AA520007", 918474408),
    ],
)
def test_hash_when_java_computed_it_too_is_equal(text: str, code: int) -> None:
    assert java_string_hash(text) == code


@given(st.text(st.characters(), max_size=40))
def test_hash_when_any_text_follows_the_definition(text: str) -> None:
    assert java_string_hash(text) == plain_hash(text)


@pytest.mark.parametrize("letter", ["~", "\uffff"])
@pytest.mark.parametrize("size", [127, 128, 129, 255, 256, 257, 1000])
def test_hash_when_text_is_longer_than_a_block_follows_the_definition(letter: str, size: int) -> None:
    assert java_string_hash(letter * size) == plain_hash(letter * size)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_tags_code_when_given_utf8_is_the_hash_of_the_text(tag: str) -> None:
    assert tags_code(tag.encode()) == java_string_hash(tag)


def test_tags_code_when_bytes_are_malformed_hashes_the_replacement() -> None:
    assert tags_code(b"a\xff") == java_string_hash("a\ufffd")
