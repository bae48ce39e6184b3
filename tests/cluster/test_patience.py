"""Waiting in real time."""

from __future__ import annotations

from fusee.cluster.patience import Patience, breathe


def test_patience_runs_out() -> None:
    patience = Patience(0.005)
    assert 0 < patience.left <= 0.005
    assert patience.seconds == 0.005
    breathe(0.006)
    assert patience.is_over
    assert patience.left == 0


def test_no_patience_is_over_at_once() -> None:
    assert Patience(0).is_over
    assert not Patience(60).is_over
