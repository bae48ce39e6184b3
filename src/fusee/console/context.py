"""What every page needs: the way to the cluster, its recent past, the log of changes, and what was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fusee.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fusee.clock import Clock
    from fusee.console.audit import Audit
    from fusee.console.cluster_link import ClusterLink
    from fusee.console.history import History


@dataclass(frozen=True)
class Context:
    """The parts of one console."""

    link: ClusterLink
    history: History
    audit: Audit
    pipelines: Path | None = None
    """A folder with the state of Spark pipelines, one folder each."""

    @property
    def clock(self) -> Clock:
        return self.link.clock


@dataclass(frozen=True)
class Asked:
    """What a request names: parts of its path and of its query."""

    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default).strip()

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1_000_000_000) -> int:
        """A whole number within bounds. Raises ConfigError."""
        text = self.text(name)
        if not text:
            return default
        if not text.isascii() or not text.lstrip("-").isdigit() or not least <= int(text) <= most:
            raise ConfigError(f"{name}={text!r}: a whole number from {least} to {most}")
        return int(text)
