"""What compiled SQL92 expressions call while they look at a message: find a property, read text as Java does.

Values of properties stay the raw UTF-8 bytes they are on disk. Readers of numbers accept exactly what
`Integer.valueOf`, `Long.valueOf` and `Double.valueOf` accept and raise ValueError for the rest, which makes the
message no match. Python alone would also take underscores, other blanks, `inf` and `nan`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_BLANKS: Final = bytes(range(0x21))
# No alternative can match the same digits twice, so that a long value cannot take quadratic time.
_DECIMAL: Final = re.compile(
    rb"[\x00-\x20]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?[\x00-\x20]*"
)
_HEXADECIMAL: Final = re.compile(rb"([+-]?)(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NAMED_DOUBLES: Final = {
    sign + name: value if sign != b"-" else -value
    for name, value in ((b"NaN", math.nan), (b"Infinity", math.inf))
    for sign in (b"", b"+", b"-")
}


def find(framed: bytes, needle: bytes) -> bytes | None:
    r"""The value behind `needle` (\x02 name \x01) in properties framed by \x02 on both sides, or None.

    The same answer as `message.properties.find_property`, in less than half the time.
    """
    at = framed.rfind(needle)
    while at >= 0:
        start = at + len(needle)
        if value := framed[start : framed.find(b"\x02", start)]:
            return value
        # An empty value does not exist; an earlier one of the same name may.
        at = framed.rfind(needle, 0, at)
    return None


def decoded(text: bytes | str) -> str:
    """Text as Java sees it: malformed bytes have become U+FFFD."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def int32(text: bytes) -> int:
    """`Integer.valueOf`; raises ValueError where it throws."""
    if len(text) < 10 and text.isdigit():
        return int(text)
    return _integer(text, INT32_MIN, INT32_MAX)


def int64(text: bytes) -> int:
    """`Long.valueOf`; raises ValueError where it throws."""
    if len(text) < 19 and text.isdigit():
        return int(text)
    return _integer(text, INT64_MIN, INT64_MAX)


def _integer(text: bytes, low: int, high: int) -> int:
    # Java takes the decimal digits of any script, as long as one UTF-16 unit holds them.
    characters = decoded(text)
    digits = characters[1:] if characters[:1] in ("+", "-") else characters
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise ValueError("not an integer")
    value = int(digits.lstrip("0") or "0")
    if characters[0] == "-":
        value = -value
    if not low <= value <= high:
        raise ValueError("out of range")
    return value


def double(text: bytes) -> float:
    """`Double.valueOf`; raises ValueError where it throws."""
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    word = text.strip(_BLANKS)
    named = _NAMED_DOUBLES.get(word)
    if named is not None:
        return named
    if match := _HEXADECIMAL.fullmatch(word):
        try:
            value = float.fromhex(match[2].decode())
        except OverflowError:
            value = math.inf
        return -value if match[1] == b"-" else value
    raise ValueError("not a number")


def boolean(text: bytes) -> bool:
    """`Boolean.valueOf`: whether the text is "true" in whatever case."""
    return text.lower() == b"true"


def double_order(left: float, right: float) -> int:
    """`Double.compareTo`: negative, 0 or positive. NaN is above everything and -0.0 below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return 0 if left else int(math.copysign(1, left) - math.copysign(1, right))
    return (left != left) - (right != right)


def text_order(left: bytes, right: bytes) -> int:
    """The order of two properties, which must both be numbers."""
    return double_order(double(left), double(right))


def number_order(left: float, right: float) -> int:
    """The order of two literals; integers become doubles beside a double."""
    if float in (type(left), type(right)):
        left, right = float(left), float(right)
    return (left > right) - (left < right)


def nothing(_: object) -> None:
    """NULL, once the operand has been evaluated: it might have failed."""


def equal(left: object, right: object, same: Callable[[object, object], bool]) -> bool | None:
    """`left = right` of three-valued logic, Java's way: NULL equals NULL, and only a NULL on the left gives NULL."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return same(left, right)


def same_text(left: bytes, right: bytes) -> bool:
    """Whether two texts are equal for Java, which sees malformed bytes as U+FFFD."""
    if left == right:
        return True
    if left.isascii() or right.isascii():
        return False
    return decoded(left) == decoded(right)


def same_number(left: float, right: float) -> bool:
    """Whether two literals are equal."""
    return number_order(left, right) == 0


def never_same(left: object, right: object) -> bool:
    """Values of types that Java does not convert into each other."""
    return False


def refuse(left: object, right: object) -> NoReturn:
    """A boolean on the left of a text: Java casts the wrong one of the two, and throws."""
    raise ValueError("a boolean cannot be compared with text to its right")
