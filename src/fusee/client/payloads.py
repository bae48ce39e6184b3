"""Bodies from values and values from bodies: bytes as they are, text as UTF-8, everything else as JSON.

msgspec writes and reads the JSON, so a dataclass, a Struct, an attrs class, a TypedDict, plain lists and dicts, dates,
decimals, UUIDs and enumerations work without more ado. A pydantic model is known by its methods and validates itself,
alone or within other types; pydantic is never imported.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import msgspec
from msgspec.inspect import CustomType, Field, Type, type_info

from fusee.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Enough to recognise what was sent, and no more of a body in logs than that.
SHOWN_BYTES: Final = 48
_REMEMBERED_MAX: Final = 256
# What msgspec and pydantic raise for a value without a JSON form: of no known type, too large, or within itself.
_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)


def encode_body(value: object) -> bytes:
    """The bytes to send for this value. Raises PayloadError when it has none.

    Not a number and infinity become null, as JSON has neither.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise PayloadError(
                f"the text has no UTF-8 form: a lone surrogate at position {error.start}; send bytes instead"
            ) from error
    if value is None:
        raise PayloadError(
            "there is no body; send bytes, text or a value that has a JSON form (b'null' for a JSON null)"
        )
    try:
        if _is_pydantic(type(value)):
            return _dump_pydantic(value)
        return _ENCODER.encode(value)
    except _UNWRITABLE as error:
        raise PayloadError(
            f"a {_name(type(value))} has no JSON form: {error}; send bytes, text, a dataclass, a Struct, "
            "or plain dicts, lists and numbers"
        ) from error


@overload
def decoder(type_: type[T]) -> Callable[[bytes], T]: ...
@overload
def decoder(type_: Any) -> Callable[[bytes], Any]: ...
def decoder(type_: Any) -> Callable[[bytes], Any]:
    """What turns bodies into this type: bytes, str, or any type that JSON can be checked against; Any is plain JSON.

    The function raises PayloadError for a body that is none. `decoder` itself raises it for a type that no body can
    become, so that a mistake shows when a program starts and not with its first message.
    """
    if type_ is bytes:
        return bytes
    if type_ is str:
        return _text
    if type_ in (bytearray, memoryview):
        return lambda body: type_(bytearray(body))
    if _is_pydantic(type_):
        decode = type_.model_validate_json
    else:
        _check_readable(type_)
        decode = msgspec.json.Decoder(type_, dec_hook=_validate_pydantic).decode

    def decode_checked(body: bytes) -> Any:
        try:
            return decode(body)
        except (ValueError, TypeError, RecursionError) as error:
            raise _unreadable(body, type_, str(error)) from error

    return decode_checked


_remembered_decoder: Final = lru_cache(_REMEMBERED_MAX)(decoder)


@overload
def decode_body(body: bytes, type_: type[T]) -> T: ...
@overload
def decode_body(body: bytes, type_: Any) -> Any: ...
def decode_body(body: bytes, type_: Any) -> Any:
    """The body as this type, as `decoder` does it; decoders are kept. Raises PayloadError."""
    try:
        decode = _remembered_decoder(type_)
    except TypeError:  # a type that cannot be a key
        decode = decoder(type_)
    return decode(body)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _unreadable(body, str, f"it is not UTF-8 (byte {error.start})") from error


def _unreadable(body: bytes, type_: Any, cause: str) -> PayloadError:
    shown = repr(bytes(body[:SHOWN_BYTES])) + ("..." if len(body) > SHOWN_BYTES else "")
    what = f"the body of {len(body)} bytes ({shown})" if body else "an empty body"
    return PayloadError(f"{what} is no {_name(type_)}: {cause}")


def _name(type_: Any) -> str:
    return type_.__qualname__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)


def _is_pydantic(type_: Any) -> bool:
    return (
        isinstance(type_, type)
        and callable(getattr(type_, "model_validate_json", None))
        and callable(getattr(type_, "model_dump_json", None))
    )


def _dump_pydantic(value: Any) -> bytes:
    text: str = value.model_dump_json()
    return text.encode()


def _encode_other(value: Any) -> Any:
    if _is_pydantic(type(value)):
        return msgspec.Raw(_dump_pydantic(value))
    raise TypeError(f"within it is a {_name(type(value))}")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encode_other)


def _validate_pydantic(type_: Any, value: Any) -> Any:
    return type_.model_validate(value)


def _check_readable(type_: Any) -> None:
    try:
        pending: list[Any] = [type_info(type_)]
    except TypeError as error:
        raise PayloadError(f"no body can become a {_name(type_)}: {error}") from error
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, CustomType) and not _is_pydantic(node.cls):
            within = "" if node.cls is type_ else f"it has a {_name(node.cls)}, and "
            raise PayloadError(
                f"no body can become a {_name(type_)}: {within}JSON is read into dataclasses, Structs, TypedDicts, "
                "pydantic models and plain types only"
            )
        if isinstance(node, tuple):
            pending.extend(node)
        elif isinstance(node, (Type, Field)) and id(node) not in seen:
            seen.add(id(node))
            pending.extend(getattr(node, field) for field in node.__struct_fields__)
