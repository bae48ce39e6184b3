"""How far each queue was consumed: kept by brokers for a group that shares its queues, in a file for a broadcast group.

An offset here is always the next one to consume. A consumer `update`s in memory as it goes; `persist` writes that
down, at intervals and when a queue is let go.

    load     what was written down; an error means unknown, and is never taken for "nothing"
    update   in memory only; with `increase_only` a smaller offset is ignored
    freeze   in memory, and deaf to updates until the queue is removed: an operator has moved the group
    persist  writes what is in memory; what could not be written is returned with its cause and tried the next time
    remove   forgets what is in memory

A group's offset is not taken back by accident. Around a rebalance two members may hold one queue for a moment, and
a member whose connection was cut comes back with an old offset; Java's client then overwrites what the other has
committed. Here a commit is preceded by a question, and withheld while the group is further than this member. A
smaller offset is written only after an `update` that lowered it, or a `freeze`: somebody meant it. For the same
reason `pull_commit` gives an offset to ride on a pull only while nobody else is known to be ahead, and only on the
connection on which that was found out; and the commits of one queue are made in turn, because brokers may handle two
that are under way in either order.

When the master of a broker group is gone, its slave is asked and told: it passes on what was committed there when the
master is back.

(Java: RemoteBrokerOffsetStore, LocalFileOffsetStore, ControllableOffset.)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fusee.client.config import DEFAULT_INSTANCE
from fusee.errors import ConfigError, ConnectError, FuseeError, ProtocolError, StoreError, TransportError
from fusee.message.model import MessageQueue
from fusee.wire.bodies.offsets import QueueOffsets
from fusee.wire.bodies.queue_ref import QueueRef
from fusee.wire.lenient_json import decode_json, dumps_fastjson

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from fusee.client.session import Session
    from fusee.store.filesystem import FileSystem, Lock
    from fusee.store.saved_document import SavedDocument
    from fusee.transport.link import Link

T = TypeVar("T")


class OffsetStore(Protocol):
    """Offsets of one group, by queue."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The offset written down, None when there is none. Raises when it is not known.

        It is in memory then, unless an `update` came meanwhile.
        """

    def update(self, queue: MessageQueue, next_offset: int, *, increase_only: bool = False) -> None:
        """Consumed up to here."""

    def freeze(self, queue: MessageQueue, next_offset: int) -> None:
        """To be consumed from here, whatever listeners still finish."""

    def cached(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""

    def pull_commit(self, queue: MessageQueue) -> int | None:
        """The offset that a pull may carry to the broker; None when it should carry none."""

    def snapshot(self, topic: str = "") -> dict[MessageQueue, int]:
        """Every offset in memory, or those of one topic."""

    async def persist(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, FuseeError]:
        """Write down what is in memory for these queues; those for which that failed, with the cause."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget what is in memory for this queue."""

    async def close(self) -> None:
        """Let go of everything. Persist before."""


async def broker_address(session: Session, queue: MessageQueue) -> str:
    """Where to ask about this queue: the master, or another of its group when that is away.

    Asks for the route when the broker group is not known. Raises ConnectError when nobody is there.
    """
    address = session.master_address(queue.broker_name)
    if address is not None:
        return address
    await session.refresh_route(queue.topic)
    found = session.read_address(queue.broker_name)
    if found is None:
        raise ConnectError(
            f"no address is known for broker {queue.broker_name!r}, which has queue {queue.queue_id} of topic "
            f"{queue.topic!r}; see whether it is running and registered with the name servers",
            topic=queue.topic,
        )
    return found[0]


class _Reached:
    """How far one queue is."""

    __slots__ = ("is_frozen", "is_lowered", "link", "next_offset", "turn")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.is_frozen = False
        self.is_lowered = False
        """Somebody means the offset to go back."""
        self.link: Link | None = None
        """The connection on which nobody else was found to be ahead."""
        self.turn = asyncio.Lock()
        """Held while the broker is told."""


