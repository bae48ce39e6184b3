"""Messages put and got since when, as of this morning and of the morning before (Java: BrokerStats).

Both only grow; the tools subtract: today is now less this morning, yesterday is this morning less the one before. The
day turns at midnight of this machine's time zone. The reference begins at zero with every start; these are saved, so
that a restart does not make the day look empty.
"""

from __future__ import annotations

import time
from datetime import date

import msgspec


class Mornings(msgspec.Struct, rename="camel"):
    """One total, now and at the last two midnights."""

    now: int = 0
    today_morning: int = 0
    yesterday_morning: int = 0


class DailyTotals(msgspec.Struct, rename="camel"):
    """What was put and got, without the topics of the system. `day` counts days, of which 1 is 1 January of year 1."""

    day: int
    put: Mornings = msgspec.field(default_factory=Mornings)
    got: Mornings = msgspec.field(default_factory=Mornings)

    def turn(self, day: int) -> bool:
        """It is this day now; whether that is a new one. A clock that was set back makes no new day."""
        if day <= self.day:
            return False
        for total in (self.put, self.got):
            total.yesterday_morning = total.today_morning if day == self.day + 1 else total.now
            total.today_morning = total.now
        self.day = day
        return True


def day_of(timestamp_ms: int) -> int:
    """The number of the day of this time, in this machine's time zone."""
    moment = time.localtime(timestamp_ms / 1000)
    return date(moment.tm_year, moment.tm_mon, moment.tm_mday).toordinal()


def encode_totals(totals: DailyTotals) -> bytes:
    """The totals as a JSON document."""
    return msgspec.json.encode(totals)


def decode_totals(content: bytes) -> DailyTotals:
    """The totals of a JSON document. Raises ValueError when it is none."""
    try:
        return msgspec.json.decode(content, type=DailyTotals)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
