"""The disk on one page: names, sizes and magic numbers of every file of a store.

    <root>/
      commitlog/                      00000000000000000000, 00000000001073741824, ...   records, in order of arrival
      consumequeue/<topic>/<queue>/   00000000000000000000, 00000000000006000000, ...   20-byte entries
      batchconsumequeue/...           46-byte entries, for topics of type BatchCQ
      index/                          20261116120000000, ...                            hash index of keys
      transaction/states/             00000000000000000000, ...                         32-byte states (ours)
      transaction/redo/               00000000000000000000, ...                         redo log of the states (ours)
      config/*.json                   topics, groups, offsets; each with its .bak
      checkpoint                      times up to which everything is on disk
      truncation                      where the log is being cut, while that is done (ours)
      local_reads                     by which readers on this machine know that they are (ours)
      abort                           there while a process has the store open
      lock                            held by that process

A segment's name is the offset of its first byte in the log or queue it belongs to, 20 digits. All numbers in all
files are big-endian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
INDEX: Final = "index"
TRANSACTION_STATES: Final = "transaction/states"
TRANSACTION_REDO: Final = "transaction/redo"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
TRUNCATION: Final = "truncation"
LOCAL_READS: Final = "local_reads"
ABORT: Final = "abort"
LOCK: Final = "lock"

CONSUME_ENTRY_SIZE: Final = 20
BATCH_CONSUME_ENTRY_SIZE: Final = 46
CHECKPOINT_SIZE: Final = 4096

INDEX_HEADER_SIZE: Final = 40
INDEX_SLOT_SIZE: Final = 4
INDEX_ENTRY_SIZE: Final = 20

PAGE_SIZE: Final = 4096
NAME_DIGITS: Final = 20


def segment_name(base_offset: int) -> str:
    """The file name of the segment that starts at this offset."""
    return f"{base_offset:0{NAME_DIGITS}d}"


def base_offset_of(name: str) -> int | None:
    """The offset in a segment's name; None when this is no segment's name."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


class StorePaths:
    """Where things are under one root."""

    def __init__(self, root: Path, commit_log: Path | None = None) -> None:
        self.root = root
        self.commit_log = commit_log or root / COMMIT_LOG
        self.consume_queues = root / CONSUME_QUEUE
        self.batch_consume_queues = root / BATCH_CONSUME_QUEUE
        self.index = root / INDEX
        self.transaction_states = root / TRANSACTION_STATES
        self.transaction_redo = root / TRANSACTION_REDO
        self.config = root / CONFIG
        self.checkpoint = root / CHECKPOINT
        self.truncation = root / TRUNCATION
        self.local_reads = root / LOCAL_READS
        self.abort = root / ABORT
        self.lock = root / LOCK

    def consume_queue(self, topic: str, queue_id: int) -> Path:
        return self.consume_queues / topic / str(queue_id)
