"""The mark of a broker's machine: random, new with every start, and for the broker's user only."""

from __future__ import annotations

from pathlib import Path

from fusee.broker.local_mark import LocalMark


def test_mark_is_written_once_and_anew_by_the_next_broker(tmp_path: Path) -> None:
    path = tmp_path / "local_reads"
    mark = LocalMark(path)
    assert not path.exists()
    text = mark.text()
    assert len(text) == 32
    assert path.read_text() == text == mark.text()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    again = LocalMark(path).text()
    assert again != text
    assert path.read_text() == again
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["local_reads"]


def test_half_written_mark_of_a_crash_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "local_reads.new").write_text("half")
    assert LocalMark(tmp_path / "local_reads").text() == (tmp_path / "local_reads").read_text()


def test_store_that_is_not_on_this_disk_has_no_mark(tmp_path: Path) -> None:
    mark = LocalMark(tmp_path / "absent" / "local_reads")
    assert mark.text() == ""
    (tmp_path / "absent").mkdir()
    assert mark.text() == ""
