"""The two identifiers of a message, both upper-case hexadecimal: where it lies, and who made it.

Offset id (Java: offsetMsgId), given by the broker; it locates the record without an index:

    | store host IP 4 or 16 | port 4 | log offset 8 |                       16 or 28 bytes, 32 or 56 digits

Unique id (property UNIQ_KEY; Java: MessageClientIDSetter), given by the producer; it survives retries and is
indexed:

    | IP 4 or 16 | pid 2 | seed 4 | elapsed ms 4 | counter 2 |              16 or 28 bytes, 32 or 56 digits

`elapsed` counts from the first day of the month, 00:00 local time, and is unsigned: a month of 31 days has
more than 2**31 milliseconds. `seed` tells apart the generators of one process and the processes that shared a
pid in turn (Java: hash of a class loader); give each generator a random one.

Java counts on its 16-bit counter alone, so a clock that is set back, or more than 65536 ids in one
millisecond, can repeat an id. `UniqueIds` cannot repeat itself within a month: it never goes back in time,
and borrows the next millisecond when the counter has gone once around.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.errors import MessageError
from fusee.message.hosts import HOST_V4_SIZE, HOST_V6_SIZE, host_text, unpack_host

if TYPE_CHECKING:
    from datetime import tzinfo

    from fusee.clock import Clock

ID_V4_DIGITS: Final = 32
ID_V6_DIGITS: Final = 56
_COUNTER_PERIOD: Final = 1 << 16
_TIME_MS_MAX: Final = 253_402_214_400_000  # the last day of year 9999, where calendars end
# A counter is written two digits at a time, the first two once for 256 ids: formatting it whole costs half of an id.
_HEX: Final = tuple(f"{number:02X}" for number in range(256))


class OffsetId(msgspec.Struct, frozen=True, gc=False):
    """What an offset id says: the packed host of the broker that stored the message, and where in its log."""

    store_host: bytes
    log_offset: int

    @property
    def address(self) -> str:
        """`ip:port` of the broker."""
        return host_text(self.store_host)

    @property
    def host(self) -> tuple[str, int]:
        """Address text and port of the broker."""
        return unpack_host(self.store_host)

    def __str__(self) -> str:
        return encode_offset_id(self.store_host, self.log_offset)


def encode_offset_id(store_host: bytes, log_offset: int) -> str:
    """The offset id of the record at this place.

    Raises MessageError on a malformed host or a negative offset.
    """
    if len(store_host) not in (HOST_V4_SIZE, HOST_V6_SIZE):
        raise MessageError(f"a packed store host is {HOST_V4_SIZE} or {HOST_V6_SIZE} bytes long, not {len(store_host)}")
    if not 0 <= log_offset < 1 << 63:
        raise MessageError(f"log offset {log_offset} is outside 0..2**63-1")
    return (store_host + log_offset.to_bytes(8, "big")).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """The parts of an offset id, in either case.

    Raises MessageError unless it is 32 or 56 hexadecimal digits.
    """
    raw = _id_bytes(text, "offset message id")
    log_offset = int.from_bytes(raw[-8:], "big", signed=True)
    if log_offset < 0:
        raise MessageError(f"offset message id {text!r} names the negative log offset {log_offset}")
    return OffsetId(raw[:-8], log_offset)


class UniqueId(msgspec.Struct, frozen=True, gc=False):
    """What a unique id says about its maker and its time."""

    ip: bytes
    pid: int
    seed: int
    elapsed_ms: int
    counter: int

    def time_ms(self, now_ms: int, timezone: tzinfo | None = None) -> int:
        """When the id was made, taken to be in the month before `now_ms` (the id does not say which month).

        `timezone` is that of the maker; None means the local one.
        """
        month_start, _ = month_bounds_ms(now_ms, timezone)
        if month_start + self.elapsed_ms >= now_ms:
            month_start, _ = month_bounds_ms(month_start - 1, timezone)
        return month_start + self.elapsed_ms


def decode_unique_id(text: str) -> UniqueId:
    """The parts of a unique id, in either case.

    Raises MessageError unless it is 32 or 56 hexadecimal digits.
    """
    raw = _id_bytes(text, "unique message id")
    return UniqueId(
        ip=raw[:-12],
        pid=int.from_bytes(raw[-12:-10], "big"),
        seed=int.from_bytes(raw[-10:-6], "big"),
        elapsed_ms=int.from_bytes(raw[-6:-2], "big"),
        counter=int.from_bytes(raw[-2:], "big"),
    )


class UniqueIds:
    """Makes the unique ids of one producer process.

    Not for several threads at once; make a new one after a fork.
    """

    def __init__(self, *, clock: Clock, ip: bytes, pid: int, seed: int, timezone: tzinfo | None = None) -> None:
        """`ip` is packed (4 or 16 bytes), of `pid` the low 16 bits count, `seed` is 32 random bits."""
        if len(ip) not in (4, 16):
            raise MessageError(f"a packed IP address is 4 or 16 bytes long, not {len(ip)}")
        if pid < 0:
            raise MessageError(f"process id {pid} is negative")
        if not 0 <= seed < 1 << 32:
            raise MessageError(f"seed {seed} of a unique id generator is outside 0..2**32-1")
        self._time_ms = clock.time_ms
        self._timezone = timezone
        self._prefix = (ip + (pid & 0xFFFF).to_bytes(2, "big") + seed.to_bytes(4, "big")).hex().upper()
        self._stem = self._page = ""
        self._now_ms = 0
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._counter = 0
        self._left_in_ms = 0

    def next_id(self) -> str:
        """A unique id that this generator has not given before."""
        now_ms = self._time_ms()
        if now_ms > self._now_ms:
            self._enter(now_ms)
        elif self._left_in_ms == 0:
            self._enter(self._now_ms + 1)
        self._left_in_ms -= 1
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        low = counter & 0xFF
        if low == 0:
            self._page = self._stem + _HEX[counter >> 8]
        return self._page + _HEX[low]

    def _enter(self, now_ms: int) -> None:
        """Begin the ids of this millisecond."""
        self._now_ms = now_ms
        self._left_in_ms = _COUNTER_PERIOD
        if now_ms >= self._month_end_ms:
            self._month_start_ms, self._month_end_ms = month_bounds_ms(now_ms, self._timezone)
        self._stem = f"{self._prefix}{now_ms - self._month_start_ms:08X}"
        self._page = self._stem + _HEX[self._counter >> 8]


def month_bounds_ms(now_ms: int, timezone: tzinfo | None = None) -> tuple[int, int]:
    """Start of the month of `now_ms` and of the next one; `timezone` None means the local one."""
    if not 0 <= now_ms <= _TIME_MS_MAX:
        raise MessageError(f"time {now_ms} ms is outside the years 1970 to 9999")
    if timezone is None:
        local = time.localtime(now_ms // 1000)
        year, month = local.tm_year, local.tm_mon
        # mktime takes month 13, and -1 lets it find out about daylight saving by itself
        start = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
        end = time.mktime((year, month + 1, 1, 0, 0, 0, 0, 0, -1))
    else:
        first = datetime.fromtimestamp(now_ms // 1000, timezone).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0, fold=0
        )
        following = (
            first.replace(year=first.year + 1, month=1) if first.month == 12 else first.replace(month=first.month + 1)
        )
        start, end = first.timestamp(), following.timestamp()
    return int(start) * 1000, int(end) * 1000


def _id_bytes(text: str, what: str) -> bytes:
    if len(text) in (ID_V4_DIGITS, ID_V6_DIGITS):
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            raw = b""
        # fromhex skips blanks between bytes
        if len(raw) * 2 == len(text):
            return raw
    raise MessageError(
        f"{text!r} is not a {what}: it has {ID_V4_DIGITS} (IPv4) or {ID_V6_DIGITS} (IPv6) hexadecimal digits"
    )
