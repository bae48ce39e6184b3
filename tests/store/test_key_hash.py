from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.message.hashing import java_string_hash
from fusee.store.key_hash import index_hash, index_hashes, java_string_hashes, joined_hashes, topic_prefix_hash

ASCII = st.text(st.characters(max_codepoint=127), max_size=40)
ANY = st.text(st.characters(), max_size=40)


@given(st.lists(ASCII, max_size=20))
def test_hashes_when_texts_are_ascii_equal_those_of_single_texts(texts: list[str]) -> None:
    assert java_string_hashes(texts).tolist() == [java_string_hash(text) for text in texts]


@given(st.lists(ANY, max_size=20))
def test_hashes_when_texts_have_any_characters_equal_those_of_single_texts(texts: list[str]) -> None:
    assert java_string_hashes(texts).tolist() == [java_string_hash(text) for text in texts]


@pytest.mark.parametrize(
    "texts",
    [
        [""],
        ["", ""],
        ["ab", ""],
        ["", "ab", "", "c"],
        ["a\U0001f600b", "\ud800"],
        ["polygenelubricants"],
        ["x" * 65_535, "y", "z" * 65_536, "", "w" * 65_537, "end"],
        ["ü" * 70_000, "k"],
        [f"order-{number}" for number in range(20_000)],
    ],
)
def test_hashes_when_texts_are_empty_or_long_equal_those_of_single_texts(texts: list[str]) -> None:
    assert java_string_hashes(texts).tolist() == [java_string_hash(text) for text in texts]


@given(st.lists(st.tuples(ANY, ANY), max_size=20))
def test_joined_hashes_when_a_topic_stands_before_hash_the_whole(pairs: list[tuple[str, str]]) -> None:
    prefixes = [topic_prefix_hash(topic) for topic, _ in pairs]
    expected = [java_string_hash(f"{topic}#{key}") for topic, key in pairs]
    assert joined_hashes(prefixes, [key for _, key in pairs]).tolist() == expected


def test_joined_hashes_when_a_key_is_longer_than_the_table_hash_the_whole() -> None:
    key = "k" * 70_000
    assert joined_hashes([topic_prefix_hash("t")], [key]).tolist() == [java_string_hash("t#" + key)]


def test_index_hashes_when_sign_is_lost_have_no_counterpart_for_the_smallest() -> None:
    hashes = np.array([0, 7, -7, 2**31 - 1, 1 - 2**31, -(2**31)], dtype=np.int32)
    assert index_hashes(hashes).tolist() == [0, 7, 7, 2**31 - 1, 2**31 - 1, 0]


@given(ANY, ANY)
def test_index_hash_when_of_one_key_equals_that_of_many(topic: str, key: str) -> None:
    assert index_hashes(joined_hashes([topic_prefix_hash(topic)], [key])).tolist() == [index_hash(topic, key)]


def test_index_hash_when_hash_code_is_the_smallest_number_is_zero() -> None:
    # A key of six letters whose values, as digits to the base 31, make up what is missing to -2**31.
    missing = (-(2**31) - java_string_hash("t#") * 31**6) % 2**32
    letters: list[str] = []
    for _ in range(5):
        missing, digit = divmod(missing, 31)
        letters.append(chr(digit))
    letters.append(chr(missing))
    key = "".join(reversed(letters))
    assert java_string_hash("t#" + key) == -(2**31)
    assert index_hash("t", key) == 0