class _Table:
    """Offsets in memory, as both stores keep them."""

    def __init__(self) -> None:
        self._reached: dict[MessageQueue, _Reached] = {}

    def update(self, queue: MessageQueue, next_offset: int, *, increase_only: bool = False) -> None:
        reached = self._reached.get(queue)
        if reached is None:
            self._reached[queue] = _Reached(next_offset)
        elif next_offset > reached.next_offset:
            if not reached.is_frozen:
                reached.next_offset = next_offset
        elif next_offset < reached.next_offset and not increase_only and not reached.is_frozen:
            reached.next_offset = next_offset
            reached.is_lowered = True

    def freeze(self, queue: MessageQueue, next_offset: int) -> None:
        reached = self._reached.setdefault(queue, _Reached(next_offset))
        reached.next_offset = next_offset
        reached.is_frozen = reached.is_lowered = True

    def cached(self, queue: MessageQueue) -> int | None:
        reached = self._reached.get(queue)
        return None if reached is None else reached.next_offset

    def snapshot(self, topic: str = "") -> dict[MessageQueue, int]:
        return {
            queue: reached.next_offset for queue, reached in self._reached.items() if not topic or queue.topic == topic
        }

    def remove(self, queue: MessageQueue) -> None:
        self._reached.pop(queue, None)

    def _seen(self, queue: MessageQueue) -> object:
        """What is in memory before what is written down is looked up."""
        reached = self._reached.get(queue)
        return reached and (reached, reached.next_offset, reached.is_lowered)

    def _found(self, queue: MessageQueue, written_offset: int | None, seen: object) -> None:
        """Put it into memory, unless an offset was said meanwhile: that is newer."""
        if written_offset is not None and self._seen(queue) == seen:
            self._reached[queue] = _Reached(written_offset)


