"""What was, lately: rates of the cluster and lag of every group, sampled so that pages can show where they are going.

A sample is taken every few seconds while the console runs, by one question per broker. A figure that could not be
learnt is None in its sample: a gap in the chart, not a zero.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from fusee.admin.fan_out import ask_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.admin import Admin
    from fusee.admin.views import ClusterView, GroupLag
    from fusee.console.cluster_link import ClusterLink

_log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 5.0
SAMPLES_MAX: Final = 720
GROUPS_MAX: Final = 5_000
_TREND_SAMPLES: Final = 24
_GROUP_SAMPLES: Final = 120


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one time; None is unknown."""

    at_ms: int
    put_tps: float | None = None
    get_tps: float | None = None
    lag: int | None = None


class LagPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of a group at one time."""

    at_ms: int
    lag: int


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Where the lag of a group is going: `per_second` is how fast it grows, negative when it shrinks.

    `drain_seconds` is when it will be gone if that goes on; None while it does not shrink.
    """

    per_second: float
    drain_seconds: float | None = None


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A group in the newest sample. `is_whole` is False when a broker did not tell its part."""

    group: str
    lag: int
    consume_tps: float
    topics: tuple[str, ...]
    is_whole: bool = True


class History:
    """The samples of one cluster."""

    def __init__(self, link: ClusterLink, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._link = link
        self.interval_seconds = interval_seconds
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.figures: dict[str, GroupFigures] | None = None
        """By group; None while it is not known."""
        self.cause = "the first sample is not taken yet"
        """Why figures of groups are not known."""
        self._points: dict[str, deque[LagPoint]] = {}
        self._listeners: set[Callable[[Sample], object]] = set()

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(self.interval_seconds)

    async def sample(self) -> Sample:
        """Take one now, and tell it."""
        clusters = await self._link.ask("clusters", lambda admin: admin.clusters(), fresh_seconds=0.5)
        lags = await self._link.ask("all lags", _all_lags, fresh_seconds=0.5)
        at_ms = self._link.clock.time_ms()
        total: int | None = None
        if lags.value is None:
            self.figures, self.cause = None, lags.cause
        else:
            figures, is_whole = lags.value
            self.figures = figures
            self.cause = ""
            if is_whole:
                total = sum(figure.lag for figure in figures.values())
            self._remember(at_ms, figures)
        put_tps, get_tps = _rates(clusters.value or ())
        sample = Sample(at_ms=at_ms, put_tps=put_tps, get_tps=get_tps, lag=total)
        self.samples.append(sample)
        for listener in list(self._listeners):
            listener(sample)
        return sample

    def listen(self, listener: Callable[[Sample], object]) -> Callable[[], None]:
        """Call this with every sample; what is returned ends it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def points(self, group: str) -> tuple[LagPoint, ...]:
        """The lag of a group over time, oldest first."""
        return tuple(self._points.get(group, ()))

    def trend(self, group: str) -> Trend | None:
        """Where its lag is going; None while there is too little to tell."""
        points = list(self._points.get(group, ()))[-_TREND_SAMPLES:]
        if len(points) < 2 or points[-1].at_ms <= points[0].at_ms:
            return None
        first, last = points[0], points[-1]
        per_second = (last.lag - first.lag) * 1000 / (last.at_ms - first.at_ms)
        drains = per_second < 0 and last.lag > 0
        return Trend(per_second=per_second, drain_seconds=last.lag / -per_second if drains else None)

    def _remember(self, at_ms: int, figures: dict[str, GroupFigures]) -> None:
        for group in [group for group in self._points if group not in figures]:
            del self._points[group]
        for group, figure in figures.items():
            points = self._points.get(group)
            if points is None:
                if len(self._points) >= GROUPS_MAX:
                    continue
                points = self._points[group] = deque(maxlen=_GROUP_SAMPLES)
            if figure.is_whole:
                points.append(LagPoint(at_ms=at_ms, lag=figure.lag))


def _rates(clusters: tuple[ClusterView, ...]) -> tuple[float | None, float | None]:
    """Messages in and out per second; None when a broker that counts did not tell."""
    masters = [entry for cluster in clusters for entry in cluster.brokers if entry.broker.is_master]
    brokers = [entry for cluster in clusters for entry in cluster.brokers]
    put = sum(entry.state.put_tps for entry in masters if entry.state) if masters else None
    got = sum(entry.state.get_tps for entry in brokers if entry.state) if brokers else None
    if any(entry.state is None for entry in masters):
        put = None
    if any(entry.state is None for entry in brokers):
        got = None
    return put, got


async def _all_lags(admin: Admin) -> tuple[dict[str, GroupFigures], bool]:
    """Figures of every group, and whether every master told."""
    masters = [broker for broker in await admin.brokers() if broker.is_master]
    answers = await ask_all(masters, lambda broker: admin.broker_lags(broker.address))
    answers.some("tell the lag of groups")
    parts: dict[str, list[GroupLag]] = {}
    for lags in answers.values:
        for lag in lags:
            parts.setdefault(lag.group, []).append(lag)
    is_whole = not answers.failures
    figures = {
        group: GroupFigures(
            group=group,
            lag=sum(max(queue.lag, 0) for part in of_group for queue in part.queues),
            consume_tps=sum(part.consume_tps for part in of_group),
            topics=tuple(sorted({queue.queue.topic for part in of_group for queue in part.queues})),
            is_whole=is_whole,
        )
        for group, of_group in sorted(parts.items())
    }
    return figures, is_whole
