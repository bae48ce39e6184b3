"""Writes JSON as FastJSON 1.2.83 does, byte for byte where Java's own order is defined.

Common to both dialects: fields of a struct in alphabetical order of their wire names, nulls left out of
objects, enums by name, bytes in base64, floating point as Java prints it.

- `dumps_fastjson`, Java's default: integer keys bare, objects as keys in key position, text as UTF-8.
- `dumps_browser`, what a route query of a newer client gets (Java: SerializerFeature.BrowserCompatible with
  MapSortField): keys quoted and sorted, text in ASCII with `/` escaped, integers of 2**53 and more quoted.
- `dumps_plain` is strict JSON by msgspec, for readers that do not care.
"""

from __future__ import annotations

import base64
import enum
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

_plain_encoder: Final = msgspec.json.Encoder()


def dumps_plain(value: Any) -> bytes:
    """Strict JSON: structs in the order of their declaration, nulls included."""
    return _plain_encoder.encode(value)


def dumps_fastjson(value: Any) -> bytes:
    """FastJSON's default dialect."""
    return _FastJson().text(value).encode("utf-8", "replace")


def dumps_browser(value: Any) -> bytes:
    """FastJSON's browser-compatible dialect with sorted maps: strict JSON in ASCII."""
    return _Browser().text(value).encode("ascii")


_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if code <= 0xFFFF:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def _browser_escape(found: re.Match[str]) -> str:
    return "\\/" if found[0] == "/" else _escape(found)


_UNSAFE: Final = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_UNSAFE_IN_BROWSER: Final = re.compile(r'["\\/]|[^\x20-\x7e]')


@cache  # one entry per struct type
def _fields_in_order(struct_type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """(attribute, `"wireName":`) by wire name."""
    named = sorted((field.encode_name, field.name) for field in msgspec.structs.fields(struct_type))
    return tuple((attribute, f'"{wire_name}":') for wire_name, attribute in named)


def _java_double(number: float) -> str:
    """As Double.toString: plain between 1e-3 and 1e7, computerized scientific notation elsewhere."""
    if not math.isfinite(number):
        return "null"
    size = abs(number)
    if size == 0 or 1e-3 <= size < 1e7:
        return repr(number)
    # repr has the shortest digits that read back as the same number; only their layout differs.
    digits, _, exponent = repr(number).partition("e")
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    shift = int(exponent or 0) + len(whole) - 1
    significant = (whole + fraction).lstrip("0")
    shift -= len(whole + fraction) - len(significant) if whole == "0" else 0
    significant = significant.rstrip("0") or "0"
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E{shift}"


class _FastJson:
    """The walk over a value; one method per difference between the dialects."""

    def text(self, value: Any) -> str:
        if isinstance(value, str) and not isinstance(value, enum.Enum):
            return self.string(value)
        if value is None or value is msgspec.UNSET:
            return "null"
        if value is True:
            return "true"
        if value is False:
            return "false"
        if isinstance(value, enum.Enum):
            return self.string(value.name)
        if isinstance(value, int):
            return self.integer(value)
        if isinstance(value, float):
            return _java_double(value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return f"[{','.join(map(self.text, value))}]"
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f'"{base64.b64encode(value).decode()}"'
        raise TypeError(f"no JSON form for {type(value).__name__}")

    def _struct(self, value: msgspec.Struct) -> str:
        parts = []
        for attribute, name in _fields_in_order(type(value)):
            item = getattr(value, attribute)
            if item is not None and item is not msgspec.UNSET:
                parts.append(name + self.text(item))
        return f"{{{','.join(parts)}}}"

    def _mapping(self, value: Mapping[Any, Any]) -> str:
        parts = [f"{self.key(k)}:{self.text(v)}" for k, v in self.ordered(value) if v is not None]
        return f"{{{','.join(parts)}}}"

    def string(self, value: str) -> str:
        return f'"{_UNSAFE.sub(_escape, value)}"'

    def integer(self, value: int) -> str:
        return str(int(value))

    def key(self, value: Any) -> str:
        return self.text(value)

    def ordered(self, value: Mapping[Any, Any]) -> Any:
        return value.items()


class _Browser(_FastJson):
    """Every key a string, everything in order, nothing beyond ASCII."""

    def string(self, value: str) -> str:
        return f'"{_UNSAFE_IN_BROWSER.sub(_browser_escape, value)}"'

    def integer(self, value: int) -> str:
        return str(int(value)) if abs(value) < 2**53 else f'"{int(value)}"'

    def key(self, value: Any) -> str:
        if isinstance(value, (str, enum.Enum)):
            return self.text(value)
        return self.string(_FastJson().text(value))

    def ordered(self, value: Mapping[Any, Any]) -> Any:
        if all(isinstance(key, str) for key in value):
            return sorted(value.items(), key=_utf16_order)
        try:
            return sorted(value.items(), key=_natural_order)
        except TypeError:  # keys without an order keep the one they have, as in Java
            return value.items()


def _utf16_order(entry: tuple[str, Any]) -> bytes:
    return entry[0].encode("utf-16-be", "surrogatepass")


def _natural_order(entry: tuple[Any, Any]) -> Any:
    return entry[0]
