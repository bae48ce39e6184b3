"""The transaction table against the queue of half messages that it is made from, and the redo log in itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fusee.message.topics import HALF_TOPIC
from fusee.store import transaction_redo
from fusee.store.layout import TRANSACTION_REDO, TRANSACTION_STATES
from fusee.store.offline.check_queues import ENTRY
from fusee.store.offline.findings import Severity
from fusee.store.offline.rows import check_row, entry_blocks
from fusee.store.transaction_redo import REDO_SIZE
from fusee.store.transaction_table import STATE_SIZE, TransactionState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusee.store.offline.files import OfflineStore, SegmentFile, SegmentRow
    from fusee.store.offline.findings import Findings
    from fusee.store.offline.log_facts import LogFacts

STATE: Final = np.dtype(
    [
        ("log_offset", ">i8"),
        ("timestamp_ms", ">i8"),
        ("size", ">i4"),
        ("group_hash", ">i4"),
        ("state", ">i4"),
        ("distance", ">i4"),
    ]
)


def check_transactions(store: OfflineStore, findings: Findings, facts: LogFacts) -> None:
    """Check the table; the log must have been walked."""
    states = store.row(TRANSACTION_STATES)
    redo = store.row(TRANSACTION_REDO)
    check_row(store, findings, states, "transaction", states.segment_size, STATE_SIZE)
    check_row(store, findings, redo, "transaction", redo.segment_size, REDO_SIZE)
    _check_redo(store, findings, facts, redo)
    if facts.is_unclean:
        return  # the table is made anew from the redo log
    queue = store.queue(HALF_TOPIC, 0)
    for segment in states.segments:
        for position, entries in entry_blocks(states, segment, STATE):
            first = (segment.base_offset + position) // STATE_SIZE
            data = queue.read(first * ENTRY.itemsize, len(entries) * ENTRY.itemsize)
            halves = np.zeros(len(entries), ENTRY)
            read: NDArray[Any] = np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
            halves[: len(read)] = read
            _check_entries(store, findings, facts, segment, position, entries, halves)


def _check_redo(store: OfflineStore, findings: Findings, facts: LogFacts, redo: SegmentRow) -> None:
    """Are changes whole and in log order, up to where nothing is written?"""
    severity = Severity.NOTE if facts.is_unclean else Severity.ERROR
    last = 0
    for segment in redo.segments:
        for position, entries in entry_blocks(redo, segment, transaction_redo._REDO_TYPE):
            log_offset = entries["log_offset"].astype(np.int64)
            written = (entries["check"] != 0) | (entries["state"] != 0) | (log_offset != 0)
            sound = entries["check"] == transaction_redo._check_words(entries)
            sound &= np.diff(log_offset, prepend=last) >= 0
            sound &= log_offset < max(facts.end_offset, 1)
            bad = np.flatnonzero(written & ~sound)
            if len(bad):
                at = position + int(bad[0]) * REDO_SIZE
                text = f"{len(bad)} changes from here on do not match their check words, their order, or the log"
                findings.tell(severity, "transaction-redo", store.relative(segment.path), text, at)
                return
            if not written.all():
                return
            last = int(log_offset[-1])


def _check_entries(
    store: OfflineStore,
    findings: Findings,
    facts: LogFacts,
    segment: SegmentFile,
    position: int,
    entries: NDArray[Any],
    halves: NDArray[Any],
) -> None:
    """Compare entries with those of the half queue that have the same numbers."""
    first = (segment.base_offset + position) // STATE_SIZE
    wrong = (
        (entries["log_offset"] != halves["log_offset"])
        | (entries["size"] != halves["size"])
        | ~np.isin(entries["state"], [state.value for state in TransactionState])
    )
    wrong &= (entries["state"] != TransactionState.NONE) & (entries["log_offset"] >= facts.min_offset)

    def made(index: int) -> tuple[str, str, int, int]:
        entry = entries[index]
        text = (
            f"transaction {first + index} in state {entry['state']}: no half record of {entry['size']} bytes is at log "
            f"offset {entry['log_offset']}"
        )
        return store.relative(segment.path), text, position + index * STATE_SIZE, int(entry["log_offset"])

    findings.add_each(Severity.ERROR, "transaction-state", np.flatnonzero(wrong).tolist(), made)
