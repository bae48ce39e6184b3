"""Command header as JSON: strict and fast first, then lenient for what real clients send.

Keys are written in alphabetical order, as FastJSON does, so that our bytes equal Java's for equal values. Absent
`remark` and `extFields` are left out. Readers ignore unknown keys and `serializeTypeCurrentRPC`.

Sloppiness that is accepted, seen in C++, Node and old Java clients: missing `language`, `version`, `flag`,
`remark` or `serializeTypeCurrentRPC`; `language` unknown or as a number; numbers, booleans and nested values in
`extFields` (kept as their text); numbers of the envelope as text.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fusee.errors import ProtocolError
from fusee.wire.codes import LanguageCode
from fusee.wire.command import Command
from fusee.wire.fields import Int32
from fusee.wire.lenient_json import loads

_NAMES: Final = {language: language.name for language in LanguageCode}
LANGUAGES: Final = {language.name: language for language in LanguageCode}


class _Incoming(msgspec.Struct, gc=False):
    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    language: str = "OTHER"
    version: Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the wire's own spelling


class _Outgoing(msgspec.Struct, gc=False):
    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


_decode = msgspec.json.Decoder(_Incoming).decode
_encode = msgspec.json.Encoder().encode


def decode_json_header(header: bytes) -> Command:
    """The command in this header, without a body. Raises ProtocolError when there is none."""
    try:
        h = _decode(header)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _decode_leniently(header)
    language = LANGUAGES.get(h.language, LanguageCode.OTHER)
    return Command(h.code, h.opaque, h.flag, language, h.version, h.remark, h.extFields)


def encode_json_header(command: Command) -> bytes:
    """The header of this command; its body is not looked at."""
    ext_fields = command.ext_fields if command.raw_header is None else command.all_fields()
    return _encode(
        _Outgoing(
            command.code,
            msgspec.UNSET if ext_fields is None else ext_fields,
            command.flag,
            _NAMES[command.language],
            command.opaque,
            msgspec.UNSET if command.remark is None else command.remark,
            "JSON",
            command.version,
        )
    )


def _decode_leniently(header: bytes) -> Command:
    value = loads(header)
    if not isinstance(value, dict):
        raise ProtocolError(f"command header is a JSON {type(value).__name__}, not an object")
    remark = value.get("remark")
    ext_fields = value.get("extFields")
    if ext_fields is not None and not isinstance(ext_fields, dict):
        raise ProtocolError(f"extFields of a command header is a JSON {type(ext_fields).__name__}, not an object")
    return Command(
        _int32(value, "code", None),
        _int32(value, "opaque", 0),
        _int32(value, "flag", 0),
        _language(value.get("language")),
        _int32(value, "version", 0),
        None if remark is None else _text(remark),
        None if ext_fields is None else {_text(k): _text(v) for k, v in ext_fields.items() if v is not None},
    )


def _int32(header: dict[Any, Any], key: str, default: int | None) -> int:
    value = header.get(key, default)
    try:
        return msgspec.convert(value, Int32, strict=False)
    except msgspec.ValidationError as error:
        found = "nothing" if value is None else repr(value)[:40]
        raise ProtocolError(f"command header needs a 32-bit integer as {key}, found {found}") from error


def _language(value: object) -> LanguageCode:
    if isinstance(value, int) and value in LanguageCode.__members__.values():
        return LanguageCode(value)
    return LANGUAGES.get(str(value).upper(), LanguageCode.OTHER)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError("command header has a field whose value is no text, number or plain JSON") from error
