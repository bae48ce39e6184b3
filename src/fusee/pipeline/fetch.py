"""What a task of Spark does: read ranges of queues from their brokers, as batches of columns.

Theory of operation
-------------------
The ranges of one broker group are read over one connection, which the process keeps for its next task. A connection
that breaks, or an answer that asks for patience, is followed by another try with the next address of the group, master
first: the ranges remember how far they are, so nothing is read twice and nothing is left out. What fails for longer
than `retries` tries in a row is raised.

Offsets that are not in the queue any more (expired, or lost with a broker's disk) are a DataLossError, or are skipped
with one warning per range when `fail_on_data_loss` is off. Gaps inside a queue are normal where a filter is at work.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fusee.errors import DataLossError, FuseeError, ProtocolError, TopicNotFoundError, UnavailableError
from fusee.filter import parse_subscription
from fusee.pipeline.batches import BATCH_SIZE, RecordBatches
from fusee.pipeline.blocking_link import BlockingLink, client_context
from fusee.pipeline.broker_addresses import BrokerAddresses
from fusee.pipeline.bulk_reads import BulkReadRefusedError, read_in_bulk
from fusee.pipeline.local_logs import LocalLogs
from fusee.pipeline.progress import OffsetsGoneError, RangeProgress
from fusee.pipeline.pulls import PullTerms, pull_ranges
from fusee.pipeline.refusals import Refusals
from fusee.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from fusee.pipeline.ranges import QueueRange

logger = logging.getLogger(__name__)

PULL_BATCH_SIZE: Final = 32
PULL_TIMEOUT_MS: Final = 30_000
_IDLE_LINKS_MAX: Final = 16
_RETRY_DELAY_MS_MAX: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a task reaches the brokers, and what it asks them for. Pickles.

    `pull_timeout_ms` is how long a connection or an answer may take; a try that failed is made again up to `retries`
    times in a row, after `retry_delay_ms`, then twice that, and so on. `instance` sets the connections of one query
    apart from those of another. Without `bulk_reads` a Fusee broker is pulled from, too; without `local_reads` the
    bytes travel also where the broker is on the same machine.
    """

    name_servers: str
    group: str
    tags: str = "*"
    sql: str | None = None
    pull_batch_size: int = PULL_BATCH_SIZE
    pull_timeout_ms: int = PULL_TIMEOUT_MS
    retries: int = 6
    retry_delay_ms: int = 100
    tls: bool = False
    tls_ca_file: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_verify: bool = True
    instance: str = ""
    fail_on_data_loss: bool = True
    bulk_reads: bool = True
    local_reads: bool = True


def fetch(
    settings: FetchSettings, ranges: Sequence[QueueRange], columns: Sequence[str], *, batch_size: int = BATCH_SIZE
) -> Iterator[pa.RecordBatch]:
    """The messages of these ranges in batches of about this many bytes: each range in order, ranges in any order.

    Blocks; may be called in any thread or process. Raises DataLossError when messages are gone (unless the settings
    say to go on), FilterError or InvalidRequestError for a filter that is wrong, TransportError or RemoteError when a
    broker could not be read in all its tries.
    """
    worker = _worker(settings)
    by_broker: dict[str, list[RangeProgress]] = {}
    for asked in ranges:
        by_broker.setdefault(asked.broker_name, []).append(RangeProgress(asked))
    tags = parse_subscription("", settings.tags).tags if settings.sql is None else frozenset[str]()
    for broker_name, group in by_broker.items():
        batches = RecordBatches(columns, broker_name=broker_name, batch_size=batch_size, tags=tags)
        yield from _Reading(worker, broker_name, group, batches).batches()
        yield from batches.flush()


