"""What is staged and what is committed, by application: state without a store, which every event changes alike.

An application commits its batches in rising order of their ids. Its *fence* is the last committed one: what comes for
this batch or an earlier one is late. A transaction is the work of one attempt at a part of one batch, staged in parts
that count from 0.

    staged(part)           the transaction grows by its next part
    committed(batch)       the fence moves, and every transaction of this batch or before is gone
    dropped(transactions)  they are gone
    expired(now)           so are those that nobody has added to for a time, and fences that are old

The same events in the order of the log give the same state: on a broker that starts again, and on a slave that does so
as a master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fusee.broker.staged_records import FENCE_SIZE, Fence, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class StagedTransaction(msgspec.Struct):
    """What one attempt has staged. `op_offset`: events that concern it have this queue offset or a greater one."""

    name: str
    batch_id: int
    op_offset: int
    touched_ms: int
    parts: list[Part] = []
    size: int = 0


class Application(msgspec.Struct):
    """One application."""

    name: str
    fence: Fence | None = None
    transactions: dict[str, StagedTransaction] = {}
    parts: int = 0

    @property
    def last_batch_id(self) -> int:
        """-1 before the first commit."""
        return -1 if self.fence is None else self.fence.batch_id


class StagedState:
    """All applications of a broker."""

    def __init__(self) -> None:
        self._applications: dict[str, Application] = {}
        self.staged_bytes = 0
        """Bytes in the log of everything that is staged."""
        self.names_size = 0
        """Bytes of the names of all applications."""

    def __len__(self) -> int:
        return len(self._applications)

    @property
    def checkpoint_size(self) -> int:
        """Bytes that the fences of all applications may take."""
        return self.names_size + FENCE_SIZE * len(self._applications)

    def get(self, application: str) -> Application | None:
        """The application, if anything of it is known."""
        return self._applications.get(application)

    def last_batch_id(self, application: str) -> int:
        """The last committed batch; -1 for none."""
        found = self._applications.get(application)
        return -1 if found is None else found.last_batch_id

    def transactions(self) -> Iterator[StagedTransaction]:
        """Everything that is staged."""
        for application in self._applications.values():
            yield from application.transactions.values()

    def fences(self) -> list[Fence]:
        """The last committed batch of every application that has one."""
        return [found.fence for found in self._applications.values() if found.fence is not None]

    # Events

    def staged(self, part: Part, op_offset: int) -> None:
        """A part is in the log. One that does not follow the last part of its transaction begins it anew.

        One of a batch that is committed is late, and not taken.
        """
        if part.batch_id <= self.last_batch_id(part.application):
            return
        application = self._make(part.application)
        transaction = application.transactions.get(part.transaction)
        if transaction is None or part.sequence != len(transaction.parts) or part.batch_id != transaction.batch_id:
            self._remove(application, part.transaction)
            if part.sequence != 0:
                self._forget_empty(application)
                return
            transaction = StagedTransaction(part.transaction, part.batch_id, op_offset, part.time_ms)
            application.transactions[part.transaction] = transaction
        transaction.parts.append(part)
        transaction.size += part.size
        transaction.touched_ms = part.time_ms
        application.parts += 1
        self.staged_bytes += part.size

    def unstaged(self, part: Part) -> None:
        """A part, and everything of its transaction behind it, did not come to be in the log."""
        application = self._applications.get(part.application)
        transaction = None if application is None else application.transactions.get(part.transaction)
        if application is None or transaction is None or part not in transaction.parts:
            return
        void = transaction.parts[transaction.parts.index(part) :]
        del transaction.parts[len(transaction.parts) - len(void) :]
        size = sum(each.size for each in void)
        transaction.size -= size
        application.parts -= len(void)
        self.staged_bytes -= size
        if not transaction.parts:
            del application.transactions[transaction.name]
            self._forget_empty(application)

    def committed(self, fence: Fence) -> None:
        """A batch is decided. An older one than the last changes nothing."""
        application = self._make(fence.application)
        if fence.batch_id > application.last_batch_id:
            application.fence = fence
        for name in [each.name for each in application.transactions.values() if each.batch_id <= fence.batch_id]:
            self._remove(application, name)

    def dropped(self, application: str, transactions: Iterable[str]) -> int:
        """These are forgotten; how many of them there were."""
        found = self._applications.get(application)
        if found is None:
            return 0
        count = sum(self._remove(found, name) for name in transactions)
        self._forget_empty(found)
        return count

    def expired(self, now_ms: int, *, timeout_ms: int, reserved_ms: int) -> list[tuple[str, str]]:
        """Forget what is old; (application, transaction) of what was staged."""
        gone: list[tuple[str, str]] = []
        for application in list(self._applications.values()):
            for transaction in list(application.transactions.values()):
                if now_ms - transaction.touched_ms > timeout_ms:
                    self._remove(application, transaction.name)
                    gone.append((application.name, transaction.name))
            fence = application.fence
            if fence is not None and now_ms - fence.time_ms > (timeout_ms if fence.one_shot else reserved_ms):
                application.fence = None
            self._forget_empty(application)
        return gone

    def _make(self, name: str) -> Application:
        application = self._applications.get(name)
        if application is None:
            application = self._applications[name] = Application(name)
            self.names_size += len(name.encode())
        return application

    def _remove(self, application: Application, transaction: str) -> bool:
        found = application.transactions.pop(transaction, None)
        if found is None:
            return False
        self.staged_bytes -= found.size
        application.parts -= len(found.parts)
        return True

    def _forget_empty(self, application: Application) -> None:
        if not application.transactions and application.fence is None:
            del self._applications[application.name]
            self.names_size -= len(application.name.encode())
