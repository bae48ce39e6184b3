"""Reads the JSON that FastJSON 1.2.83 writes, which is not always JSON.

Strict JSON is read by msgspec. Only what msgspec refuses comes to the scanner of this module, which takes:

- bare integer keys, `{0:"127.0.0.1:10911"}`: they become int;
- bare identifiers as keys, `{topic:"t"}`: they become str;
- objects as keys, `{{"brokerName":"b","queueId":0,"topic":"t"}:5}`: they become `ObjectKey`;
- single quotes, raw control characters in strings, the escapes `\\'` `\\v` `\\xHH` `\\0`..`\\7`;
- leading, doubled and trailing commas;
- references: an object with nothing but a `$ref` text stands for another one, `{"$ref":"$.a.b[0]"}` for the
  one at that path from the root, `@` for the container around, `..` for the container around that one. A path
  that leads nowhere is null, as in Java.

Not taken, though Java does: comments, missing commas, `undefined`, `NaN`, `Set[...]`, suffixed numbers.

Input is bounded in size and depth, and every refusal is a ProtocolError that names the character. `loads`
gives a value that contains itself if the peer says so. `decode_json` does not: it refuses cycles, and
references that unfold to more than `NODES_MAX` values. For it a null in an object is the same as nothing, so
that the default of the field holds.

The writers are re-exported from `json_writer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeVar, cast

import msgspec

from fusee.errors import ProtocolError
from fusee.wire.json_writer import dumps_browser, dumps_fastjson, dumps_plain

__all__ = [
    "ObjectKey",
    "decode_json",
    "dumps_browser",
    "dumps_fastjson",
    "dumps_plain",
    "loads",
]

SIZE_MAX: Final = 16 * 1024 * 1024  # the largest frame there is
DEPTH_MAX: Final = 128
NODES_MAX: Final = 250_000

T = TypeVar("T")


class ObjectKey(Mapping[str, Any]):
    """An object in key position: an immutable, hashable mapping (lists in it become tuples)."""

    __slots__ = ("_fields", "_hash")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {key: _frozen(value) for key, value in fields.items()}
        self._hash = hash(frozenset(self._fields.items()))

    def __getitem__(self, key: str) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ObjectKey):
            return self._fields == other._fields
        return self._fields == other

    def __repr__(self) -> str:
        return f"ObjectKey({self._fields!r})"


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return ObjectKey(value)
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


def loads(data: bytes | bytearray | memoryview, *, size_max: int = SIZE_MAX) -> Any:
    """The value in this text: dict, list, str, int, float, bool or None. Raises ProtocolError.

    Strict JSON costs next to nothing; the dialect is read at some megabytes per second, so a server that need not
    take large texts does well to lower `size_max`.
    """
    _check_size(data, size_max)
    return _read(data)[0]


def decode_json(data: bytes | bytearray | memoryview, value_type: type[T], *, size_max: int = SIZE_MAX) -> T:
    """The text as a value of this type, numbers in quotes included. Raises ProtocolError naming the place."""
    _check_size(data, size_max)
    # A struct whose fields are all optional would swallow a reference and come out empty.
    if b"$ref" not in bytes(data):
        try:
            return cast("T", _decoder(cast("Any", value_type)).decode(data))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass  # the general way decides, and finds the words
    value, has_references = _read(data)
    if has_references:
        _check_finite(value)
    try:
        return msgspec.convert(_without_nulls(value, 0), value_type, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"JSON is no {_name(value_type)}: {error}") from error


@lru_cache(maxsize=512)
def _decoder(value_type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(value_type, strict=False)


def _name(value_type: Any) -> str:
    return getattr(value_type, "__name__", None) or str(value_type)


def _check_size(data: bytes | bytearray | memoryview, size_max: int) -> None:
    if len(data) > size_max:
        raise ProtocolError(f"JSON of {len(data)} bytes is over the limit of {size_max}")


def _read(data: bytes | bytearray | memoryview) -> tuple[Any, bool]:
    """The value, and whether there are references in it."""
    data = bytes(data)
    if b"$ref" not in data:
        try:
            return msgspec.json.decode(data), False
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"JSON is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from error
    scanner = _Scanner(text)
    try:
        return scanner.document(), bool(scanner.references)
    except RecursionError as error:
        raise ProtocolError(f"JSON is nested too deep to read at character {scanner.position}") from error


def _without_nulls(value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ProtocolError(f"JSON is nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {
            key: _without_nulls(item, depth + 1) if isinstance(item, (dict, list)) else item
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(i, depth + 1) if isinstance(i, (dict, list)) else i for i in value]
    return value


def _check_finite(root: Any) -> None:
    """Refuse a value that contains itself, or whose references unfold beyond all bounds."""
    sizes: dict[int, int] = {}  # unfolded size by identity; 0 while the container is open
    stack = [(root, False)]
    while stack:
        value, seen_children = stack.pop()
        if not isinstance(value, (dict, list)):
            continue
        children = list(value.values() if isinstance(value, dict) else value)
        if seen_children:
            sizes[id(value)] = size = 1 + sum(sizes.get(id(child), 1) for child in children)
            if size > NODES_MAX:
                raise ProtocolError(f"JSON references unfold to more than {NODES_MAX} values")
        elif id(value) not in sizes:
            sizes[id(value)] = 0
            stack.append((value, True))
            stack.extend((child, False) for child in children)
        elif sizes[id(value)] == 0:
            raise ProtocolError("JSON refers to an object that contains the reference")


_SPACE: Final = re.compile(r"[ \t\r\n\f\b]*")
_COMMAS: Final = re.compile(r"[ \t\r\n\f\b,]*")
# Most values in one step, with the space around them: text without escapes, short integers, words.
_SIMPLE: Final = re.compile(
    r"""[ \t\r\n\f\b]*(?:"([^"\\]*)"|(-?[0-9]{1,18})(?![\w.])|(true|false|null)(?![\w$]))[ \t\r\n\f\b]*""", re.ASCII
)
_SIMPLE_KEY: Final = re.compile(r'"([^"\\]*)"')
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![\w.])", re.ASCII)
_BARE_INTEGER: Final = re.compile(r"-?[0-9]+(?![\w.])", re.ASCII)
_BARE_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_WORDS: Final = {"true": True, "false": False, "null": None}
_STRINGS: Final = {
    '"': re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {
    **dict(zip("bfFnrtv\"'\\/", "\b\f\f\n\r\t\v\"'\\/", strict=True)),
    **{str(digit): chr(digit) for digit in range(8)},
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DIGITS_MAX: Final = 400  # more than the largest double has
_STEP: Final = re.compile(r"""\.((?:[^.\[\\]|\\.)+)|\[(-?[0-9]{1,18})\]|\[(?:"([^"]*)"|'([^']*)')\]""")


class _Scanner:
    """One pass over one text; `references` are the places to fill in once everything is known."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.references: list[tuple[dict[Any, Any] | list[Any], Any, str, tuple[Any, ...]]] = []
        self._open: list[Any] = []

    def document(self) -> Any:
        value = self._value()
        self._skip(_SPACE)
        if self.position < len(self.text):
            self._refuse("text after the end of the value")
        if isinstance(value, _Reference):
            value = {"$ref": value.path}  # at the root it can stand for nothing, and Java lets it be
        for container, key, path, around in self.references:
            container[key] = self._resolve(value, path, around)
        return value

    def _value(self) -> Any:
        simple = _SIMPLE.match(self.text, self.position)
        if simple is not None:
            self.position = simple.end()
            kind = simple.lastindex
            return simple[1] if kind == 1 else int(simple[2]) if kind == 2 else _WORDS[simple[3]]
        self._skip(_SPACE)
        mark = self.text[self.position : self.position + 1]
        if mark == "{":
            return self._object()
        if mark == "[":
            return self._array()
        if mark in _STRINGS:
            return self._string(mark)
        return self._number()

    def _enter(self, container: Any) -> None:
        if len(self._open) >= DEPTH_MAX:
            self._refuse(f"nesting deeper than {DEPTH_MAX}")
        self._open.append(container)
        self.position += 1
        self._skip(_COMMAS)

    def _separate(self, close: str) -> None:
        """After an element: a comma or the end."""
        mark = self.text[self.position : self.position + 1]
        if mark not in (",", close):
            self._skip(_SPACE)
            mark = self.text[self.position : self.position + 1]
        if mark == ",":
            self._skip(_COMMAS)
        elif mark != close:
            self._refuse(f"expected ',' or '{close}'")

    def _closed(self, close: str) -> bool:
        if self.text[self.position : self.position + 1] != close:
            return False
        self.position += 1
        self._open.pop()
        return True

    def _array(self) -> list[Any]:
        items: list[Any] = []
        self._enter(items)
        while not self._closed("]"):
            self._keep(items, len(items), self._value())
            self._separate("]")
        return items

    def _object(self) -> Any:
        fields: dict[Any, Any] = {}
        self._enter(fields)
        while not self._closed("}"):
            key = self._key()
            if self.text[self.position : self.position + 1] != ":":
                self._skip(_SPACE)
                if self.text[self.position : self.position + 1] != ":":
                    self._refuse("expected ':'")
            self.position += 1
            self._keep(fields, key, self._value())
            self._separate("}")
        if len(fields) == 1 and isinstance(path := fields.get("$ref"), str):
            return _Reference(path)
        return fields

    def _keep(self, container: dict[Any, Any] | list[Any], key: Any, value: Any) -> None:
        if isinstance(value, _Reference):
            self.references.append((container, key, value.path, tuple(self._open[-2:])))
            value = None
        if isinstance(container, list):
            container.append(value)
        else:
            container[key] = value

    def _key(self) -> Any:
        simple = _SIMPLE_KEY.match(self.text, self.position)
        if simple is not None:
            self.position = simple.end()
            return simple[1]
        mark = self.text[self.position : self.position + 1]
        if mark in _STRINGS:
            return self._string(mark)
        if mark == "{":
            before = len(self.references)
            key = self._object()
            if isinstance(key, _Reference) or len(self.references) > before:
                self._refuse("a reference in key position")
            return ObjectKey(key)
        if integer := _BARE_INTEGER.match(self.text, self.position):
            return self._integer(integer)
        if name := _BARE_NAME.match(self.text, self.position):
            self.position = name.end()
            return name[0]
        return self._refuse("expected a key or '}'")

    def _string(self, quote: str) -> str:
        found = _STRINGS[quote].match(self.text, self.position)
        if found is None:
            self._refuse("string without end")
        text = found[1]
        if "\\" in text:
            text = _ESCAPE.sub(self._escape, text)
            if _SURROGATE.search(text):
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        self.position = found.end()
        return text

    def _escape(self, escape: re.Match[str]) -> str:
        mark = escape[1]
        if len(mark) > 1:
            return chr(int(mark[1:], 16))
        plain = _ESCAPES.get(mark)
        return self._refuse(f"unknown escape \\{mark} in the string") if plain is None else plain

    def _number(self) -> int | float:
        found = _NUMBER.match(self.text, self.position)
        if found is None:
            self._refuse("expected a value")
        if found[1] is None and found[2] is None:
            return self._integer(found)
        number = float(found[0])
        if number in (float("inf"), float("-inf")):
            self._refuse("number out of range")
        self.position = found.end()
        return number

    def _integer(self, found: re.Match[str]) -> int:
        if found.end() - found.start() > _DIGITS_MAX:
            self._refuse(f"integer of more than {_DIGITS_MAX} digits")
        self.position = found.end()
        return int(found[0])

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self.text, self.position)
        if found is not None:
            self.position = found.end()

    def _refuse(self, why: str) -> NoReturn:
        near = self.text[self.position : self.position + 16]
        raise ProtocolError(f"JSON: {why} at character {self.position}, before {near!r}")

    @staticmethod
    def _resolve(root: Any, path: str, around: tuple[Any, ...]) -> Any:
        if path == "@":
            return around[-1]
        if path == "..":
            return around[-2] if len(around) > 1 else None
        if not path.startswith("$"):
            return None
        value = root
        position = 1
        while position < len(path):
            step = _STEP.match(path, position)
            if step is None:
                return None
            position = step.end()
            value = _child(value, step)
        return value


class _Reference:
    """A `$ref` object on its way to the container that will hold it."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


def _child(value: Any, step: re.Match[str]) -> Any:
    name, index, *quoted = step.groups()
    if index is not None and isinstance(value, list):
        position = int(index)
        return value[position] if -len(value) <= position < len(value) else None
    if not isinstance(value, dict):
        return None
    if index is not None:  # a map with integer keys, bare or quoted
        return value.get(int(index), value.get(index))
    key = re.sub(r"\\(.)", r"\1", name) if name is not None else next(q for q in quoted if q is not None)
    return value.get(key)
