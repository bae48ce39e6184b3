"""Which brokers were slow or failed lately, and for how long they are better avoided (Java: MQFaultStrategy).

Pure: time is told, nothing is waited for. Every send reports how long its answer took. A latency over a step of the
table isolates the broker for the time of that step; a failure counts like an answer that took ten seconds. Isolation
never ends earlier because of a later good answer: a broker that answers one send quickly between two slow ones is
still slow. While every broker is isolated, those that could at least be reached are preferred, then any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LATENCY_STEPS_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
ISOLATION_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_COUNTS_AS_MS: Final = 10_000
DETECT_INTERVAL: Final = 2.0
_BROKERS_MAX: Final = 4096


def isolation_ms(latency_ms: float) -> int:
    """How long a broker with this latency is avoided."""
    for step_ms, avoided_ms in zip(reversed(LATENCY_STEPS_MS), reversed(ISOLATION_MS), strict=True):
        if latency_ms >= step_ms:
            return avoided_ms
    return 0


class _Fault:
    __slots__ = ("checked_after", "is_reachable", "isolated_until", "latency_ms")

    def __init__(self) -> None:
        self.latency_ms = 0.0
        self.isolated_until = 0.0
        self.is_reachable = True
        self.checked_after = 0.0


class LatencyFaults:
    """What is known of each broker, by name. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def update(
        self, broker_name: str, latency_ms: float, now: float, *, failed: bool = False, reachable: bool = True
    ) -> None:
        """An answer took so long, or there was none (`failed`), or not even a way to ask (`reachable` False)."""
        fault = self._faults.get(broker_name)
        if fault is None:
            if len(self._faults) >= _BROKERS_MAX:
                self._faults.pop(next(iter(self._faults)))
            fault = self._faults[broker_name] = _Fault()
        fault.latency_ms = latency_ms
        fault.is_reachable = reachable
        avoided_ms = isolation_ms(FAILURE_COUNTS_AS_MS if failed else latency_ms)
        if avoided_ms:
            fault.isolated_until = max(fault.isolated_until, now + avoided_ms / 1000)

    def is_available(self, broker_name: str, now: float) -> bool:
        """Whether the broker is not isolated."""
        fault = self._faults.get(broker_name)
        return fault is None or now >= fault.isolated_until

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the last try could at least ask it."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def latency_ms(self, broker_name: str) -> float | None:
        """What its last answer took; None when nothing is known."""
        fault = self._faults.get(broker_name)
        return None if fault is None else fault.latency_ms

    def due_for_check(self, now: float) -> list[str]:
        """Unreachable brokers whose turn it is to be asked whether they are back; each again after two seconds."""
        due = [name for name, fault in self._faults.items() if not fault.is_reachable and fault.checked_after <= now]
        for name in due:
            self._faults[name].checked_after = now + DETECT_INTERVAL
        return due

    def found_reachable(self, broker_name: str) -> None:
        """A check was answered."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            fault.is_reachable = True

    def keep_only(self, broker_names: Iterable[str]) -> None:
        """Forget brokers that no route names any more."""
        known = set(broker_names)
        for name in [name for name in self._faults if name not in known]:
            del self._faults[name]
