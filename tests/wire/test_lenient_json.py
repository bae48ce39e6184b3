"""FastJSON's dialect: what Java writes is read, what it reads is written, and nothing else gets through."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import ProtocolError
from fusee.wire.codes import LanguageCode
from fusee.wire.lenient_json import (
    DEPTH_MAX,
    SIZE_MAX,
    ObjectKey,
    decode_json,
    dumps_browser,
    dumps_fastjson,
    dumps_plain,
    loads,
)
from tests.golden import frames


class Pair(msgspec.Struct, rename="camel", kw_only=True):
    first_item: int = 0
    second_item: list[int] = []


class Point(msgspec.Struct, frozen=True, kw_only=True):
    x: int
    y: int


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    zeta: str = "z"
    by_point: dict[Point, float] = {}
    by_number: dict[int, str] = {}
    absent: str | None = None
    inner: Pair | None = None


# Each text was given to FastJSON 1.2.83, and this is what it read.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1,'a':2,b:3,}", {0: 1, "a": 2, "b": 3}),
        ("{-1:2}", {-1: 2}),
        ("{$a:1}", {"$a": 1}),
        ("{null:1}", {"null": 1}),
        ("[1,2,]", [1, 2]),
        ("[,1]", [1]),
        ("[1,,2]", [1, 2]),
        ('{,"a":1,,"b":2}', {"a": 1, "b": 2}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("'x'", "x"),
        ("01", 1),
        ("[99999999999999999999,]", [99999999999999999999]),
        ('"\\x41\\v\\0\\7\\\'\\/\\u0041"', "A\v\0\7'/A"),
        ('"a\nb\tc\x01"', "a\nb\tc\x01"),
        ("'\\ud83d\\ude00'", "😀"),
        ("\ufeff{}", {}),
        (' {"a" : [ 1 , {} ] } ', {"a": [1, {}]}),
        ('{{"q":1}:2}', {ObjectKey({"q": 1}): 2}),
    ],
)
def test_loads_reads_what_java_reads(text: str, value: Any) -> None:
    read = loads(text.encode())
    assert read == value
    assert type(read) is type(value)


def test_loads_when_surrogate_is_alone_replaces_it() -> None:
    assert loads(b"'\\ud83d'") == "\ufffd"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '{"a":[{"x":1}],"b":{"$ref":"$.a[0]"},"c":{"$ref":"$.nope"}}',
            {"a": [{"x": 1}], "b": {"x": 1}, "c": None},
        ),
        ('{"m":{"n":[5,6]},"s":{"$ref":"$.m.n[1]"}}', {"m": {"n": [5, 6]}, "s": 6}),
        ('{"m":{0:{"z":1}},"r":{"$ref":"$.m[0]"}}', {"m": {0: {"z": 1}}, "r": {"z": 1}}),
        ('{"m":{"a.b":{"z":1}},"r":{"$ref":"$.m.a\\\\.b"}}', {"m": {"a.b": {"z": 1}}, "r": {"z": 1}}),
        ('{"m":{"a b":{"z":1}},"r":{"$ref":"$.m[\'a b\']"}}', {"m": {"a b": {"z": 1}}, "r": {"z": 1}}),
        ('[{"x":1},{"$ref":"$[0]"},{"$ref":"$[9]"},{"$ref":"$[0][0]"}]', [{"x": 1}, {"x": 1}, None, None]),
        ('{"$ref":"$"}', {"$ref": "$"}),
        ('{"a":{"$ref":"$","x":1}}', {"a": {"$ref": "$", "x": 1}}),
        ('{"a":{"$ref":5}}', {"a": {"$ref": 5}}),
        ('{"a":{"$ref":"elsewhere"}}', {"a": None}),
        ('{"a":{"$ref":".."}}', {"a": None}),
    ],
)
def test_loads_resolves_references(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


def test_loads_when_reference_names_what_surrounds_it_gives_that_object() -> None:
    root = loads(b'{"a":{"self":{"$ref":"@"},"up":{"$ref":".."},"top":{"$ref":"$"}}}')
    assert root["a"]["self"] is root["a"]
    assert root["a"]["up"] is root
    assert root["a"]["top"] is root


def test_decode_json_when_object_contains_itself_refuses() -> None:
    with pytest.raises(ProtocolError, match="contains the reference"):
        decode_json(b'{"inner":{"$ref":"$"}}', Shape)


def test_decode_json_when_references_unfold_without_end_refuses() -> None:
    levels = ",".join(f'"l{n}":[{{"$ref":"$.l{n - 1}"}},{{"$ref":"$.l{n - 1}"}}]' for n in range(1, 40))
    with pytest.raises(ProtocolError, match="unfold"):
        decode_json(b'{"l0":[1],%b}' % levels.encode(), dict[str, Any])


def test_decode_json_when_references_nest_too_deep_refuses() -> None:
    levels = ",".join(f'"l{n}":[{{"$ref":"$.l{n - 1}"}}]' for n in range(1, 300))
    with pytest.raises(ProtocolError, match="deeper"):
        decode_json(b'{"l0":[1],%b}' % levels.encode(), dict[str, Any])


def test_decode_json_when_object_is_shared_gives_it_twice() -> None:
    pairs = decode_json(b'[{"firstItem":3},{"$ref":"$[0]"}]', list[Pair])
    assert pairs == [Pair(first_item=3), Pair(first_item=3)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a" 1}',
        "{1:2 3:4}",
        "[1 2]",
        "{a-b:1}",
        "{1.5:1}",
        "{[1]:1}",
        '{"a":x}',
        "{:1}",
        '"open',
        "'open\"",
        '"\\q"',
        '"\\u12"',
        "tru",
        "truefalse",
        "nullx",
        "-",
        ".5",
        "1.",
        "1x",
        "1e999",
        "[-1e999,]",
        "1 2",
        '{"a":1} x',
        '{{"$ref":"$"}:1}',
        '{{"a":{"$ref":"$"}}:1}',
        "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1) + ",",
        "{a:" * 100_000,
        "[" * 1_000_000,
        "[" + "9" * 5000 + ",]",
        "\x00",
    ],
    ids=lambda text: text[:16] or "empty",
)
def test_loads_when_text_is_no_value_refuses(text: str) -> None:
    with pytest.raises(ProtocolError):
        loads(text.encode())


def test_loads_when_text_is_bad_names_the_character() -> None:
    with pytest.raises(ProtocolError, match="expected ',' or '}' at character 5, before '3:4}'"):
        loads(b"{1:2 3:4}")


def test_loads_when_bytes_are_no_utf8_names_the_byte() -> None:
    with pytest.raises(ProtocolError, match="byte 2 is 0xff"):
        loads(b"['\xff']")


def test_loads_when_text_is_too_large_refuses() -> None:
    assert loads(b"[1,2,3,4]", size_max=9) == [1, 2, 3, 4]
    with pytest.raises(ProtocolError, match="limit of 8"):
        loads(b"[1,2,3,4]", size_max=8)
    with pytest.raises(ProtocolError, match="limit of 8"):
        decode_json(b"[1,2,3,4]", list[int], size_max=8)
    with pytest.raises(ProtocolError, match="limit of 16777216"):
        loads(b" " * (SIZE_MAX + 1))


def test_loads_when_depth_is_at_the_limit_reads_it() -> None:
    value = loads(b"[" * DEPTH_MAX + b"]" * (DEPTH_MAX - 1) + b",]")
    for _ in range(DEPTH_MAX - 1):
        assert len(value) == 1
        value = value[0]
    assert value == []


def test_object_key_is_hashable_by_content() -> None:
    one = ObjectKey({"a": 1, "b": [1, {"c": 2}]})
    other = ObjectKey({"b": [1, {"c": 2}], "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert {one: 5}[other] == 5
    assert one != ObjectKey({"a": 2})
    assert dict(one) == {"a": 1, "b": (1, ObjectKey({"c": 2}))}


def test_decode_json_reads_object_and_integer_keys_into_their_types() -> None:
    shape = decode_json(b'{"byPoint":{{"x":1,"y":-2}:0.5},"byNumber":{7:"a","8":"b"},"unknown":{}}', Shape)
    assert shape == Shape(by_point={Point(x=1, y=-2): 0.5}, by_number={7: "a", 8: "b"})


def test_decode_json_when_null_is_given_keeps_the_default() -> None:
    assert decode_json(b'{"zeta":null,"byNumber":null,"inner":{"secondItem":null}}', Shape) == Shape(inner=Pair())


def test_decode_json_reads_numbers_in_quotes() -> None:
    assert decode_json(b'{"firstItem":"12","secondItem":["1",2]}', Pair) == Pair(first_item=12, second_item=[1, 2])


@pytest.mark.parametrize("text", [b'{"firstItem":"x"}', b'{"secondItem":3}', b"[]", b'{firstItem:"x"}'])
def test_decode_json_when_shape_is_wrong_refuses(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="JSON is no Pair: Expected"):
        decode_json(text, Pair)


def test_dumps_fastjson_writes_beans_sorted_and_without_nulls() -> None:
    shape = Shape(
        by_point={Point(x=1, y=2): 10.0}, by_number={10: "b", 9: "a"}, inner=Pair(first_item=1, second_item=[2])
    )
    assert dumps_fastjson(shape) == (
        b'{"byNumber":{10:"b",9:"a"},"byPoint":{{"x":1,"y":2}:10.0},'
        b'"inner":{"firstItem":1,"secondItem":[2]},"zeta":"z"}'
    )


def test_dumps_browser_quotes_and_sorts_every_key() -> None:
    value = {"m": {10: "b", 9: "a"}, "é": 1, "😀": 2, "\uffee": 3, "l": 2**53, "s": 2**53 - 1, "n": None, "/": "/"}
    assert dumps_browser(value) == (
        rb'{"\/":"\/","l":"9007199254740992","m":{"9":"a","10":"b"},"s":9007199254740991,'
        rb'"\u00E9":1,"\uD83D\uDE00":2,"\uFFEE":3}'
    )


def test_dumps_browser_when_key_is_an_object_writes_its_text() -> None:
    assert dumps_browser({Point(x=1, y=2): 1}) == rb'{"{\"x\":1,\"y\":2}":1}'


def test_dumps_fastjson_when_map_has_null_leaves_it_out_but_not_in_a_list() -> None:
    assert dumps_fastjson({"a": None, "b": [None, msgspec.UNSET, True, False]}) == b'{"b":[null,null,true,false]}'


def test_dumps_writes_enums_by_name_and_bytes_in_base64() -> None:
    value = {"language": LanguageCode.PYTHON, "bytes": b"\x01\x02\xff", LanguageCode.JAVA: 1}
    assert dumps_fastjson(value) == b'{"language":"PYTHON","bytes":"AQL/","JAVA":1}'


def test_dumps_when_value_has_no_form_refuses() -> None:
    with pytest.raises(TypeError, match="object"):
        dumps_fastjson({"a": object()})


# As Double.toString prints them.
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, b"0.0"),
        (-0.0, b"-0.0"),
        (2.1, b"2.1"),
        (100.0, b"100.0"),
        (9999999.0, b"9999999.0"),
        (1e7, b"1.0E7"),
        (12345678.0, b"1.2345678E7"),
        (123456789.125, b"1.23456789125E8"),
        (1e21, b"1.0E21"),
        (1e300, b"1.0E300"),
        (0.001, b"0.001"),
        (1e-5, b"1.0E-5"),
        (-3.5e-4, b"-3.5E-4"),
        (1.25e-7, b"1.25E-7"),
        (0.1 + 0.2, b"0.30000000000000004"),
        (math.inf, b"null"),
        (math.nan, b"null"),
    ],
)
def test_dumps_writes_doubles_as_java_does(number: float, text: bytes) -> None:
    assert dumps_fastjson(number) == text


# As FastJSON writes them: its own dialect, and browser compatible.
@pytest.mark.parametrize(
    ("text", "own", "browser"),
    [
        ("a\x01b\x7fc", rb'"a\u0001b\u007Fc"', rb'"a\u0001b\u007Fc"'),
        ("\b\t\n\f\r\v", rb'"\b\t\n\f\r\u000B"', rb'"\b\t\n\f\r\u000B"'),
        ("d/e'f\"g\\h<i>(", rb'''"d/e'f\"g\\h<i>("''', rb'''"d\/e'f\"g\\h<i>("'''),
        ("\x80\x9f\u2028\u2029", rb'"\u0080\u009F\u2028\u2029"', rb'"\u0080\u009F\u2028\u2029"'),
        ("\xa0é值😀", '"\xa0é值😀"'.encode(), rb'"\u00A0\u00E9\u503C\uD83D\uDE00"'),
    ],
)
def test_dumps_escapes_as_java_does(text: str, own: bytes, browser: bytes) -> None:
    assert dumps_fastjson(text) == own
    assert dumps_browser(text) == browser


def golden_json() -> list[tuple[str, bytes, Any]]:
    found = []
    for frame in frames():
        text = frame.body_text
        if frame.body is not None or (text is not None and text[:1] in "{["):
            found.append((frame.id, frame.body_bytes, frame.body))
    return found


def test_golden_bodies_are_read_as_java_reads_them() -> None:
    bodies = golden_json()
    assert len(bodies) > 200
    for frame_id, text, value in bodies:
        read = loads(text)
        if value is not None:
            assert read == value, frame_id
            # The scanner must agree with msgspec on strict JSON: a trailing comma sends it there.
            assert loads(b"[" + text + b",]") == [value], frame_id


def test_golden_bodies_are_written_back_byte_for_byte() -> None:
    standard = 0
    for frame_id, text, _ in golden_json():
        value = loads(text)
        # Order of maps is Java's own, and kept by dict; a strict body in browser form is sorted as well.
        assert dumps_fastjson(value) == text or dumps_browser(value) == text, frame_id
        standard += dumps_browser(value) == text
    assert standard > 10


KEYS = st.one_of(
    st.text(max_size=5),
    st.integers(-(2**63), 2**63),
    st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=3)), max_size=3).map(ObjectKey),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
)


def is_reference(value: dict[Any, Any]) -> bool:
    return set(value) == {"$ref"}


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner.filter(lambda value: value is not None), max_size=4).filter(
            lambda value: not is_reference(value)
        ),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_loads_reads_back_what_dumps_fastjson_wrote(value: Any) -> None:
    assert loads(dumps_fastjson(value)) == value


PLAIN = st.recursive(
    SCALARS.filter(lambda value: not isinstance(value, int) or abs(value) < 2**53),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=5), inner.filter(lambda value: value is not None), max_size=4).filter(
            lambda value: not is_reference(value)
        ),
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_both_dialects_of_plain_values_are_strict_json(value: Any) -> None:
    assert msgspec.json.decode(dumps_browser(value)) == value
    assert msgspec.json.decode(dumps_fastjson(value)) == value
    assert msgspec.json.decode(dumps_plain(value)) == value


DIALECT = st.lists(
    st.one_of(
        st.sampled_from(list("{}[]:,'\"\\ 0123456789-+.eEu$@")),
        st.sampled_from(["$ref", '{"$ref":"$', '"$.a[0]"', "null", "true", "false", "\\u00e9", '{"a":', "..", "\n"]),
        st.text(max_size=2),
    ),
    max_size=40,
).map("".join)


@given(DIALECT)
def test_loads_when_text_is_anything_gives_value_or_protocol_error(text: str) -> None:
    for read in (loads, lambda data: decode_json(data, Shape), lambda data: decode_json(data, dict[str, Any])):
        with contextlib.suppress(ProtocolError):
            read(text.encode("utf-8", "replace"))


@given(st.sampled_from([text for _, text, _ in golden_json()]), st.data())
def test_loads_when_golden_body_is_damaged_gives_value_or_protocol_error(text: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    until = data.draw(st.integers(at, min(len(text), at + 8)))
    damaged = text[:at] + data.draw(st.binary(max_size=4)) + text[until:]
    with contextlib.suppress(ProtocolError):
        loads(damaged)
