"""Headers as sloppy clients write them."""

from __future__ import annotations

import pytest

from fusee.errors import ProtocolError
from fusee.wire.codes import LanguageCode
from fusee.wire.header_json import decode_json_header


def test_header_without_optional_keys_is_read() -> None:
    command = decode_json_header(b'{"code":105,"opaque":3}')
    assert (command.code, command.opaque, command.flag, command.version) == (105, 3, 0, 0)
    assert command.language is LanguageCode.OTHER
    assert command.ext_fields is None


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        (b'"GO"', LanguageCode.GO),
        (b'"go"', LanguageCode.OTHER),
        (b'"NODE_JS"', LanguageCode.NODE_JS),
        (b"9", LanguageCode.GO),
        (b"99", LanguageCode.OTHER),
        (b"null", LanguageCode.OTHER),
        (b'"KLINGON"', LanguageCode.OTHER),
    ],
)
def test_language_in_any_form_is_read(language: bytes, expected: LanguageCode) -> None:
    assert decode_json_header(b'{"code":1,"language":' + language + b"}").language is expected


def test_numbers_and_booleans_in_fields_become_text() -> None:
    command = decode_json_header(b'{"code":10,"extFields":{"queueId":3,"batch":true,"x":null,"d":1.5,"o":{"a":1}}}')
    assert command.ext_fields == {"queueId": "3", "batch": "true", "d": "1.5", "o": '{"a":1}'}


def test_fastjson_dialect_in_header_is_read() -> None:
    command = decode_json_header(b'{code:105,\'opaque\':4,"extFields":{0:"a",},}')
    assert (command.code, command.opaque, command.ext_fields) == (105, 4, {"0": "a"})


def test_envelope_numbers_as_text_are_read() -> None:
    command = decode_json_header(b'{"code":"105","opaque":"7"}')
    assert (command.code, command.opaque) == (105, 7)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b'{"code":99999999999}',
        b'{"code":1,"opaque":2147483648}',
        b'{"code":1,"extFields":[1]}',
        b'{"code":true,"opaque":[]}',
        b'{"code":1,"remark":"\xff"}',
        b"[" * 5000,
        b'{"code":' * 5000,
    ],
)
def test_header_that_is_none_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_json_header(header)
