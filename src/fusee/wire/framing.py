"""Frames: bytes in, commands out, and back.

    int32 length of what follows | int8 header form, int24 header length | header | body

`FrameDecoder` accepts any chunking and takes every complete frame out of what has arrived at once. It allocates
nothing for a frame before its bytes are there, so a large length in a frame's first word costs nothing. Bytes
that are not the protocol end the conversation: `failure` is set, the commands before the bad frame are still
returned, and whatever is fed later is ignored. There is no way to find the next frame after a bad one.

Bytes come in two ways, and a connection uses one of them. Either they are fed; or the decoder is asked for `room` to
read into, and told by `filled` how much was read. Then the bytes of a large body come straight to where they stay,
behind a header that is decoded already; all else goes through a scratch and is fed. Whoever has just sent a large frame
is given little scratch for the next one: enough for a header, so that little of the body is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NoReturn

from fusee.errors import FrameTooLargeError, ProtocolError
from fusee.wire.arrival import SCRATCH_SIZE, ArrivingBody
from fusee.wire.header_binary import FIELDS_MAX, LayoutMemory, decode_binary_header, encode_binary_header
from fusee.wire.header_json import decode_json_header, encode_json_header
from fusee.wire.hot_decode import HOT_DECODERS, HOT_PREFIX_SIZE

if TYPE_CHECKING:
    from fusee.wire.arrival import Scratch
    from fusee.wire.command import Command

_WORDS: Final = Struct(">iI")
_LENGTH: Final = Struct(">i")
_BINARY_WORD: Final = 1 << 24
_FORMS_END: Final = 2 << 24
_hot_decoder: Final = HOT_DECODERS.get
_LARGE_MIN: Final = 16 * 1024
_SCRATCH_FOR_HEADER: Final = 4 * 1024

# First two bytes of what other protocols say first, to name the likely mistake.
_FOREIGN: Final = {
    0x1603: "; this looks like a TLS handshake, but no certificate is configured here",
    0x4745: "; this looks like an HTTP GET",
    0x504F: "; this looks like an HTTP POST",
    0x5052: "; this looks like a PROXY preamble or HTTP/2",
}


class HeaderForm(IntEnum):
    """How the header of a frame is written; the body knows no form."""

    JSON = 0
    BINARY = 1


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """What one frame may be. A send header holds up to 32 KiB of properties, six times that as JSON escapes."""

    frame_size_max: int = 16 * 1024 * 1024
    header_size_max: int = 1024 * 1024
    fields_max: int = FIELDS_MAX


class FrameDecoder:
    """Takes commands out of a stream of bytes."""

    __slots__ = (
        "_body",
        "_command",
        "_header_max",
        "_is_after_large",
        "_layouts",
        "_limits",
        "_need",
        "_plain_max",
        "_tail",
        "failure",
    )

    def __init__(self, limits: FrameLimits | None = None) -> None:
        self._limits = limits or FrameLimits()
        self._plain_max = self._limits.frame_size_max + 4
        self._header_max = self._limits.header_size_max
        self._layouts = LayoutMemory()
        self._tail = bytearray()
        self._need = 4
        self._body: ArrivingBody | None = None
        self._command: Command | None = None
        self._is_after_large = False
        self.failure: ProtocolError | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame whose rest has not arrived."""
        return len(self._tail) if self._body is None else 8 + self._body.count

    def room(self, scratch: Scratch) -> memoryview:
        """Where the next bytes are to be put, the scratch or a body's own memory; `filled` says how many came."""
        if self._body is None and self._need - len(self._tail) >= _LARGE_MIN and self.failure is None:
            self._begin_body()
        if self._body is not None:
            return self._body.room()
        if self._is_after_large:
            self._is_after_large = False
            return scratch.room(_SCRATCH_FOR_HEADER)
        return scratch.room(SCRATCH_SIZE)

    def filled(self, count: int) -> list[Command] | None:
        """The command whose body is whole with these bytes, if it is; None when they are in the scratch, to be fed."""
        body = self._body
        if body is None:
            return None
        commands: list[Command] = []
        if body.add(count):
            command = self._command
            assert command is not None
            command.body = body.taken()
            commands.append(command)
            self._body = self._command = None
            self._is_after_large = True
        return commands

    def _begin_body(self) -> None:
        """Read the header of the frame that was begun, when it is there, and give the body its memory."""
        tail = self._tail
        if len(tail) < 8:
            return
        length, word = _WORDS.unpack_from(tail)
        header_size = word & 0xFFFFFF
        body_start = 8 + header_size
        if len(tail) < body_start or length + 4 - body_start < _LARGE_MIN:
            return
        try:
            self._command = self._decode(bytes(tail[8:body_start]), word)
        except ProtocolError as failure:
            self.failure = failure
            return
        self._body = ArrivingBody(length + 4 - body_start, bytes(tail[body_start:]))
        self._tail.clear()
        self._need = 4

    def _decode(self, header: bytes, word: int) -> Command:
        """The command without its body. Raises ProtocolError."""
        command: Command | None = None
        if word < _BINARY_WORD:
            hot = _hot_decoder(header[:HOT_PREFIX_SIZE])
            if hot is not None:
                command = hot(header)
            if command is None:
                command = decode_json_header(header)
        else:
            command = decode_binary_header(header, self._layouts)
        fields = command.ext_fields
        if fields is not None and len(fields) > self._limits.fields_max:
            raise FrameTooLargeError(f"header has {len(fields)} fields, limit {self._limits.fields_max}")
        return command

    def feed(self, data: bytes) -> list[Command]:
        """Every command that is complete with these bytes, in order. Look at `failure` afterwards."""
        if not self._tail and self.failure is None and len(data) >= 8:
            # A client that waits for each answer sends exactly one frame at a time.
            length, word = _WORDS.unpack_from(data)
            body_start = word + 8
            if length + 4 == len(data) and body_start <= len(data) <= self._plain_max and word <= self._header_max:
                header = data[8:body_start]
                hot = _hot_decoder(header[:HOT_PREFIX_SIZE])
                command = None if hot is None else hot(header)
                if command is None:
                    try:
                        command = decode_json_header(header)
                    except ProtocolError as failure:
                        self.failure = failure
                        return []
                fields = command.ext_fields
                if fields is None or len(fields) <= self._limits.fields_max:
                    if body_start != len(data):
                        command.body = data[body_start:]
                    return [command]
        return self._feed(data)

    def _feed(self, data: bytes) -> list[Command]:
        commands: list[Command] = []
        if self.failure is not None:
            return commands
        position = 0
        if self._tail:
            position = self._complete(data)
            if position < 0:
                return commands
            if self._tail:
                frame = bytes(self._tail)
                self._tail.clear()
                self._scan(frame, 0, commands)
        if self.failure is None:
            self._scan(data, position, commands)
        return commands

    def _complete(self, data: bytes) -> int:
        """Add to the frame that was begun what it lacks, and no more: the rest is read where it lies.

        Gives where the rest begins, or -1 when the frame is still not whole.
        """
        tail = self._tail
        position = 0
        while True:
            missing = self._need - len(tail)
            tail += data[position : position + missing]
            position += missing
            if position > len(data):
                return -1
            (length,) = _LENGTH.unpack_from(tail)
            if not 4 <= length <= self._limits.frame_size_max or len(tail) >= length + 4:
                return position  # whole, or wrong: `_scan` says which
            self._need = length + 4

    def _scan(self, data: bytes, position: int, commands: list[Command]) -> None:
        """Take every whole frame from here on, and keep the beginning of the next."""
        size = len(data)
        limits = self._limits
        frame_max = limits.frame_size_max
        header_max = limits.header_size_max
        need = 4
        try:
            while size - position >= 8:
                length, word = _WORDS.unpack_from(data, position)
                header_size = word & 0xFFFFFF
                if not (4 <= length <= frame_max and header_size <= length - 4 and header_size <= header_max):
                    self._refuse(length, word)
                if word >= _FORMS_END:
                    self._refuse(length, word)
                end = position + 4 + length
                if end > size:
                    need = 4 + length
                    break
                header_start = position + 8
                body_start = header_start + header_size
                command = self._decode(data[header_start:body_start], word)
                if body_start != end:
                    command.body = data[body_start:end]
                commands.append(command)
                position = end
            else:
                need = 8
                if size - position >= 4:
                    (length,) = _LENGTH.unpack_from(data, position)
                    if not 4 <= length <= frame_max:
                        self._refuse(length, 0)
        except ProtocolError as failure:
            self.failure = failure
            return
        if position < size:
            self._tail += data[position:] if position else data
            self._need = need

    def _refuse(self, length: int, word: int) -> NoReturn:
        limits = self._limits
        form, header_size = word >> 24, word & 0xFFFFFF
        if length < 4:
            raise ProtocolError(f"frame length {length} is less than the 4 bytes every frame has")
        if length > limits.frame_size_max:
            looks_like = _FOREIGN.get(length >> 16, "")
            raise FrameTooLargeError(f"frame of {length} bytes, limit {limits.frame_size_max}{looks_like}")
        if form > HeaderForm.BINARY:
            raise ProtocolError(f"header form {form} is unknown; 0 is JSON, 1 is binary: not a RocketMQ client?")
        if header_size > length - 4:
            raise ProtocolError(f"header of {header_size} bytes does not fit into a frame of {length}")
        raise FrameTooLargeError(f"header of {header_size} bytes, limit {limits.header_size_max}")


def encode_head(command: Command, form: HeaderForm = HeaderForm.JSON) -> bytes:
    """Everything of the frame but the body, which may then be sent from where it lies."""
    if form is HeaderForm.JSON:
        header = encode_json_header(command)
        return _WORDS.pack(4 + len(header) + len(command.body), len(header)) + header
    header = encode_binary_header(command)
    return _WORDS.pack(4 + len(header) + len(command.body), _BINARY_WORD | len(header)) + header


def encode_frame(command: Command, form: HeaderForm = HeaderForm.JSON) -> bytes:
    """The whole frame."""
    return encode_head(command, form) + command.body
