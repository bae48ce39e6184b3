"""The full check of a store: every file of every kind against the log, and the log against itself.

One walk over the log feeds all checks: records on their own, consume queues, queues of batches, index. Memory does not
grow with the store. The files are read while their owner may write, so of an open store only what holds at any moment
counts as an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from fusee.store.offline.check_batch_queues import BatchQueueCheck
from fusee.store.offline.check_index import IndexCheck
from fusee.store.offline.check_log import LogCheck
from fusee.store.offline.check_queues import QueueCheck
from fusee.store.offline.check_side_files import check_side_files
from fusee.store.offline.columns import Topics, columns_of
from fusee.store.offline.configuration import Configuration
from fusee.store.offline.findings import SHOWN_PER_KIND, Finding, Findings, Severity
from fusee.store.offline.log_facts import LogFacts
from fusee.store.offline.queue_ends import last_entry
from fusee.store.offline.rows import check_row
from fusee.store.offline.state import state_of
from fusee.store.offline.walk import Chunk, Damage, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusee.store.offline.files import OfflineStore

    Progress = Callable[[str, int, int], object]


# What a store shows while its owner writes, flushes and deletes: files are at different points in time.
_IN_MOTION: Final = frozenset(
    {
        "batch-beyond-log", "batch-unit-missing", "checkpoint-ahead", "checkpoint-none", "checkpoint-offset",
        "index-behind", "index-beyond-log", "index-header", "index-slots-old", "log-leftovers", "log-removed",
        "log-torn", "queue-beyond-log", "queue-entry-missing", "queue-file-empty", "queue-missing", "timer-slot",
        "timer-unit", "transaction-redo",
    }
)  # fmt: skip
_INTO_DAMAGE: Final = frozenset({"index-into-damage", "queue-into-damage"})


class KindCount(msgspec.Struct, frozen=True, rename="camel"):
    """How often something was found."""

    severity: Severity
    kind: str
    count: int


class VerifyReport(msgspec.Struct, frozen=True, rename="camel"):
    """What a check found and what it looked at."""

    path: str
    state: str
    """clean, unclean, or open: held by a process now."""
    errors: int
    notes: int
    log_min_offset: int
    log_end_offset: int
    records: int
    record_bytes: int
    queues: int
    queue_entries: int
    batch_units: int
    index_files: int
    index_entries: int
    counts: list[KindCount]
    findings: list[Finding]
    """The first of each kind."""


def verify(
    store: OfflineStore, progress: Progress | None = None, *, shown_per_kind: int = SHOWN_PER_KIND
) -> VerifyReport:
    """Check everything. `progress(what, done, total)` is called in bytes.

    Damage becomes a finding and never an exception; a file that the system does not let us read is a StoreError.
    """
    findings = Findings(shown_per_kind)
    state = state_of(store)
    facts = LogFacts(store, is_unclean=state != "clean")
    topics = Topics()
    configuration = Configuration(store)
    check_row(store, findings, store.log, "log", store.log.segment_size)
    covered_offset = _covered_offset(store)
    log = LogCheck(store, findings, facts, topics)
    batches = BatchQueueCheck(store, findings, facts, topics)
    queues = QueueCheck(store, findings, facts, topics, batches.queues)
    index = IndexCheck(store, findings, facts, topics)
    total = max(covered_offset - facts.min_offset, 1)
    for event in walk(store.log):
        if isinstance(event, Chunk):
            columns = columns_of(event, topics)
            log.accept(event, columns)
            queues.accept(columns)
            batches.accept(columns)
            index.accept(columns, event.log_offset, facts.end_offset)
            if progress is not None:
                progress("log", min(facts.end_offset - facts.min_offset, total), total)
        elif isinstance(event, Damage):
            queues.flush()  # what it has seen so far was not touched by the damage
            log.damage(event)
        else:
            log.end(event, covered_offset)
    queues.finish(configuration.topics(), progress)
    batches.finish()
    index.finish()
    check_side_files(store, findings, facts, configuration)
    if state == "open":
        _fold_motion(findings)
    order = {Severity.ERROR: 0, Severity.NOTE: 1}
    return VerifyReport(
        path=str(store.root),
        state=state,
        errors=findings.total(Severity.ERROR),
        notes=findings.total(Severity.NOTE),
        log_min_offset=facts.min_offset,
        log_end_offset=facts.end_offset,
        records=log.records,
        record_bytes=log.size,
        queues=queues.queues + len(batches.queues),
        queue_entries=queues.entries,
        batch_units=batches.units,
        index_files=index.files,
        index_entries=index.entries,
        counts=[
            KindCount(severity, kind, count)
            for (severity, kind), count in sorted(
                findings.counts.items(), key=lambda item: (order[item[0][0]], item[0][1])
            )
            if count
        ],
        findings=sorted(findings.kept, key=lambda finding: order[finding.severity]),
    )


def _fold_motion(findings: Findings) -> None:
    """One note instead of the many that an open store gives rise to."""
    is_whole = not findings.total(Severity.ERROR)
    count = findings.drop_notes(_IN_MOTION | _INTO_DAMAGE if is_whole else _IN_MOTION)
    if count:
        findings.note(
            "in-motion",
            ".",
            f"the store is open: in {count} cases one file was ahead of another while they were read; for a check that "
            "leaves nothing out, repeat it when the store is closed",
        )


def _covered_offset(store: OfflineStore) -> int:
    """Up to where consume queues know of records."""
    covered = store.log.min_offset
    for files in store.queues():
        entry = last_entry(files.row)
        if entry is not None and entry.size > 0 and store.log.locate(entry.log_offset) is not None:
            covered = max(covered, entry.log_offset + entry.size)
    return covered
