"""What lies beside log, queues and index: checkpoint, configuration, and what is not known here."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from fusee.store.layout import CHECKPOINT_SIZE
from fusee.store.offline.check_timer import check_timer
from fusee.store.offline.check_transactions import check_transactions
from fusee.store.offline.files import names_in
from fusee.store.offline.findings import Severity
from fusee.store.offline.queue_ends import queue_span

if TYPE_CHECKING:
    from fusee.store.offline.configuration import Configuration
    from fusee.store.offline.files import OfflineStore
    from fusee.store.offline.findings import Findings
    from fusee.store.offline.log_facts import LogFacts

CHECKPOINT_FIELDS: Final = Struct(">qqqqq")
_KNOWN: Final = frozenset(
    {
        "commitlog", "consumequeue", "batchconsumequeue", "index", "config", "checkpoint", "abort", "abort.bak", "lock",
        "timerwheel", "timerlog", "transaction",
    }
)  # fmt: skip
# Known to the reference, but not read here.
_UNREAD: Final = frozenset({"rocksdbstore", "compaction", "consumequeue_ext", "epochFileCheckpoint", "brokerIdentity"})


def check_side_files(store: OfflineStore, findings: Findings, facts: LogFacts, configuration: Configuration) -> None:
    """Check all of them; the log must have been walked."""
    _check_checkpoint(store, findings, facts)
    _check_configuration(store, findings, facts, configuration)
    check_timer(store, findings, facts)
    check_transactions(store, findings, facts)
    for name in names_in(store.root):
        if name in _UNREAD:
            findings.note("unread", name, "this is known, but not checked here")
        elif name not in _KNOWN:
            findings.note("foreign", name, "this is no part of a store that is known here")


def _check_checkpoint(store: OfflineStore, findings: Findings, facts: LogFacts) -> None:
    path = store.paths.checkpoint
    file = store.relative(path)
    data = store.read_file(path, CHECKPOINT_SIZE * 16)
    if data is None:
        if store.log:
            findings.note("checkpoint-none", file, "there is no checkpoint: recovery starts from the first file")
        return
    if len(data) < CHECKPOINT_FIELDS.size:
        findings.error(
            "checkpoint-size", file, f"it has {len(data)} bytes where {CHECKPOINT_SIZE} are usual", len(data)
        )
        return
    if len(data) != CHECKPOINT_SIZE:
        findings.note("checkpoint-size", file, f"it has {len(data)} bytes where {CHECKPOINT_SIZE} are usual", len(data))
    log_ms, queues_ms, index_ms, master_offset, confirmed_offset = CHECKPOINT_FIELDS.unpack_from(data)
    severity = Severity.NOTE if facts.is_unclean else Severity.ERROR
    for position, what, time_ms in ((0, "log", log_ms), (8, "consume queues", queues_ms), (16, "index", index_ms)):
        if time_ms < 0:
            text = f"the time of the {what}, {time_ms}, is none"
            findings.error("checkpoint-time", file, text, position)
        elif time_ms > facts.last_timestamp_ms and store.log:
            text = (
                f"it promises the {what} up to time {time_ms}, but the last record is of {facts.last_timestamp_ms}: "
                "recovery may start too late"
            )
            findings.tell(severity, "checkpoint-ahead", file, text, position)
    for position, what, log_offset in ((24, "master's flushed", master_offset), (32, "confirmed", confirmed_offset)):
        if log_offset < -1 or log_offset > facts.end_offset:
            text = f"the {what} log offset {log_offset} is behind the end of the log at {facts.end_offset}"
            findings.note("checkpoint-offset", file, text, position)


def _check_configuration(
    store: OfflineStore, findings: Findings, facts: LogFacts, configuration: Configuration
) -> None:
    for name, config in configuration.files.items():
        if not config.problem:
            continue
        file = store.relative(config.path)
        twin = configuration.files.get(f"{name}.bak")
        if name.endswith(".bak"):
            findings.note("config-backup", file, config.problem)
        elif twin is not None and not twin.problem:
            findings.error(
                "config-json", file, f"{config.problem}; a broker would take {name}.bak instead, an older state"
            )
        else:
            findings.error("config-json", file, f"{config.problem}; and there is no {name}.bak that could stand for it")
    ends: dict[tuple[str, int], int] = {}
    batch_topics = {(files.topic, files.queue_id) for files in store.batch_queues()}
    for committed in configuration.committed_offsets():
        key = (committed.topic, committed.queue_id)
        if key in batch_topics:
            continue
        if key not in ends:
            row = store.queue(*key)
            ends[key] = queue_span(row, facts.min_offset).max_offset if row else -1
        if 0 <= ends[key] < committed.queue_offset:
            findings.note(
                "config-offset",
                "config/consumerOffset.json",
                f"group {committed.group} is at {committed.queue_offset} of {committed.topic} queue "
                f"{committed.queue_id}, which ends at {ends[key]}",
            )
