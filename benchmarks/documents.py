"""Tables in docs/performance.md: each stands between two comments that name its benchmark, and is replaced whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.plan import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

PERFORMANCE: Final = REPOSITORY / "docs" / "performance.md"


def put_table(name: str, table: str, path: Path = PERFORMANCE) -> None:
    """Replaces the table of this benchmark. Raises BenchmarkError when the document has no place for it."""
    first, last = f"<!-- table of {name} -->\n", f"<!-- end of {name} -->\n"
    text = path.read_text()
    before, found, rest = text.partition(first)
    _, found_last, after = rest.partition(last)
    if not found or not found_last:
        raise BenchmarkError(
            f"{path} has no place for the table: put {first.strip()} and {last.strip()} where it belongs"
        )
    path.write_text(f"{before}{first}\n{table.strip()}\n\n{last}{after}")
