from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fusee.wire.codes import ResponseCode
from fusee.wire.headers.staged import CommitStagedBatchResponse, StageMessagesResponse
from tests.broker.log_world import LogWorld
from tests.broker.staged_calls import commit, drop, make_topics, stage

APPLICATIONS = st.sampled_from(["one", "two"])
TRANSACTIONS = st.sampled_from(["s", "t", "u"])
BATCHES = st.integers(0, 6)


class StagedMachine(RuleBasedStateMachine):
    """A broker that is killed, stopped and short of disk, beside a model of what staged batches mean."""

    def __init__(self) -> None:
        super().__init__()
        self.world = self._started(LogWorld())
        self.fences: dict[str, int] = defaultdict(lambda: -1)
        self.staged: dict[tuple[str, str], tuple[int, list[bytes]]] = {}
        self.published: list[bytes] = []
        self.number = 0

    def _started(self, world: LogWorld) -> LogWorld:
        make_topics(world)
        world.staged.start()
        world.run()
        return world

    @rule(application=APPLICATIONS, transaction=TRANSACTIONS, batch_id=BATCHES)
    def stage(self, application: str, transaction: str, batch_id: int) -> None:
        key = (application, transaction)
        known_batch, parts = self.staged.get(key, (batch_id, []))
        if known_batch != batch_id:
            return
        self.number += 1
        body = b"%d" % self.number
        answer = stage(self.world, batch_id, transaction, body, sequence=len(parts), application=application)
        assert answer.code == ResponseCode.SUCCESS, answer
        late = answer.read(StageMessagesResponse).already_committed
        assert late == (batch_id <= self.fences[application])
        if not late:
            self.staged[key] = (batch_id, [*parts, body])

    @rule(application=APPLICATIONS, transaction=TRANSACTIONS)
    def stage_the_last_part_again(self, application: str, transaction: str) -> None:
        known = self.staged.get((application, transaction))
        if known is not None:
            batch_id, parts = known
            answer = stage(self.world, batch_id, transaction, b"?", sequence=len(parts) - 1, application=application)
            assert answer.code == ResponseCode.SUCCESS

    @rule(application=APPLICATIONS, batch_id=BATCHES, chosen=st.sets(TRANSACTIONS))
    def commit(self, application: str, batch_id: int, chosen: set[str]) -> None:
        wanted = {
            name: known
            for name in sorted(chosen)
            if (known := self.staged.get((application, name))) is not None and known[0] == batch_id
        }
        answer = commit(
            self.world, batch_id, {name: len(parts) for name, (_, parts) in wanted.items()}, application=application
        )
        assert answer.code == ResponseCode.SUCCESS, answer
        again = answer.read(CommitStagedBatchResponse).already_committed
        assert again == (batch_id <= self.fences[application])
        if not again:
            self.fences[application] = batch_id
            self.published += [body for _, parts in wanted.values() for body in parts]
            self.staged = {
                key: known for key, known in self.staged.items() if key[0] != application or known[0] > batch_id
            }

    @rule(application=APPLICATIONS, transaction=TRANSACTIONS)
    def commit_of_too_much_is_refused(self, application: str, transaction: str) -> None:
        known = self.staged.get((application, transaction))
        if known is not None:
            answer = commit(self.world, known[0], {transaction: len(known[1]) + 1}, application=application)
            assert answer.code == ResponseCode.ILLEGAL_OPERATION

    @rule(application=APPLICATIONS, transaction=TRANSACTIONS)
    def drop(self, application: str, transaction: str) -> None:
        assert drop(self.world, transaction, application=application).code == ResponseCode.SUCCESS
        self.staged.pop((application, transaction), None)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def wait(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule()
    def kill(self) -> None:
        self.world = self._started(self.world.killed())

    @rule()
    def stop(self) -> None:
        self.world = self._started(self.world.stopped())

    @precondition(lambda self: self.number % 3 == 0)
    @rule(application=APPLICATIONS, batch_id=BATCHES)
    def write_that_fails_changes_nothing(self, application: str, batch_id: int) -> None:
        if batch_id <= self.fences[application]:
            return
        self.world.disk.fail_write(1)
        answer = commit(self.world, batch_id, {}, application=application)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, answer

    @invariant()
    def what_is_published_is_what_was_committed(self) -> None:
        assert self.world.bodies("orders") == self.published
        state = self.world.staged.state
        assert {fence.application: fence.batch_id for fence in state.fences()} == {
            name: batch_id for name, batch_id in self.fences.items() if batch_id >= 0
        }
        assert sum(len(each.parts) for each in state.transactions()) == sum(
            len(parts) for _, parts in self.staged.values()
        )
        assert state.staged_bytes == sum(part.size for each in state.transactions() for part in each.parts)


TestStagedMachine = StagedMachine.TestCase
TestStagedMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
