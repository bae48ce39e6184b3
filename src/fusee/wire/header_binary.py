"""Command header in RocketMQ's own binary form.

    int16 code | int8 language | int16 version | int32 opaque | int32 flag
    int32 length, remark text | int32 length of all entries, then per entry: int16 length, key, int32 length, value

Big-endian, text in UTF-8. The code is 16 bits: codes above 32767 (the POP family) do not fit and travel as JSON
only. An empty remark or an empty map reads back as absent, an empty value is kept as an empty text.

Clients repeat themselves: the next header of a connection mostly has the keys and value lengths of an earlier
one. `LayoutMemory` keeps, per length of the entries, a compiled struct whose constant parts (lengths and keys)
are compared in one go, so that most headers are taken apart by two C calls instead of a loop per field.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

from fusee.errors import ProtocolError
from fusee.wire.codes import LanguageCode
from fusee.wire.command import Command

_FIXED: Final = Struct(">hBhiii")
_INT32: Final = Struct(">i")
_KEY_LENGTH: Final = Struct(">h")
_LANGUAGES: Final = {language.value: language for language in LanguageCode}
_CODE_MAX: Final = 2**15 - 1

FIELDS_MAX: Final = 1024


class LayoutMemory:
    """Layouts of the entries seen on one connection, by their total length; bounded, forgetful."""

    __slots__ = ("_layouts",)

    LAYOUTS_MAX: Final = 64
    LAYOUT_FIELDS_MAX: Final = 48

    def __init__(self) -> None:
        self._layouts: dict[int, tuple[Struct, tuple[bytes, ...], tuple[str, ...]]] = {}

    def split(self, header: bytes, start: int, end: int) -> dict[str, str]:
        """The entries in header[start:end] as a map; the last of a repeated key wins."""
        layout = self._layouts.get(end - start)
        if layout is not None:
            shape, constants, keys = layout
            parts = shape.unpack_from(header, start)
            if parts[::2] == constants:
                try:
                    return dict(zip(keys, [value.decode() for value in parts[1::2]], strict=True))
                except UnicodeDecodeError as error:
                    raise ProtocolError(f"binary header has a field that is not UTF-8: {error}") from error
        return self._walk(header, start, end)

    def _walk(self, header: bytes, start: int, end: int) -> dict[str, str]:
        fields: dict[str, str] = {}
        keys: list[str] = []
        constants: list[bytes] = []
        shape: list[str] = [">"]
        position = start
        try:
            while position < end:
                (key_length,) = _KEY_LENGTH.unpack_from(header, position)
                key_start = position + 2
                key_end = key_start + key_length
                (value_length,) = _INT32.unpack_from(header, key_end)
                value_start = key_end + 4
                position = value_start + value_length
                if key_length < 0 or value_length < 0 or position > end:
                    size = f"{key_length}+{value_length} bytes"
                    raise ProtocolError(f"binary header has a field of {size} that does not fit")
                key = header[key_start:key_end].decode()
                fields[key] = header[value_start:position].decode()
                keys.append(key)
                if len(keys) > FIELDS_MAX:
                    raise ProtocolError(f"binary header has more than {FIELDS_MAX} fields")
                constants.append(header[key_start - 2 : value_start])
                shape.append(f"{key_length + 6}s{value_length}s")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"binary header has a field that is not UTF-8: {error}") from error
        except struct.error as error:
            raise ProtocolError("binary header ends inside a field") from error
        if len(keys) <= self.LAYOUT_FIELDS_MAX:
            if len(self._layouts) >= self.LAYOUTS_MAX:
                self._layouts.clear()
            self._layouts[end - start] = (Struct("".join(shape)), tuple(constants), tuple(keys))
        return fields


def decode_binary_header(header: bytes, layouts: LayoutMemory | None = None) -> Command:
    """The command in this header, without a body. Raises ProtocolError when there is none."""
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
        fields_word = _FIXED.size + remark_length
        if remark_length < 0:
            raise ProtocolError(f"binary header has a remark of {remark_length} bytes")
        (fields_length,) = _INT32.unpack_from(header, fields_word)
        remark = header[_FIXED.size : fields_word].decode() if remark_length else None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"binary header has a remark that is not UTF-8: {error}") from error
    except struct.error as error:
        raise ProtocolError(f"binary header of {len(header)} bytes ends too early") from error
    start = fields_word + 4
    if fields_length < 0 or start + fields_length > len(header):
        rest = len(header) - start
        raise ProtocolError(f"binary header has {fields_length} bytes of fields where {rest} follow")
    fields = (layouts or LayoutMemory()).split(header, start, start + fields_length) if fields_length else None
    return Command(code, opaque, flag, _LANGUAGES.get(language, LanguageCode.OTHER), version, remark, fields)


def encode_binary_header(command: Command) -> bytes:
    """The header of this command. Raises ProtocolError when the code does not fit into 16 bits."""
    if not -_CODE_MAX - 1 <= command.code <= _CODE_MAX:
        raise ProtocolError(f"code {command.code} does not fit into a binary header; send it with a JSON header")
    remark = command.remark.encode() if command.remark else b""
    parts = [
        _FIXED.pack(command.code, command.language, command.version, command.opaque, command.flag, len(remark)),
        remark,
        b"",
    ]
    length = 0
    for key, value in command.all_fields().items():
        key_bytes, value_bytes = key.encode(), value.encode()
        if len(key_bytes) >= 2**15:
            raise ProtocolError(f"field name of {len(key_bytes)} bytes does not fit into a binary header")
        parts += (_KEY_LENGTH.pack(len(key_bytes)), key_bytes, _INT32.pack(len(value_bytes)), value_bytes)
        length += 6 + len(key_bytes) + len(value_bytes)
    parts[2] = _INT32.pack(length)
    return b"".join(parts)
