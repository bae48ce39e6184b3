"""How a broker is doing, as the table of texts that brokerStatus and clusterList print (Java: prepareRuntimeInfo).

Figures are of this moment or of the last sample; rates are three numbers, over 10, 60 and 600 seconds, and a rate is
empty until the broker has run that long. Requests are served as they come, so the queues of the reference's thread
pools are empty here, but for sends that wait for the disk; the timer wheel and the ack queue are always idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fusee.wire.lenient_json import dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fusee.broker.settings_update import LiveSettings
    from fusee.broker.statistics import Rates, Statistics
    from fusee.clock import Clock
    from fusee.store.engine import MessageStore
    from fusee.store.filesystem import FileSystem, Space

VERSION: Final = "V5_5_0"
_RATE_SECONDS: Final = (10, 60, 600)
_UNLIMITED: Final = 2**31 - 1
_DAY_SECONDS: Final = 86_400
_UNITS: Final = "KMGTPE"
# What the reference shows as the capacity of queues that have none here.
_LITE_PULL_CAPACITY: Final = 100_000
_QUERY_CAPACITY: Final = 20_000
_ACK_CAPACITY: Final = 100_000
_END_TRANSACTION_CAPACITY: Final = 100_000


class RuntimeInfo:
    """Reads the parts of a broker when asked."""

    def __init__(
        self,
        *,
        settings: LiveSettings,
        statistics: Statistics,
        store: MessageStore,
        files: FileSystem,
        clock: Clock,
        delay_stats: Callable[[], Mapping[str, str]] = dict,
        waiting_sends: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        """`delay_stats` shows how far delayed messages are delivered; `waiting_sends` is how many, and for how long.

        The store is open: bytes put are counted from where it ends now.
        """
        self._settings = settings
        self._statistics = statistics
        self._store = store
        self._files = files
        self._clock = clock
        self._delay_stats = delay_stats
        self._waiting_sends = waiting_sends
        self._first_offset = store.end_offset

    def table(self) -> dict[str, str]:
        """Every figure by name, as text in the reference's form."""
        return self._traffic() | self._days() | self._disk() | dict(self._delay_stats()) | self._queues()

    def _traffic(self) -> dict[str, str]:
        statistics, latency = self._statistics, self._statistics.latency
        size = self._store.end_offset - self._first_offset
        rates = [statistics.rates(seconds) for seconds in _RATE_SECONDS]
        transferred = _series(rates, lambda rate: rate.transferred)
        return {
            "bootTimestamp": str(statistics.started_ms),
            "runtime": _duration((self._clock.time_ms() - statistics.started_ms) // 1000),
            "putMessageEntireTimeMax": str(latency.longest_ms),
            "putMessageTimesTotal": str(statistics.written),
            "putMessageFailedTimes": str(statistics.put_failures),
            "putMessageSizeTotal": str(size),
            "putMessageDistributeTime": latency.text(),
            "putMessageAverageSize": _decimal(size / max(statistics.written, 1)),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(statistics.get_longest_ms),
            "putTps": _series(rates, lambda rate: rate.written),
            "getFoundTps": _series(rates, lambda rate: rate.found),
            "getMissTps": _series(rates, lambda rate: rate.missed),
            "getTotalTps": " ".join(_decimal(0.0 if rate is None else rate.found + rate.missed) for rate in rates),
            "getTransferredTps": transferred,
            # The spelling that tools of 4.x look for.
            "getTransferedTps": transferred,
            "putLatency99": f"{latency.percentile(0.99):.2f}",
            "putLatency999": f"{latency.percentile(0.999):.2f}",
        }

    def _days(self) -> dict[str, str]:
        days = self._statistics.days
        return {
            "msgPutTotalYesterdayMorning": str(days.put.yesterday_morning),
            "msgPutTotalTodayMorning": str(days.put.today_morning),
            "msgPutTotalTodayNow": str(days.put.now),
            "msgGetTotalYesterdayMorning": str(days.got.yesterday_morning),
            "msgGetTotalTodayMorning": str(days.got.today_morning),
            "msgGetTotalTodayNow": str(days.got.now),
        }

    def _disk(self) -> dict[str, str]:
        store, files = self._store, self._files
        log_ratio = _decimal(_used_ratio(files.space(store.paths.commit_log)))
        root = files.space(store.paths.root)
        earliest_ms = store.store_time(store.log.min_offset) if store.written_offset else None
        info = {
            f"commitLogDiskRatio_{store.paths.commit_log}": log_ratio,
            "commitLogDiskRatio": log_ratio,
            "consumeQueueDiskRatio": _decimal(_used_ratio(files.space(store.paths.consume_queues))),
            "commitLogMinOffset": str(store.log.min_offset if store.end_offset else -1),
            "commitLogMaxOffset": str(store.end_offset),
            "commitLogDirCapacity": f"Total : {_readable(root.total)}, Free : {_readable(root.free)}.",
            "dispatchBehindBytes": str(max(store.written_offset - store.dispatched_offset, 0)),
            # How long the lock of the log is held; there is none, one turn of the loop writes for everybody.
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(-1 if earliest_ms is None else earliest_ms),
            "remainTransientStoreBufferNumbs": str(_UNLIMITED),
            "remainHowManyDataToFlush": _readable(max(store.end_offset - store.flushed_offset, 0)),
        }
        if store.config.transient_store_pool_enable:
            gathered = store.log.gathered_bytes
            used = -(-gathered // store.log.segment_size)
            info["remainTransientStoreBufferNumbs"] = str(max(store.config.transient_store_pool_size - used, 0))
            info["remainHowManyDataToCommit"] = _readable(gathered)
        return info

    def _queues(self) -> dict[str, str]:
        config = self._settings.broker
        sends, head_wait_ms = self._waiting_sends()
        info = {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION,
            "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(_END_TRANSACTION_CAPACITY),
        }
        for name, size, capacity, wait_ms in (
            ("send", sends, config.send_thread_pool_queue_capacity, head_wait_ms),
            ("pull", 0, config.pull_thread_pool_queue_capacity, 0),
            ("litePull", 0, _LITE_PULL_CAPACITY, 0),
            ("query", 0, _QUERY_CAPACITY, 0),
            ("ack", 0, _ACK_CAPACITY, 0),
        ):
            info[f"{name}ThreadPoolQueueSize"] = str(size)
            info[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            info[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = str(wait_ms)
        return info


def _series(rates: list[Rates | None], part: Callable[[Rates], float]) -> str:
    return " ".join("" if rate is None else _decimal(part(rate)) for rate in rates)


def _decimal(number: float) -> str:
    """As Java prints a double."""
    return dumps_fastjson(number).decode()


def _used_ratio(space: Space) -> float:
    """In whole percent, rounded up, as Java: 0.21 is more than 20 % and at most 21 %."""
    usable = space.total - space.reserved
    if usable <= 0:
        return -1.0
    return -(-(usable - space.free) * 100 // usable) / 100


def _readable(size: int) -> str:
    """`1.7 KiB`."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}iB"


def _duration(seconds: int) -> str:
    days, rest = divmod(max(seconds, 0), _DAY_SECONDS)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
