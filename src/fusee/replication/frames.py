"""The log stream between master and slave, byte for byte (Java: HAConnection, DefaultHAClient).

    slave to master     report      log offset up to which the slave has the log        int64
    master to slave     transfer    log offset, size, that many bytes of the log        int64, int32, bytes
                        heartbeat   a transfer of size 0

All numbers are big-endian. The first report says where the master is to begin, and 0 means with its last segment.
Reports follow each other without anything between, so only the last one of those that have arrived together counts.

The reference has no handshake. Ours begins with a word that one of its masters takes for "no report yet" and passes
over in silence, so that a slave finds out whom it talks to by waiting for an answer. All words of a slave are int64,
all answers have the head of a transfer, with a log offset below 0:

    slave to master                                         master to slave
    -1                          tell me of your log         -1, 24,      min and end of the log, segment size: int64
    -2 - X                      which record is at X?       -2 - X, 8,   its size, its CRC-32: int32, uint32; or 0, 0
    -2^63 + N                   I am broker N of the group  nothing

A slave that has said -1 means its first report literally: 0 is the beginning of time.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from fusee.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORT: Final = Struct(">q")
TRANSFER_HEAD: Final = Struct(">qi")
TRANSFER_BYTES_MAX: Final = 32 * 1024
"""Bytes of the log in one transfer, as the reference sends them."""
RECEIVED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes in one transfer that a slave takes, as the reference's."""
HELLO: Final = -1
_IDENTITY: Final = -(1 << 63)
_IDENTITIES_END: Final = -(1 << 62)
_FACTS: Final = Struct(">qqq")
_RECORD: Final = Struct(">iI")


class LogFacts(NamedTuple):
    """What a master says of its log."""

    min_offset: int
    end_offset: int
    segment_size: int


class RecordFacts(NamedTuple):
    """What tells one record from another at the same place; size 0: there is none."""

    size: int
    crc: int


NO_RECORD: Final = RecordFacts(0, 0)


def facts_of(record: bytes | memoryview | None) -> RecordFacts:
    """What tells this record from others."""
    return NO_RECORD if record is None else RecordFacts(len(record), crc32(record))


class ReportDecoder:
    """Reads what a slave says."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> Sequence[int]:
        """The words in these bytes, in order: reports, and below 0 what only our slaves say."""
        if len(data) == REPORT.size and not self._tail:
            return REPORT.unpack(data)
        data = self._tail + data
        whole = len(data) - len(data) % REPORT.size
        self._tail = data[whole:]
        return [word for (word,) in REPORT.iter_unpack(data[:whole])]


def question_of(word: int) -> int | None:
    """The log offset whose record a slave asks for; None when this word is no question."""
    return -2 - word if _IDENTITIES_END <= word <= -2 else None


def broker_id_of(word: int) -> int | None:
    """The number of a broker that says who it is; None when this word says something else."""
    return word - _IDENTITY if word < _IDENTITIES_END else None


class TransferDecoder:
    """Reads what a master sends."""

    __slots__ = ("_buffer", "_size_max")

    def __init__(self, size_max: int = RECEIVED_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._size_max = size_max

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """(log offset, bytes) of every whole transfer, heartbeats with none. Raises ProtocolError."""
        buffer = self._buffer
        buffer += data
        transfers: list[tuple[int, bytes]] = []
        position = 0
        head_size = TRANSFER_HEAD.size
        while len(buffer) - position >= head_size:
            log_offset, size = TRANSFER_HEAD.unpack_from(buffer, position)
            if not 0 <= size <= self._size_max:
                raise ProtocolError(
                    f"a transfer of {size} bytes at log offset {log_offset}: not the log stream of a master, or its "
                    f"haTransferBatchSize is above {self._size_max}"
                )
            end = position + head_size + size
            if end > len(buffer):
                break
            transfers.append((log_offset, bytes(buffer[position + head_size : end])))
            position = end
        del buffer[:position]
        return transfers


def decode_facts(data: bytes) -> LogFacts:
    """What a master has answered to HELLO. Raises ProtocolError."""
    if len(data) != _FACTS.size:
        raise ProtocolError(f"a master says {len(data)} bytes of its log where {_FACTS.size} are due")
    return LogFacts(*_FACTS.unpack(data))


def decode_record_facts(data: bytes) -> RecordFacts:
    """What a master has answered to the question for a record. Raises ProtocolError."""
    if len(data) != _RECORD.size:
        raise ProtocolError(f"a master says {len(data)} bytes of a record where {_RECORD.size} are due")
    return RecordFacts(*_RECORD.unpack(data))


def encode_report(log_offset: int) -> bytes:
    """What a slave sends when it has the log up to here; and HELLO."""
    return REPORT.pack(log_offset)


def encode_question(log_offset: int) -> bytes:
    """What a slave sends to hear of the record at this place."""
    return REPORT.pack(-2 - log_offset)


def encode_identity(broker_id: int) -> bytes:
    """What a slave sends to say who it is."""
    return REPORT.pack(_IDENTITY + broker_id)


def encode_transfer(log_offset: int, data: bytes | memoryview) -> bytes:
    """A transfer of these bytes of the log, which lie at this offset; a heartbeat when there are none."""
    return TRANSFER_HEAD.pack(log_offset, len(data)) + data


def encode_facts(facts: LogFacts) -> bytes:
    """The answer to HELLO."""
    return encode_transfer(HELLO, _FACTS.pack(*facts))


def encode_record_facts(log_offset: int, facts: RecordFacts) -> bytes:
    """The answer to the question for the record at this place."""
    return encode_transfer(-2 - log_offset, _RECORD.pack(*facts))
