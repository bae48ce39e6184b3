"""Values gathered for one scrape: bounded in number, and written as Prometheus families.

A metric by topic or group has as many series as there are topics and groups, and a monitoring system pays for each.
So a metric has at most `SERIES_MAX` of them: the greatest ones, for lag; what is beyond is added up in one
series whose names are `(others)`. `fusee_scrape_folded_series` tells that it happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from fusee.metrics.catalogue import COMMON_LABELS, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric as Family

    from fusee.broker.histograms import Distribution

SERIES_MAX: Final = 2_000
OTHERS: Final = "(others)"


class Figures:
    """Values by metric and labels."""

    def __init__(self, metrics: Iterable[Metric], common: Mapping[str, str], *, series_max: int = SERIES_MAX) -> None:
        """`common` are the values of the labels that all share."""
        self._metrics = {metric.name: metric for metric in metrics}
        self._common = tuple(common[name] for name in COMMON_LABELS)
        self._values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in self._metrics}
        self._histograms: dict[str, dict[tuple[str, ...], Distribution]] = {}
        self._series_max = series_max
        self.folded = 0

    def add(self, name: str, value: float, *labels: str) -> None:
        """A value; one of the same labels is added to what is there."""
        assert len(labels) == len(self._metrics[name].labels), name
        values = self._values[name]
        values[labels] = values.get(labels, 0) + value

    def add_histogram(self, name: str, found: Distribution, *labels: str) -> None:
        """The distribution of these labels; of metrics whose labels have few values."""
        assert len(labels) == len(self._metrics[name].labels), name
        assert self._metrics[name].kind is Kind.HISTOGRAM, name
        self._histograms.setdefault(name, {})[labels] = found

    def families(self) -> Iterator[Family]:
        """As Prometheus wants them; metrics without a value are left out."""
        for name, metric in self._metrics.items():
            if name in self._histograms:
                yield self._histogram(metric)
                continue
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

    def _histogram(self, metric: Metric) -> Family:
        family = HistogramMetricFamily(metric.name, metric.help, labels=(*COMMON_LABELS, *metric.labels))
        for labels, found in self._histograms[metric.name].items():
            buckets = [(str(float(edge)), float(n)) for edge, n in zip(found.edges, found.at_most, strict=True)]
            family.add_metric((*self._common, *labels), [*buckets, ("+Inf", float(found.count))], found.total)
        return family

    def _bounded(self, values: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
        if len(values) <= self._series_max:
            return values
        ranked = sorted(values, key=lambda labels: (-values[labels], labels))
        kept = {labels: values[labels] for labels in ranked[: self._series_max]}
        rest = ranked[self._series_max :]
        self.folded += len(rest)
        kept[(OTHERS,) * len(ranked[0])] = sum(values[labels] for labels in rest)
        return kept