class _Reading:
    """The ranges of one broker group, read to their ends whatever happens in between."""

    def __init__(self, worker: _Worker, broker_name: str, ranges: list[RangeProgress], batches: RecordBatches) -> None:
        self._worker = worker
        self._batches = batches
        self._settings = worker.settings
        self._broker_name = broker_name
        self._ranges = ranges
        self._failures = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        while unread := [each for each in self._ranges if not each.is_done]:
            address, is_master = "", False
            try:
                address, is_master = self._choose(unread[0].range.topic)
                with self._worker.link(address) as link:
                    yield from self._read(link, unread)
            except OffsetsGoneError as gone:
                self._gone(gone, address, is_master)
            except (FuseeError, OSError) as error:
                self._failed(error, unread)

    def _read(self, link: BlockingLink, unread: list[RangeProgress]) -> Iterator[pa.RecordBatch]:
        """In bulk where the broker does that, else by pulls."""
        worker, terms = self._worker, self._worker.terms
        by_topic: dict[str, list[RangeProgress]] = {}
        for each in unread:
            by_topic.setdefault(each.range.topic, []).append(each)
        for topic, ranges in by_topic.items():
            if self._settings.bulk_reads and terms.is_by_tag and worker.may_read_in_bulk(link.address, topic):
                try:
                    local = worker.local_logs(link.address)
                    reading = read_in_bulk(link, topic, ranges, terms, local=local, local_refused=worker.not_local.add)
                    for records in reading:
                        self._failures = 0
                        yield from self._batches.add_placed(records.data, records.positions, records.parts)
                    continue
                except BulkReadRefusedError as refusal:
                    logger.debug("%s is pulled from %s: %s", topic, link.address, refusal)
                    worker.refused_bulk(link.address, topic)
            for pulled in pull_ranges(link, ranges, terms):
                self._failures = 0
                yield from self._batches.add(pulled)

    def _choose(self, topic: str) -> tuple[str, bool]:
        """The address to try, and whether it is the master's."""
        addresses = self._worker.addresses.of(topic, self._broker_name)
        number = self._failures % len(addresses)
        return addresses[number], number == 0

    def _gone(self, gone: OffsetsGoneError, address: str, is_master: bool) -> None:
        progress = gone.progress
        asked = progress.range
        if is_master and not gone.is_at_end:
            self._lost(progress, min(gone.skip_to, asked.end_offset), gone)
            return
        # A slave may be behind, and so may the queues of a broker that has just started.
        try:
            self._failed(
                UnavailableError(
                    f"{address} has no offset {progress.position} of topic {asked.topic!r}, queue {asked.queue_id}: "
                    f"{gone}",
                    code=ResponseCode.PULL_NOT_FOUND,
                    address=address,
                    topic=asked.topic,
                ),
                [progress],
            )
        except UnavailableError:
            if not is_master:
                raise
            self._lost(progress, asked.end_offset, gone)

    def _lost(self, progress: RangeProgress, skip_to: int, cause: Exception) -> None:
        asked = progress.range
        what = (
            f"offsets {progress.position} to {skip_to - 1} of topic {asked.topic!r}, broker {asked.broker_name!r}, "
            f"queue {asked.queue_id} are not there: {cause}"
        )
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{what}; they expired or were lost. Start later, keep messages longer, or set failOnDataLoss to false "
                "to go on without them"
            ) from cause
        logger.warning("%s; going on without them", what)
        progress.position = skip_to
        self._failures = 0

    def _failed(self, error: Exception, unread: list[RangeProgress]) -> None:
        """Wait before the next try, or raise what cannot be mended by one."""
        settings = self._settings
        if not (isinstance(error, (OSError, ProtocolError)) or getattr(error, "retryable", False)):
            raise error
        self._failures += 1
        for topic in {each.range.topic for each in unread}:
            self._worker.addresses.forget(topic)
        if self._failures <= settings.retries:
            delay_ms = min(settings.retry_delay_ms * 2 ** (self._failures - 1), _RETRY_DELAY_MS_MAX)
            logger.info("reading from %s goes on in %d ms: %s", self._broker_name, delay_ms, error)
            threading.Event().wait(delay_ms / 1000)
        elif isinstance(error, TopicNotFoundError):
            topic = error.topic or unread[0].range.topic
            for each in unread:
                if each.range.topic == topic:
                    self._lost(each, each.range.end_offset, error)
        else:
            raise error


class _Worker:
    """What a process keeps between tasks of the same settings: addresses and idle connections."""

    def __init__(self, settings: FetchSettings) -> None:
        self.settings = settings
        self._tls = (
            client_context(
                ca_file=settings.tls_ca_file,
                certificate=settings.tls_certificate,
                key=settings.tls_key,
                verify=settings.tls_verify,
            )
            if settings.tls
            else None
        )
        self.addresses = BrokerAddresses(settings.name_servers, timeout_ms=settings.pull_timeout_ms, tls=self._tls)
        sql = settings.sql
        self.terms = PullTerms(
            settings.group,
            settings.tags if sql is None else sql,
            "TAG" if sql is None else "SQL92",
            settings.pull_batch_size,
        )
        self._refused = Refusals()
        self.not_local = Refusals()
        """Addresses of brokers whose files cannot be read here."""
        self._idle: dict[str, list[BlockingLink]] = {}
        self._of_thread = threading.local()
        self._lock = threading.Lock()

    def local_logs(self, address: str) -> LocalLogs | None:
        """What reads the files of the broker at this address, if that may be tried; one for each thread."""
        if not self.settings.local_reads or address in self.not_local:
            return None
        logs: LocalLogs | None = getattr(self._of_thread, "logs", None)
        if logs is None:
            logs = self._of_thread.logs = LocalLogs()
        return logs

    def may_read_in_bulk(self, address: str, topic: str) -> bool:
        """Whether it is worth asking: a refusal counts for a while."""
        return (address, topic) not in self._refused

    def refused_bulk(self, address: str, topic: str) -> None:
        self._refused.add((address, topic))

    @contextmanager
    def link(self, address: str) -> Iterator[BlockingLink]:
        """A connection to this address, kept for the next one unless something is outstanding or has failed."""
        with self._lock:
            links = self._idle.get(address)
            link = links.pop() if links else None
        if link is None:
            link = BlockingLink(address, timeout_ms=self.settings.pull_timeout_ms, tls=self._tls)
        is_whole = False
        try:
            yield link
            is_whole = link.is_idle
        finally:
            with self._lock:
                links = self._idle.setdefault(address, [])
                if is_whole and len(links) < _IDLE_LINKS_MAX:
                    links.append(link)
                else:
                    link.close()


_workers: dict[tuple[int, FetchSettings], _Worker] = {}
_workers_lock = threading.Lock()


def _worker(settings: FetchSettings) -> _Worker:
    # Spark's workers are forked: a connection made before a fork belongs to the parent.
    key = os.getpid(), settings
    with _workers_lock:
        worker = _workers.get(key)
        if worker is None:
            worker = _workers[key] = _Worker(settings)
        return worker
