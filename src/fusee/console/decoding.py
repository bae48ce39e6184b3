"""Bodies of messages for people: as JSON, text, or bytes in hex, whichever they are."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Form = Literal["auto", "text", "json", "hex"]

SHOWN_MAX: Final = 64 * 1024
_LINE: Final = 16


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """A body as text in some form; `is_cut` when it is longer than what is shown."""

    form: str
    text: str
    size: int
    is_cut: bool = False


def decoded(body: bytes, form: Form = "auto", shown_max: int = SHOWN_MAX) -> Decoded:
    """The body in this form, or in the one that fits. What does not fit the form asked for is shown in hex."""
    shown = body[:shown_max]
    is_cut = len(body) > shown_max
    if form in ("auto", "json") and not is_cut and (form == "json" or shown[:1] in (b"{", b"[")):
        try:
            text = msgspec.json.format(shown, indent=2).decode()
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return Decoded(form="json", text=text, size=len(body))
    if form != "hex":
        try:
            text = shown.decode("utf-8", "ignore" if is_cut else "strict")
        except UnicodeDecodeError:
            pass
        else:
            if form == "text" or _is_readable(text):
                return Decoded(form="text", text=text, size=len(body), is_cut=is_cut)
    return Decoded(form="hex", text=_hex(shown), size=len(body), is_cut=is_cut)


def _is_readable(text: str) -> bool:
    return all(character.isprintable() or character in "\n\r\t" for character in text)


def _hex(data: bytes) -> str:
    """Offset, bytes and their ASCII, 16 a line."""
    lines = []
    for start in range(0, len(data), _LINE):
        part = data[start : start + _LINE]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<{_LINE * 3 - 1}}  {ascii_text}")
    return "\n".join(lines)
