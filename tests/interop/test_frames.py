"""The real decoder reads our frames, and we read what the real encoder makes of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from fusee.wire.codes import LanguageCode, RequestCode, ResponseCode
from fusee.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from fusee.wire.framing import FrameDecoder, HeaderForm, encode_frame

if TYPE_CHECKING:
    from tests.interop.harness.programs import Judge

pytestmark = [pytest.mark.interop, pytest.mark.quick, pytest.mark.timeout(600)]

INT32_MAX = 2**31 - 1
TEXTS = (
    "plain",
    "é à 消息",
    "🚀 beyond the basic plane",
    'quotes " and \\ backslashes',
    "line\nbreak\x01\x02",
    "/",
)


def corpus() -> list[Command]:
    """Edges by hand, then combinations by lot; always the same."""
    commands = [
        Command(0),
        Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext_fields={"topic": "TopicTest"}),
        Command(RequestCode.SEND_MESSAGE_V2, INT32_MAX, ext_fields={"i": "KEYS\x01k\x02TAGS\x01t\x02"}, body=b"b"),
        Command(RequestCode.HEART_BEAT, -(2**31), ONEWAY_FLAG, body=bytes(range(256))),
        Command(ResponseCode.TOPIC_NOT_EXIST, 5, RESPONSE_FLAG, remark="No topic route info"),
        Command(32767, 6, RESPONSE_FLAG | ONEWAY_FLAG, version=32767, remark="r" * 5000),
        Command(10, 7, ext_fields={"key with space": " "}),
        Command(10, 8, ext_fields={f"k{i}": "v" * i for i in range(1, 200)}, body=b"x" * 100_000),
        *(Command(10, 9, ext_fields={text: text}, remark=text) for text in TEXTS),
        *(Command(10, 10, language=language) for language in LanguageCode),
    ]
    lot = random.Random(20240501)
    for opaque in range(100):
        fields = {lot.choice(TEXTS) + str(i): lot.choice(TEXTS) for i in range(lot.randrange(6))}
        commands.append(
            Command(
                lot.randrange(32768),
                opaque,
                lot.randrange(4),
                version=lot.randrange(600),
                remark=lot.choice((None, *TEXTS)),
                ext_fields=fields or None,
                body=lot.randbytes(lot.randrange(300)),
            )
        )
    return commands


@pytest.mark.parametrize("form", list(HeaderForm))
def test_java_reads_our_frames_and_we_read_its_own(frame_judge: Judge, form: HeaderForm) -> None:
    for command in corpus():
        answer = frame_judge.read(encode_frame(command, form))
        as_json, as_binary = answer.pop("asJson", ""), answer.pop("asBinary", "")
        assert answer == expected(command, form)
        for frame in (as_json, as_binary):
            assert read(bytes.fromhex(frame)) == as_read(command)


def test_java_reads_an_empty_value_of_the_binary_form_as_none(frame_judge: Judge) -> None:
    """So a field that may be empty must not be required; in JSON the empty text arrives."""
    command = Command(10, ext_fields={"empty": "", "full": "v"})
    in_json = frame_judge.read(encode_frame(command, HeaderForm.JSON))
    in_binary = frame_judge.read(encode_frame(command, HeaderForm.BINARY))
    assert in_json["extFields"] == {"empty": "", "full": "v"}
    assert in_binary["extFields"] == {"empty": None, "full": "v"}


def test_java_refuses_what_is_no_frame(frame_judge: Judge) -> None:
    """The judge can say no: a header longer than its frame."""
    broken = bytearray(encode_frame(Command(10)))
    broken[5:8] = b"\x7f\xff\xff"
    assert frame_judge.read(bytes(broken))["event"] == "rejected"


def expected(command: Command, form: HeaderForm) -> dict[str, Any]:
    return {
        "event": "decoded",
        "form": "json" if form is HeaderForm.JSON else "binary",
        "code": command.code,
        "language": command.language.name,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "extFields": command.ext_fields,
        "body": command.body.hex() or None,
    }


def as_read(command: Command) -> tuple[object, ...]:
    return (
        *(command.code, command.language, command.version, command.opaque, command.flag, command.remark),
        *(command.all_fields(), command.body),
    )


def read(frame: bytes) -> tuple[object, ...]:
    decoder = FrameDecoder()
    (command,) = decoder.feed(frame)
    assert decoder.failure is None
    return as_read(command)
