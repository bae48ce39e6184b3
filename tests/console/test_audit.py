"""The audit log as a file: durable, bounded, and readable after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusee.clock import ManualClock
from fusee.console.audit import Audit
from fusee.errors import ConfigError


def opened(folder: Path, **options: int) -> Audit:
    audit = Audit(folder, ManualClock(), **options)
    audit.load()
    return audit


def test_what_was_begun_and_not_ended_stays_begun(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    done = audit.finish(audit.begin("me", "send", "orders", {}), undo={"offsets": [1]})
    audit.begin("me", "send", "orders", {"a": 1})
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"number": 3, "at')
    again = opened(tmp_path)
    assert [entry.outcome for entry in again.newest()] == ["begun", "done"]
    assert again.get(done.number) == done
    assert again.begin("me", "x", "y", {}).number == 3


def test_the_file_is_bounded_and_the_one_before_is_kept(tmp_path: Path) -> None:
    audit = opened(tmp_path, size_max=2_000)
    for number in range(50):
        audit.finish(audit.begin("me", "send", f"topic-{number}", {}))
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(sizes) == 2
    assert max(sizes) <= 2_000
    assert opened(tmp_path).newest(1)[0].target == "topic-49"


def test_a_change_that_cannot_be_written_down_is_not_begun(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    (tmp_path / "audit.jsonl").mkdir()
    with pytest.raises(ConfigError, match="nothing was changed"):
        audit.begin("me", "send", "orders", {})


def test_without_a_folder_it_is_kept_in_memory() -> None:
    audit = Audit(None, ManualClock())
    audit.load()
    assert not audit.is_durable
    audit.begin("me", "send", "orders", {})
    assert len(audit.newest()) == 1
