"""Values survive the way through a body; what cannot go or come is told with its type, place and first bytes."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import json
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.client.payloads import SHOWN_BYTES, decode_body, decoder, encode_body
from fusee.errors import PayloadError


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    sku: str
    count: int


@dataclass
class Order:
    number: int
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Payment(msgspec.Struct, frozen=True):
    amount: decimal.Decimal
    at: datetime.datetime
    reference: uuid.UUID
    colour: Colour = Colour.RED


class Node(msgspec.Struct):
    """A type that holds itself."""

    name: str
    next: Node | None = None


class Shape(TypedDict):
    size: int


class Point(NamedTuple):
    x: int
    y: int


class Model:
    """What pydantic promises of its models: the same methods, a ValueError for what is wrong."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.size == self.size

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        if not isinstance(value, dict) or not isinstance(value.get("size"), int):
            raise ValueError("1 validation error for Model: size")  # noqa: TRY004 - as pydantic
        return cls(value["size"])

    @classmethod
    def model_validate_json(cls, text: bytes) -> Model:
        return cls.model_validate(json.loads(text))

    def model_dump_json(self) -> str:
        return json.dumps({"size": self.size})


class Foreign:
    """A class that nobody knows how to write."""


PAYMENT = Payment(decimal.Decimal("12.50"), datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC), uuid.UUID(int=7))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (b"\x00\xff", bytes),
        (bytearray(b"\x00\xff"), bytearray),
        ("größer 😀", str),
        (Order(1, [Line("a", 2)], "x"), Order),
        (PAYMENT, Payment),
        (Node("a", Node("b")), Node),
        ({"size": 3}, Shape),
        (Point(1, 2), Point),
        ({"a": [1, 2.5, None, True]}, dict[str, list[Any]]),
        ([Line("a", 1)], list[Line]),
        (7, int),
        (Model(4), Model),
        ([Model(4), Model(5)], list[Model]),
        ({"a": Model(4)}, dict[str, Model]),
        (Line("a", 1), Line | None),
    ],
)
def test_value_comes_back_as_it_went(value: Any, type_: Any) -> None:
    body = encode_body(value)
    assert type(body) is bytes
    assert decoder(type_)(body) == value
    assert decode_body(body, type_) == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_comes_back_as_it_went(value: Any) -> None:
    assert decoder(dict[str, Any])(encode_body({"": value})) == {"": value}


@given(st.binary(max_size=64), st.sampled_from([bytes, str, int, Order, Payment, Model, list[Model], Any]))
def test_decoder_returns_or_raises_payload_error(body: bytes, type_: Any) -> None:
    with contextlib.suppress(PayloadError):
        decode_body(body, type_)


def test_encode_body_of_memoryview_is_its_bytes() -> None:
    assert encode_body(memoryview(b"abcd")[1:3]) == b"bc"


def test_decoder_of_memoryview_gives_one() -> None:
    assert bytes(decoder(memoryview)(b"abc")) == b"abc"


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (None, "there is no body"),
        ("\ud800", "lone surrogate at position 0"),
        (Foreign(), "a Foreign has no JSON form"),
        ([Foreign()], "within it is a Foreign"),
        (1j, "complex has no JSON form"),
    ],
)
def test_encode_body_of_what_has_no_form_names_it(value: object, cause: str) -> None:
    with pytest.raises(PayloadError, match=cause):
        encode_body(value)


def test_encode_body_of_value_within_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PayloadError, match="list has no JSON form"):
        encode_body(endless)


@pytest.mark.parametrize(
    ("body", "type_", "cause"),
    [
        (b'{"number": "x"}', Order, r"is no Order: Expected `int`, got `str` - at `\$.number`"),
        (b"{", Order, "is no Order: Input data was truncated"),
        (b'{"a" 1}', dict, r"is no dict: .*byte 5"),
        (b"", Order, "an empty body is no Order"),
        (b"ab\xff", str, r"is no str: it is not UTF-8 \(byte 2\)"),
        (b"{}", Model, "is no Model: 1 validation error"),
        (b'[{"size": "x"}]', list[Model], r"is no list\[.*Model\]: 1 validation error"),
    ],
)
def test_decoder_of_wrong_body_names_type_place_and_bytes(body: bytes, type_: Any, cause: str) -> None:
    with pytest.raises(PayloadError, match=cause) as caught:
        decode_body(body, type_)
    if body:
        assert repr(body) in str(caught.value)


def test_decoder_of_long_body_shows_its_beginning_only() -> None:
    with pytest.raises(PayloadError) as caught:
        decode_body(b"x" * 1000, Order)
    assert "b'" + "x" * SHOWN_BYTES + "'..." in str(caught.value)
    assert "1000 bytes" in str(caught.value)


@dataclass
class Holder:
    inner: dict[str, list[Foreign]]


@pytest.mark.parametrize("type_", [Foreign, list[Foreign], Holder, Foreign | int])
def test_decoder_of_type_that_no_body_can_become_is_refused_at_once(type_: Any) -> None:
    with pytest.raises(PayloadError, match="no body can become"):
        decoder(type_)


def test_decoder_of_union_that_json_cannot_tell_apart_is_refused_at_once() -> None:
    with pytest.raises(PayloadError, match="no body can become"):
        decoder(Line | Order)


def test_body_when_type_is_a_real_pydantic_model_is_validated_by_it() -> None:
    class Order(pydantic.BaseModel):
        number: int
        region: str = "eu"

    assert decoder(Order)(b'{"number": "7"}') == Order(number=7)
    assert decoder(list[Order])(b'[{"number": 1}]') == [Order(number=1)]
    assert decoder(Order)(encode_body(Order(number=3, region="us"))) == Order(number=3, region="us")
    with pytest.raises(PayloadError, match="number"):
        decoder(Order)(b'{"number": "seven"}')
