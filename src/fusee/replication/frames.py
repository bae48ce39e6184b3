"""The log stream between master and slave, byte for byte (Java: HAConnection, DefaultHAClient).

    slave to master     report      log offset up to which the slave has the log        int64
    master to slave     transfer    log offset, size, that many bytes of the log        int64, int32, bytes
                        heartbeat   a transfer of size 0

All numbers are big-endian. There is no handshake: the first report says where the master is to begin, and 0 means
with its last segment. Reports follow each other without anything between, so only the last one of those that have
arrived together counts.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from fusee.errors import ProtocolError

REPORT: Final = Struct(">q")
TRANSFER_HEAD: Final = Struct(">qi")
TRANSFER_BYTES_MAX: Final = 32 * 1024
"""Bytes of the log in one transfer, as the reference sends them."""


class ReportDecoder:
    """Reads what a slave says."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, data: bytes) -> list[int]:
        """The log offsets reported in these bytes, in order. Raises ProtocolError for one that cannot be."""
        data = self._tail + data
        whole = len(data) - len(data) % REPORT.size
        self._tail = data[whole:]
        reports = [log_offset for (log_offset,) in REPORT.iter_unpack(data[:whole])]
        if any(log_offset < 0 for log_offset in reports):
            raise ProtocolError(f"a slave reports log offset {min(reports)}: not the log stream of RocketMQ")
        return reports


class TransferDecoder:
    """Reads what a master sends."""

    __slots__ = ("_buffer", "_size_max")

    def __init__(self, size_max: int = 4 * 1024 * 1024) -> None:
        self._buffer = bytearray()
        self._size_max = size_max

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """(log offset, bytes) of every whole transfer, heartbeats with none. Raises ProtocolError."""
        buffer = self._buffer
        buffer += data
        transfers: list[tuple[int, bytes]] = []
        position = 0
        while len(buffer) - position >= TRANSFER_HEAD.size:
            log_offset, size = TRANSFER_HEAD.unpack_from(buffer, position)
            if log_offset < 0 or not 0 <= size <= self._size_max:
                raise ProtocolError(f"a transfer of {size} bytes at log offset {log_offset}: not the log stream")
            end = position + TRANSFER_HEAD.size + size
            if end > len(buffer):
                break
            transfers.append((log_offset, bytes(buffer[position + TRANSFER_HEAD.size : end])))
            position = end
        del buffer[:position]
        return transfers


def encode_report(log_offset: int) -> bytes:
    """What a slave sends when it has the log up to here."""
    return REPORT.pack(log_offset)


def encode_transfer(log_offset: int, data: bytes | memoryview) -> bytes:
    """A transfer of these bytes of the log, which lie at this offset; a heartbeat when there are none."""
    return TRANSFER_HEAD.pack(log_offset, len(data)) + data