class BrokerOffsets(_Table):
    """Offsets of a group that shares its queues, each kept by the broker that has the queue."""

    def __init__(self, session: Session, group: str) -> None:
        super().__init__()
        self._session = session
        self._group = group

    async def load(self, queue: MessageQueue) -> int | None:
        seen = self._seen(queue)
        address = await broker_address(self._session, queue)
        try:
            committed_offset = await self._session.calls.query_offset(address, self._group, queue.topic, queue.queue_id)
        except TransportError:
            other = await self._other_address(queue, address)
            if other is None:
                raise
            committed_offset = await self._session.calls.query_offset(other, self._group, queue.topic, queue.queue_id)
        self._found(queue, committed_offset, seen)
        return committed_offset

    async def _other_address(self, queue: MessageQueue, failed: str) -> str | None:
        """Who has taken the place of a broker that cannot be reached.

        Only the name servers say that a master is gone: as long as they know it, its offsets are the group's.
        """
        with suppress(FuseeError):
            await self._session.refresh_route(queue.topic)
            address = await broker_address(self._session, queue)
            return address if address != failed else None
        return None

    def pull_commit(self, queue: MessageQueue) -> int | None:
        reached = self._reached.get(queue)
        if reached is None or reached.link is None or not reached.link.is_open:
            return None
        return reached.next_offset

    async def persist(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, FuseeError]:
        """As promised. Brokers are told side by side, the queues of one broker in turn.

        A broker that cannot be reached is not asked for each of its queues.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            if queue in self._reached:
                by_broker.setdefault(queue.broker_name, []).append(queue)
        outcomes = await asyncio.gather(*map(self._persist_on_one_broker, by_broker.values()))
        return {queue: error for outcome in outcomes for queue, error in outcome.items()}

    async def _persist_on_one_broker(self, queues: list[MessageQueue]) -> dict[MessageQueue, FuseeError]:
        failed: dict[MessageQueue, FuseeError] = {}
        for position, queue in enumerate(queues):
            try:
                await self._commit(queue)
            except TransportError as error:
                failed.update(dict.fromkeys(queues[position:], error))
                break
            except FuseeError as error:
                failed[queue] = error
        return failed

    async def _commit(self, queue: MessageQueue) -> None:
        reached = self._reached.get(queue)
        if reached is None:
            return
        async with reached.turn:
            address = await broker_address(self._session, queue)
            try:
                await self._commit_to(address, queue, reached)
            except TransportError:
                other = await self._other_address(queue, address)
                if other is None:
                    raise
                await self._commit_to(other, queue, reached)

    async def _commit_to(self, address: str, queue: MessageQueue, reached: _Reached) -> None:
        session, calls = self._session, self._session.calls
        if reached.is_lowered:
            lowered = reached.next_offset
            await calls.update_offset(address, self._group, queue.topic, queue.queue_id, lowered)
            # It may have been lowered again meanwhile.
            reached.is_lowered = reached.next_offset < lowered
            return
        committed_offset = await calls.query_offset(address, self._group, queue.topic, queue.queue_id)
        if self._reached.get(queue) is not reached or reached.is_lowered:
            return  # let go, or moved, while the broker was asked
        if committed_offset is not None and committed_offset > reached.next_offset:
            reached.link = None
            return
        if committed_offset is None or committed_offset < reached.next_offset:
            await calls.update_offset(address, self._group, queue.topic, queue.queue_id, reached.next_offset)
        reached.link = session.transport.open_link(address)

    async def close(self) -> None:
        self._reached.clear()


def local_offsets_path(group: str, instance_name: str = DEFAULT_INSTANCE) -> Path:
    """Where a broadcast group keeps its offsets unless it is told otherwise: below the current folder.

    Several consumers of one group that start in one folder need an `instance_name` each.
    """
    folder = Path(".fusee") / "offsets" / group
    return (folder if instance_name == DEFAULT_INSTANCE else folder / instance_name) / "offsets.json"


class LocalOffsets(_Table):
    """Offsets of a broadcast group in a file, in the format of the Java client's offsets.json.

    The file is held by a lock beside it from the first use to `close`: of two consumers that wrote to one file, each
    would skip what the other has seen. It is replaced as a whole, with the one before as `.bak`; a file that cannot
    be read, and no good `.bak`, is an error, where the Java client starts at the end of every queue.
    """

    def __init__(
        self,
        path: Path,
        *,
        files: FileSystem | None = None,
        offload: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        """`offload` runs a function that waits for the disk: in a thread, unless told otherwise."""
        super().__init__()
        self.path = path
        self._files = files
        self._offload = offload
        self._document: SavedDocument[dict[MessageQueue, int]] | None = None
        self._lock: Lock | None = None
        self._saved: dict[MessageQueue, int] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def load(self, queue: MessageQueue) -> int | None:
        """Raises ConfigError when another consumer holds the file, StoreError when it cannot be read."""
        seen = self._seen(queue)
        await self._to_the_end(self._read())
        saved_offset = self._saved.get(queue)
        self._found(queue, saved_offset, seen)
        return saved_offset

    def pull_commit(self, queue: MessageQueue) -> int | None:
        return None

    async def persist(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, FuseeError]:
        return await self._to_the_end(self._write(tuple(queues)))

    async def close(self) -> None:
        await self._to_the_end(self._let_go())

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this also when the caller is cancelled: a thread at work on the file cannot be called back."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _read(self) -> None:
        async with self._turn:
            if self._document is None:
                self._document = await self._offload(self._open)

    async def _write(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, FuseeError]:
        async with self._turn:
            known = [queue for queue in queues if queue in self._reached]
            try:
                if known and self._document is None:
                    self._document = await self._offload(self._open)
                table = {**self._saved, **{queue: self._reached[queue].next_offset for queue in known}}
                if self._document is not None and table != self._saved:
                    await self._offload(self._document.save, table)
                    self._saved = table
            except FuseeError as error:
                return dict.fromkeys(known, error)
            return {}

    async def _let_go(self) -> None:
        async with self._turn:
            self._reached.clear()
            self._document = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _open(self) -> SavedDocument[dict[MessageQueue, int]]:
        # Only broadcast groups need files: other clients do without the storage engine.
        from fusee.store.filesystem import OsFileSystem
        from fusee.store.saved_document import SavedDocument

        files = self._files or OsFileSystem()
        document = SavedDocument(self.path, files, encode=_encode, decode=_decode)
        files.make_folder(self.path.parent)
        try:
            lock = files.lock(self.path.with_name(self.path.name + ".lock"))
        except StoreError as error:
            raise ConfigError(
                f"the offsets of a broadcast group are kept in {self.path}, which cannot be had: {error}. Give each "
                "consumer of the group that starts in this folder an instance_name of its own"
            ) from error
        try:
            self._saved = document.load() or {}
        except BaseException:
            lock.release()
            raise
        self._lock = lock
        return document


def _encode(table: dict[MessageQueue, int]) -> bytes:
    ordered = sorted(table.items())
    return dumps_fastjson(
        QueueOffsets(
            offset_table={
                QueueRef(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id): next_offset
                for queue, next_offset in ordered
            }
        )
    )


def _decode(content: bytes) -> dict[MessageQueue, int]:
    try:
        table = decode_json(content, QueueOffsets).offset_table
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    return {MessageQueue(ref.topic, ref.broker_name, ref.queue_id): next_offset for ref, next_offset in table.items()}
