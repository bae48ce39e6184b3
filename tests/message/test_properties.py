from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.properties import (
    PROPERTIES_SIZE_MAX,
    RESERVED_NAMES,
    check_property,
    decode_properties,
    encode_properties,
    find_keys,
    find_property,
    find_tag,
    find_unique_id,
    join_properties,
    remove_property,
)
from tests.message import strategies


@given(strategies.properties)
def test_decode_when_encoded_gives_the_same_map(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


def test_encode_when_map_is_empty_gives_nothing() -> None:
    assert encode_properties({}) == b""


def test_encode_when_given_entries_ends_each_with_its_separator() -> None:
    assert encode_properties({"TAGS": "Grüße", "k": "v"}) == b"TAGS\x01Gr\xc3\xbc\xc3\x9fe\x02k\x01v\x02"


# What the Java 5.5.0 decoder makes of the same strings.
@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        (b"", {}),
        (b"a\x01\x02b\x01c", {"b": "c"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"\x01x\x02k\x01v", {"k": "v"}),
        (b"nokv\x02k\x01v", {"k": "v"}),
        (b"k\x01v\x02k\x01w\x02", {"k": "w"}),
        (b"k\x01v\x02k\x01\x02", {"k": "v"}),
        (b"x\x02\x02y\x01z", {"y": "z"}),
    ],
)
def test_decode_when_string_is_untidy_reads_what_java_reads(raw: bytes, decoded: dict[str, str]) -> None:
    assert decode_properties(raw) == decoded


@given(st.one_of(st.binary(max_size=60), strategies.untidy_properties))
def test_decode_when_bytes_are_arbitrary_never_fails(raw: bytes) -> None:
    assert all(name and value for name, value in decode_properties(raw).items())


@given(strategies.untidy_properties)
def test_find_when_string_is_untidy_agrees_with_decoding(raw: bytes) -> None:
    decoded = {name.encode(): value for name, value in decode_properties(raw).items() if "\ufffd" not in name}

    def text(found: bytes | None) -> str | None:
        return None if found is None else found.decode("utf-8", "replace")

    for name in (b"a", b"b", b"aTAGS", b"KEYSb", b"missing"):
        assert text(find_property(raw, name)) == decoded.get(name)
    assert text(find_tag(raw)) == decoded.get(b"TAGS")
    assert text(find_keys(raw)) == decoded.get(b"KEYS")
    assert find_unique_id(raw) is None


def test_find_unique_id_when_present_gives_it() -> None:
    assert find_unique_id(b"TAGS\x01t\x02UNIQ_KEY\x01ABC\x02") == b"ABC"
    assert find_unique_id(b"UNIQ_KEY\x01ABC") == b"ABC"


@given(strategies.untidy_properties, st.sampled_from([b"a", b"TAGS", b"missing"]))
def test_remove_when_done_leaves_exactly_the_others(raw: bytes, name: bytes) -> None:
    removed = decode_properties(raw)
    removed.pop(name.decode(), None)
    assert decode_properties(remove_property(raw, name)) == removed


def test_remove_when_name_is_absent_gives_the_same_object() -> None:
    raw = b"a\x01b\x02"
    assert remove_property(raw, b"b") is raw


@given(strategies.untidy_properties, strategies.properties)
def test_join_when_both_have_a_name_lets_the_second_win(raw: bytes, more: dict[str, str]) -> None:
    assert decode_properties(join_properties(raw, encode_properties(more))) == {**decode_properties(raw), **more}


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_encode_when_a_separator_is_inside_names_the_property(separator: str) -> None:
    with pytest.raises(MessageError, match=r"value of property 'colour' contains '\\x0[12]'"):
        encode_properties({"n": "v", "colour": f"re{separator}d"})
    with pytest.raises(MessageError, match="name of property"):
        encode_properties({f"n{separator}": "v"})


def test_encode_when_separators_make_up_for_each_other_is_still_refused() -> None:
    with pytest.raises(MessageError, match="contains"):
        encode_properties({"a": "1\x02b\x012", "b": "x"})


@pytest.mark.parametrize(("name", "value"), [("", "v"), ("n", "")])
def test_encode_when_name_or_value_is_empty_is_refused(name: str, value: str) -> None:
    with pytest.raises(MessageError, match="empty"):
        encode_properties({name: value})


@pytest.mark.parametrize(("name", "value"), [("n", 5), ("n", None), (5, "v"), ("n", b"v")])
def test_encode_when_something_is_not_text_says_which(name: Any, value: Any) -> None:
    with pytest.raises(MessageError, match="names and values are text"):
        encode_properties({name: value})


def test_encode_when_text_holds_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(MessageError, match="surrogate"):
        encode_properties({"n": "\ud800"})


def test_encode_when_at_the_limit_is_accepted_and_one_byte_more_refused() -> None:
    longest = "x" * (PROPERTIES_SIZE_MAX - 3)
    assert len(encode_properties({"k": longest})) == 32767
    with pytest.raises(MessageError, match="32768 bytes, the limit is 32767; the largest is 'k'"):
        encode_properties({"k": longest + "x"})
    with pytest.raises(MessageError, match="32768 bytes"):
        encode_properties({"k": longest[:-1] + "ü"})


def test_check_property_when_fine_is_silent() -> None:
    check_property("name", "value")


def test_reserved_names_when_counted_are_those_of_java() -> None:
    assert len(RESERVED_NAMES) == 54
    assert {"TAGS", "KEYS", "UNIQ_KEY", "__CRC32#", "_SYS_MSG_PRIORITY_", "1ST_POP_TIME"} < RESERVED_NAMES
    assert "__SHARDINGKEY" not in RESERVED_NAMES
