"""Stores that Apache RocketMQ 5.5.0 wrote, and what it says about them.

`clean` was closed properly; `killed` lost its broker by SIGKILL while writing, so its `abort` file is there. Their
`.jsonl` files hold what the Java side reads out of them, one object per line, told apart by `kind`: `record` and
`blank` (the log in order), `broker` (limits of the log), `queue` (limits, and queue offset, log offset and size of
each message), `consumerOffsets`, `index` (log offsets by topic and key). `damaged` has no archive: its `edit` lines say
which bytes of the log of `killed` to zero or flip, the lines behind each what Java then serves.
"""

from __future__ import annotations

import lzma
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from fusee.store.config import StoreConfig

GOLDEN = Path(__file__).parent / "store"

# The settings both brokers ran with.
CONFIG = StoreConfig(
    mapped_file_size_commit_log=262_144,
    mapped_file_size_consume_queue=400,
    mapper_file_size_batch_consume_queue=460,
    max_hash_slot_num=100,
    max_index_num=400,
    max_message_size=65_536,
)


def unpack(name: str, folder: Path) -> Path:
    """A fresh copy of the store `clean` or `killed` under this folder; its root."""
    root = folder / name
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    return root


@cache
def _all_lines(name: str) -> tuple[dict[str, Any], ...]:
    text = lzma.decompress((GOLDEN / f"{name}.jsonl.xz").read_bytes())
    return tuple(msgspec.json.decode(line) for line in text.splitlines() if line)


def lines(name: str, kind: str | None = None) -> list[dict[str, Any]]:
    """What Java says about the store `clean`, `killed` or `damaged`; of one kind, if given."""
    return [line for line in _all_lines(name) if kind is None or line["kind"] == kind]
