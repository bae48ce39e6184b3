"""Frames against Java's bytes, any chunking, and bytes that are not frames."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusee.errors import FrameTooLargeError, ProtocolError
from fusee.wire.arrival import Scratch
from fusee.wire.codes import LanguageCode, RequestCode
from fusee.wire.command import Command
from fusee.wire.framing import FrameDecoder, FrameLimits, HeaderForm, encode_frame
from tests.golden import GoldenFrame, frames

FORMS = {"json": HeaderForm.JSON, "binary": HeaderForm.BINARY}
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


def as_values(command: Command) -> tuple[object, ...]:
    return (
        command.code,
        command.opaque,
        command.flag,
        command.language,
        command.version,
        command.remark,
        command.all_fields(),
        command.body,
    )


def decode_all(data: bytes) -> list[Command]:
    decoder = FrameDecoder()
    commands = decoder.feed(data)
    assert decoder.failure is None
    assert decoder.pending_bytes == 0
    return commands


@pytest.mark.parametrize("file", sorted({frame.file for frame in frames()}))
def test_decode_of_every_captured_frame_gives_what_java_decodes(file: str) -> None:
    for golden in frames(file):
        (command,) = decode_all(golden.frame)
        header = golden.header
        assert command.code == header.code, golden.id
        assert command.opaque == header.opaque, golden.id
        assert command.flag == header.flag, golden.id
        assert command.language.name == header.language, golden.id
        assert command.version == header.version, golden.id
        assert command.remark == header.remark, golden.id
        # Java's binary reader gives null for an empty text; we keep the empty text.
        expected = {key: value or "" for key, value in (header.ext_fields or {}).items()}
        assert command.all_fields() == expected, golden.id
        assert len(command.body) == golden.body_length, golden.id


@pytest.mark.parametrize("file", sorted({frame.file for frame in frames()}))
def test_encode_of_every_captured_frame_is_equal_byte_for_byte(file: str) -> None:
    for golden in frames(file):
        (command,) = decode_all(golden.frame)
        assert encode_frame(command, FORMS[golden.form]) == golden.frame, golden.id


def test_capture_is_whole() -> None:
    captured = list(frames())
    assert len(captured) == 1575
    assert sum(frame.form == "binary" for frame in captured) == 682


commands = st.builds(
    Command,
    code=st.one_of(st.sampled_from(RequestCode), INT32).filter(lambda code: -(2**15) <= code < 2**15),
    opaque=INT32,
    flag=st.sampled_from([0, 1, 2, 3]),
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, 2**15 - 1),
    remark=st.one_of(st.none(), TEXT.filter(bool)),
    ext_fields=st.one_of(st.none(), st.dictionaries(TEXT, TEXT, min_size=1, max_size=12)),
    body=st.binary(max_size=200),
)


@given(commands, st.sampled_from(HeaderForm))
def test_decode_of_encoded_command_gives_the_command(command: Command, form: HeaderForm) -> None:
    (decoded,) = decode_all(encode_frame(command, form))
    assert as_values(decoded) == as_values(command)


@given(st.lists(st.tuples(commands, st.sampled_from(HeaderForm)), max_size=6), st.randoms(use_true_random=False))
def test_any_chunking_gives_the_same_commands(sent: list[tuple[Command, HeaderForm]], random: object) -> None:
    stream = b"".join(encode_frame(command, form) for command, form in sent)
    decoder = FrameDecoder()
    received: list[Command] = []
    position = 0
    while position < len(stream):
        size = random.randint(1, 64)  # type: ignore[attr-defined]
        received += decoder.feed(stream[position : position + size])
        position += size
    assert decoder.failure is None
    assert [as_values(command) for command in received] == [as_values(command) for command, _ in sent]


def read_into_rooms(stream: bytes, random: Random, read_max: int) -> tuple[FrameDecoder, list[Command]]:
    """The commands of a stream whose reader asks the decoder where to read to."""
    decoder, scratch = FrameDecoder(), Scratch()
    received: list[Command] = []
    position = 0
    while position < len(stream) and decoder.failure is None:
        with decoder.room(scratch) as room:
            size = min(random.randint(1, read_max), len(room), len(stream) - position)
            room[:size] = stream[position : position + size]
        position += size
        commands = decoder.filled(size)
        received += decoder.feed(scratch.taken(size)) if commands is None else commands
    return decoder, received


BODY_SIZES = st.sampled_from([0, 1, 1000, 16_383, 16_384, 20_000, 100_000, 300_000, 700_000])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(commands, st.sampled_from(HeaderForm), BODY_SIZES), max_size=5),
    st.randoms(use_true_random=False),
    st.sampled_from([64, 5_000, 70_000, 1 << 20]),
)
def test_reading_into_rooms_gives_the_same_commands(
    sent: list[tuple[Command, HeaderForm, int]], random: Random, read_max: int
) -> None:
    for command, _, size in sent:
        command.body = random.randbytes(size) if read_max > 64 else command.body
    stream = b"".join(encode_frame(command, form) for command, form, _ in sent)
    decoder, received = read_into_rooms(stream, random, read_max)
    assert decoder.failure is None
    assert decoder.pending_bytes == 0
    assert [as_values(command) for command in received] == [as_values(command) for command, *_ in sent]


def test_room_of_a_large_body_is_its_own_and_the_next_is_small() -> None:
    decoder, scratch = FrameDecoder(), Scratch()
    body = bytes(range(256)) * 200
    frame = encode_frame(Command(10, body=body))
    begun = len(frame) - len(body) + 100
    assert len(decoder.room(scratch)) > len(frame)
    assert decoder.feed(frame[:begun]) == []
    with decoder.room(scratch) as room:
        assert len(room) == len(body) - 100
        room[:] = frame[begun:]
    assert decoder.pending_bytes > 0
    (command,) = decoder.filled(len(body) - 100) or [Command(0)]
    assert command.body == body
    assert decoder.pending_bytes == 0
    assert len(decoder.room(scratch)) < 10_000
    assert len(decoder.room(scratch)) > 100_000


def test_bad_header_of_a_large_frame_ends_the_conversation() -> None:
    data = struct.pack(">iI", 100_000, 5) + b"{bad}" + bytes(99_991)
    decoder, received = read_into_rooms(data, Random(1), 1000)
    assert received == []
    assert isinstance(decoder.failure, ProtocolError)


GOLDEN_SAMPLE: list[GoldenFrame] = list(frames("send"))[:8] + list(frames("ns"))[:8]


@given(st.sampled_from(GOLDEN_SAMPLE), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
def test_mutated_frame_gives_commands_or_protocol_error(golden: GoldenFrame, edits: list[tuple[int, int]]) -> None:
    data = bytearray(golden.frame)
    for position, value in edits:
        data[position % len(data)] = value
    decoder = FrameDecoder()
    for command in decoder.feed(bytes(data)):
        assert isinstance(command, Command)
        assert all(isinstance(value, str) for value in command.all_fields().values())
    assert decoder.failure is None or isinstance(decoder.failure, ProtocolError)


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x00\x00\x00\x80", b"\x00\x00\x00\x60\x01\x00\x00"]))
def test_random_bytes_give_commands_or_protocol_error(data: bytes, prefix: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(prefix + data)
    assert decoder.failure is None or isinstance(decoder.failure, ProtocolError)


@given(st.binary(max_size=120))
def test_frame_with_random_header_gives_command_or_protocol_error(header: bytes) -> None:
    for form in HeaderForm:
        decoder = FrameDecoder()
        decoder.feed(struct.pack(">iI", 4 + len(header), form << 24 | len(header)) + header)
        assert decoder.failure is None or isinstance(decoder.failure, ProtocolError)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct.pack(">i", -1), "frame length -1"),
        (struct.pack(">i", 3), "frame length 3"),
        (struct.pack(">i", 17 * 1024 * 1024), "limit 16777216"),
        (b"\x16\x03\x01\x02\x00", "TLS handshake"),
        (b"GET / HTTP/1.1\r\n", "HTTP GET"),
        (struct.pack(">iI", 100, 7 << 24 | 10), "header form 7 is unknown"),
        (struct.pack(">iI", 100, 97), "does not fit into a frame of 100"),
        (struct.pack(">iI", 3 * 1024 * 1024, 2 * 1024 * 1024), "header of 2097152 bytes"),
        (struct.pack(">iI", 4, 0), "character"),
        (struct.pack(">iI", 6, 2) + b"[]", "not an object"),
        (struct.pack(">iI", 6, 2) + b"{}", "32-bit integer as code"),
        (struct.pack(">iI", 8, 1 << 24 | 4) + b"\0\0\0\0", "ends too early"),
    ],
)
def test_bytes_that_are_no_frame_say_why(data: bytes, says: str) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(data) == []
    assert says in str(decoder.failure)


def test_commands_before_the_bad_bytes_are_still_given() -> None:
    good = encode_frame(Command(105, 7))
    decoder = FrameDecoder()
    commands_before = decoder.feed(good + good + struct.pack(">i", -5) + good)
    assert [command.opaque for command in commands_before] == [7, 7]
    assert decoder.failure is not None
    assert decoder.feed(good) == []


def test_length_word_alone_allocates_nothing() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    decoder.feed(struct.pack(">iI", 16 * 1024 * 1024, 1000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert decoder.pending_bytes == 8


def test_too_many_fields_are_refused_in_both_forms() -> None:
    command = Command(10, ext_fields={f"k{i}": "v" for i in range(40)})
    for form in HeaderForm:
        decoder = FrameDecoder(FrameLimits(fields_max=39))
        assert decoder.feed(encode_frame(command, form)) == []
        assert isinstance(decoder.failure, FrameTooLargeError)


def test_code_above_16_bits_is_refused_in_binary_and_fine_in_json() -> None:
    command = Command(RequestCode.POP_MESSAGE)
    with pytest.raises(ProtocolError, match="JSON header"):
        encode_frame(command, HeaderForm.BINARY)
    (decoded,) = decode_all(encode_frame(command))
    assert decoded.code == 200050


@settings(max_examples=20)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8))
def test_repeated_binary_layouts_are_remembered_and_still_right(pairs: list[tuple[str, str]]) -> None:
    decoder = FrameDecoder()
    for turn in range(3):
        fields = {key: value[::-1] if turn == 1 else value for key, value in pairs}
        command = Command(10, opaque=turn, ext_fields=fields)
        (decoded,) = decoder.feed(encode_frame(command, HeaderForm.BINARY))
        assert decoded.all_fields() == fields
