"""The table of client x feature: who and what is in it, what a client does not offer, and the result of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

CLIENTS: Final = {
    "java-5.5.0": "Java rocketmq-client 5.5.0",
    "java-binary": "the same with binary headers (rocketmq.serialize.type=ROCKETMQ)",
    "java-4.9.8": "Java rocketmq-client 4.9.8",
    "go-2.1.2": "Go rocketmq-client-go v2.1.2",
    "node-3.12.0": "npm ali-ons 3.12.0",
    "cpp-0.4.4": "PyPI rocketmq 0.4.4 (C++)",
}

FEATURES: Final = {
    "send_sync": "send sync",
    "send_async": "send async",
    "send_oneway": "send oneway",
    "send_batch": "send batch",
    "send_ordered": "send ordered (selector)",
    "send_delayed": "send delayed",
    "transaction": "transaction with check-back",
    "request_reply": "request-reply",
    "push_concurrent": "push concurrent",
    "push_orderly": "push orderly",
    "broadcast": "push broadcast",
    "lite_pull": "lite pull",
    "pull": "pull",
    "tag_filter": "tag filter",
    "sql_filter": "SQL filter",
    "dead_letters": "retries into the DLQ",
    "offset_reset": "offset reset (mqadmin)",
    "trace": "message trace",
    "tls": "TLS on, and refused when off",
}

_NODE_ONLY_PUSH: Final = "the package has a producer with one way to send and a push consumer"
_CPP_NOT_EXPORTED: Final = "the library in the wheel exports no such function"

# What a client's interface does not have at all.
ABSENT: Final = {
    ("go-2.1.2", "tls"): "the client dials plain TCP only",
    ("node-3.12.0", "send_oneway"): _NODE_ONLY_PUSH,
    ("node-3.12.0", "send_batch"): _NODE_ONLY_PUSH,
    ("node-3.12.0", "transaction"): _NODE_ONLY_PUSH,
    ("node-3.12.0", "request_reply"): _NODE_ONLY_PUSH,
    ("node-3.12.0", "push_orderly"): "the consumer takes no queue locks",
    ("node-3.12.0", "lite_pull"): _NODE_ONLY_PUSH,
    ("node-3.12.0", "pull"): _NODE_ONLY_PUSH,
    ("node-3.12.0", "trace"): "the package writes no traces",
    ("node-3.12.0", "tls"): "the package dials plain TCP only",
    ("cpp-0.4.4", "send_batch"): (
        "it sends a batch as one plain message with batch=1, which RocketMQ 5.5.0 stores as one message too"
    ),
    ("cpp-0.4.4", "transaction"): _CPP_NOT_EXPORTED,
    ("cpp-0.4.4", "request_reply"): _CPP_NOT_EXPORTED,
    ("cpp-0.4.4", "lite_pull"): _CPP_NOT_EXPORTED,
    ("cpp-0.4.4", "sql_filter"): "subscriptions are by tag only",
    ("cpp-0.4.4", "trace"): _CPP_NOT_EXPORTED,
    ("cpp-0.4.4", "tls"): _CPP_NOT_EXPORTED,
}

# What the real broker, 5.5.0, does not do for a client, so that only ours can be held to it.
REFERENCE_FAULTS: Final = {
    ("cpp-0.4.4", "dead_letters"): (
        "the client sends messages back without originTopic; 5.5.0 then answers the last retry with a "
        "NullPointerException of its metrics instead of storing the dead letter"
    ),
}

# What CI runs: every client sends and consumes, and the current client does what is hardest to serve.
QUICK: Final = {
    *((client, "push_concurrent") for client in CLIENTS if client != "java-binary"),
    ("java-5.5.0", "transaction"),
    ("java-5.5.0", "send_delayed"),
    ("java-5.5.0", "dead_letters"),
}


@dataclass(frozen=True)
class Cell:
    """What became of one feature with one client: passed, failed, skipped or absent; how long it took, or why."""

    client: str
    feature: str
    outcome: str
    seconds: float = 0.0
    reason: str = ""

    @property
    def mark(self) -> str:
        match self.outcome:
            case "passed":
                return f"yes {self.seconds:.1f}s"
            case "absent":
                return "n/a"
        return self.outcome.upper()


class Matrix:
    """The cells of a run."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._cells: dict[tuple[str, str], Cell] = {
            (client, feature): Cell(client, feature, "absent", reason=reason)
            for (client, feature), reason in ABSENT.items()
        }

    def add(self, cell: Cell) -> None:
        self._cells[cell.client, cell.feature] = cell

    def cell(self, client: str, feature: str) -> Cell | None:
        return self._cells.get((client, feature))

    def rows(self) -> list[list[str]]:
        """A row per feature: its title and a mark per client, empty where nothing was run."""
        return [
            [title, *(cell.mark if (cell := self.cell(client, feature)) else "" for client in CLIENTS)]
            for feature, title in FEATURES.items()
        ]

    def save(self, path: Path) -> None:
        """Writes outcomes and reasons, without the times, so that equal runs give equal files."""
        cells = [
            {"client": client, "feature": feature, "outcome": cell.outcome, "reason": cell.reason}
            for client in CLIENTS
            for feature in FEATURES
            if (cell := self.cell(client, feature)) is not None
        ]
        document = {"subject": self.subject, "clients": CLIENTS, "features": FEATURES, "cells": cells}
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
