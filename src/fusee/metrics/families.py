"""Values gathered for one scrape: bounded in number, and written as Prometheus families.

A metric by topic or group has as many series as there are topics and groups, and a monitoring system pays for each.
So a metric has at most `SERIES_MAX` of them: the greatest ones, for lag; what is beyond is added up in one
series whose names are `(others)`. `fusee_scrape_folded_series` tells that it happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from fusee.metrics.catalogue import COMMON_LABELS, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric as Family

SERIES_MAX: Final = 2_000
OTHERS: Final = "(others)"


class Figures:
    """Values by metric and labels."""

    def __init__(self, metrics: Iterable[Metric], common: Mapping[str, str], *, series_max: int = SERIES_MAX) -> None:
        """`common` are the values of the labels that all share."""
        self._metrics = {metric.name: metric for metric in metrics}
        self._common = tuple(common[name] for name in COMMON_LABELS)
        self._values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in self._metrics}
        self._series_max = series_max
        self.folded = 0

    def add(self, name: str, value: float, *labels: str) -> None:
        """A value; one of the same labels is added to what is there."""
        assert len(labels) == len(self._metrics[name].labels), name
        values = self._values[name]
        values[labels] = values.get(labels, 0) + value

    def families(self) -> Iterator[Family]:
        """As Prometheus wants them; metrics without a value are left out."""
        for name, metric in self._metrics.items():
            values = self._bounded(self._values[name])
            if not values:
                continue
            family = (
                CounterMetricFamily(name.removesuffix("_total"), metric.help, labels=(*COMMON_LABELS, *metric.labels))
                if metric.kind is Kind.COUNTER
                else GaugeMetricFamily(name, metric.help, labels=(*COMMON_LABELS, *metric.labels))
            )
            for labels, value in values.items():
                family.add_metric((*self._common, *labels), value)
            yield family

    def _bounded(self, values: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
        if len(values) <= self._series_max:
            return values
        ranked = sorted(values, key=lambda labels: (-values[labels], labels))
        kept = {labels: values[labels] for labels in ranked[: self._series_max]}
        rest = ranked[self._series_max :]
        self.folded += len(rest)
        kept[(OTHERS,) * len(ranked[0])] = sum(values[labels] for labels in rest)
        return kept
