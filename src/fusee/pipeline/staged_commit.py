"""The commit of a staged batch, over one broker or several: decided by one of them, once, and carried to the rest.

    ask       every master of the cluster for the last batch of the application. Where one has this batch, its decision
              counts, and what was staged since is void
    decide    else the first by name of the brokers that have parts commits its own, with those of the rest beside them:
              that one record is the decision
    carry on  the rest commit what the decision says; each time a failure is met it is asked and tried again

A writer that dies anywhere in this does the batch again, finds what was decided, and carries it on. Nothing depends on
the batch being divided among brokers the same way the second time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from fusee.errors import FuseeError, InvalidRequestError, RemoteError
from fusee.pipeline.blocking_link import Answer, BlockingLink
from fusee.pipeline.write_routes import WriteRoutes, WriteSettings, may_try_again
from fusee.wire.bodies.staged import StagedPart, StagedParts, StagedTransactions
from fusee.wire.codes import RequestCode, ResponseCode
from fusee.wire.command import Command
from fusee.wire.faults import error_for
from fusee.wire.headers.staged import (
    CommitStagedBatch,
    CommitStagedBatchResponse,
    DropStagedBatch,
    GetStagedBatch,
    GetStagedBatchResponse,
)
from fusee.wire.lenient_json import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)

T = TypeVar("T")

_COMMITTED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task has staged: the number of parts of its transaction at each broker."""

    transaction: str
    parts: Mapping[str, int]


class StagedCommit:
    """Commits batches of one application."""

    def __init__(self, settings: WriteSettings, application: str) -> None:
        self._settings = settings
        self._application = application
        self._tls = settings.tls_context()
        self._routes = WriteRoutes(settings, self._tls)

    def commit(self, batch_id: int, staged: Sequence[Staged], *, one_shot: bool = False) -> bool:
        """Publish a batch; whether it was not committed before.

        Raises RemoteError when a broker lacks what was staged, and what the last of many tries gave when a broker does
        not answer. A commit may be repeated then.
        """
        parts = _by_broker(staged)
        if not parts:
            return True
        decision = self._decision(batch_id, parts)
        if decision is not None:
            _log.info("batch %d of %s was committed before", batch_id, self._application)
            self._carry_on(batch_id, decision.others, one_shot)
            return False
        first = min(parts)
        others = {name: each for name, each in parts.items() if name != first}
        is_new = self._commit_at(first, batch_id, StagedParts(transactions=parts[first], others=others), one_shot)
        if not is_new and others:
            # Somebody else, or a try of ours whose answer was lost, has decided.
            decision = self._state(first, self._address(first))[1]
            others = decision.others
        self._carry_on(batch_id, others, one_shot)
        return is_new

    def drop(self, staged: Sequence[Staged]) -> None:
        """Forget what was staged, if that is at one broker. With several it may be decided, and is left to time."""
        parts = _by_broker(staged)
        if len(parts) != 1:
            return
        for name, each in parts.items():
            body = StagedTransactions(transactions=[part.transaction for part in each])
            command = Command.request(
                RequestCode.DROP_STAGED_BATCH,
                DropStagedBatch(application=self._application),
                body=msgspec.json.encode(body),
            )
            try:
                self._ask(self._address(name), command)
            except (FuseeError, OSError) as error:
                _log.warning("what was staged at %s stays there until stagedTimeOut: %s", name, error)

    def knows_staged_batches(self) -> bool:
        """Whether every broker of the cluster does, so that a write can be exactly once."""

        def look() -> bool:
            for name, address in self._routes.masters().items():
                try:
                    self._state(name, address)
                except InvalidRequestError:
                    return False
            return True

        return self._persist(look)

    def _decision(self, batch_id: int, parts: Mapping[str, list[StagedPart]]) -> StagedParts | None:
        """What was decided about this batch; None when nothing was."""
        masters = self._persist(self._routes.masters)
        if len({*masters, *parts}) == 1:
            return None
        decided: StagedParts | None = None
        for name in sorted({*masters, *parts}):
            try:
                last, found = self._persist(lambda name=name: self._state(name, self._address(name)))  # type: ignore[misc]
            except InvalidRequestError:
                if name in parts:
                    raise
                continue
            if last > batch_id:
                return StagedParts()
            if last == batch_id and (decided is None or found.others):
                decided = found
        return decided

    def _carry_on(self, batch_id: int, others: Mapping[str, list[StagedPart]], one_shot: bool) -> None:
        for name, each in sorted(others.items()):
            self._commit_at(name, batch_id, StagedParts(transactions=each), one_shot)

    def _commit_at(self, broker_name: str, batch_id: int, parts: StagedParts, one_shot: bool) -> bool:
        header = CommitStagedBatch(application=self._application, batch_id=batch_id, one_shot=one_shot)
        body = msgspec.json.encode(parts)

        def commit() -> bool:
            command = Command.request(RequestCode.COMMIT_STAGED_BATCH, header, body=body)
            answer = self._ask(self._address(broker_name), command, self._settings.commit_timeout_ms)
            return not answer.command.read(CommitStagedBatchResponse).already_committed

        return self._persist(commit)

    def _state(self, name: str, address: str) -> tuple[int, StagedParts]:
        command = Command.request(RequestCode.GET_STAGED_BATCH, GetStagedBatch(application=self._application))
        try:
            answer = self._ask(address, command)
        except RemoteError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise InvalidRequestError(
                    f"broker {name} at {address} has no staged batches, so it cannot write exactly once; write with "
                    ".option('delivery', 'at-least-once')",
                    code=error.code,
                    address=address,
                ) from error
            raise
        return answer.command.read(GetStagedBatchResponse).last_batch_id, decode_json(bytes(answer.body), StagedParts)

    def _address(self, broker_name: str) -> str:
        return self._routes.address(broker_name)

    def _ask(self, address: str, command: Command, timeout_ms: int | None = None) -> Answer:
        link = BlockingLink(address, timeout_ms=timeout_ms or self._settings.request_timeout_ms, tls=self._tls)
        try:
            answer = link.request(command)
        finally:
            link.close()
        if answer.command.code not in _COMMITTED:
            raise error_for(answer.command.code, answer.command.remark, address, command.code)
        return answer

    def _persist(self, call: Callable[[], T]) -> T:
        """Call until it succeeds, or has failed too often."""
        failures = 0
        while True:
            try:
                return call()
            except (FuseeError, OSError) as error:
                failures += 1
                if not may_try_again(error) or failures > self._settings.retries:
                    raise
                _log.info("the commit of %s goes on soon: %s", self._application, error)
                self._settings.pause(failures)
                self._routes.forget()


def _by_broker(staged: Sequence[Staged]) -> dict[str, list[StagedPart]]:
    parts: dict[str, list[StagedPart]] = {}
    for each in staged:
        for broker_name, count in each.parts.items():
            parts.setdefault(broker_name, []).append(StagedPart(transaction=each.transaction, parts=count))
    return parts
