"""The table of metrics: names, the board of Grafana, and the documents that are made from it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fusee.metrics.catalogue import ALL, COMMON_LABELS, Kind

ROOT = Path(__file__).parents[2]
BOARD = ROOT / "docs" / "grafana" / "fusee.json"


def test_names_are_unique_and_say_their_kind() -> None:
    names = [metric.name for metric in ALL]
    assert len(names) == len(set(names))
    for metric in ALL:
        assert re.fullmatch(r"(rocketmq|fusee)_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert not set(metric.labels) & set(COMMON_LABELS)


def test_every_metric_and_label_on_the_board_is_exported() -> None:
    board = json.loads(BOARD.read_text())
    labels = {metric.name: {*COMMON_LABELS, *metric.labels} for metric in ALL}
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) >= 20
    for expression in expressions:
        named = re.findall(r"\b(?:rocketmq|fusee)_[a-z_]+", expression)
        assert named, expression
        for name in named:
            assert name in labels, f"{name} of {expression} is not exported"
            asked = set(re.findall(r"(\w+)=~?\"", expression)) | {
                word for group in re.findall(r"by \(([^)]*)\)", expression) for word in group.split(", ")
            }
            assert asked <= labels[name], expression


def test_the_document_has_every_metric() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    for metric in ALL:
        assert f"`{metric.name}`" in text, f"docs/metrics.md does not tell of {metric.name}; run `make docs`"
