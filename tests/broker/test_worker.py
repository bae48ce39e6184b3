"""Jobs beside the loop: their order, their errors, and the end of the thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fusee.broker.worker import InlineWorker, SecondHand, ThreadWorker, Worker
from fusee.errors import StoreError


def unexpected(value: object) -> None:
    pytest.fail(f"told {value!r}")


def test_jobs_run_one_after_another_off_the_loop_and_are_told_on_it() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        worker: Worker = ThreadWorker(loop, "test")
        here = threading.get_ident()
        ran: list[tuple[int, bool]] = []
        told: list[tuple[int, bool]] = []
        all_told = asyncio.Event()

        def job(number: int) -> int:
            ran.append((number, threading.get_ident() != here))
            return number

        def done(number: int) -> None:
            told.append((number, threading.get_ident() == here))
            if number == 9:
                all_told.set()

        for number in range(10):
            worker.run(lambda number=number: job(number), done, unexpected)  # type: ignore[misc]
        await all_told.wait()
        worker.stop()
        assert ran == told == [(number, True) for number in range(10)]

    asyncio.run(scene())


def test_failure_goes_to_its_owner_and_the_next_job_runs() -> None:
    async def scene() -> None:
        worker = ThreadWorker(asyncio.get_running_loop(), "test")
        failures: list[Exception] = []
        finished = asyncio.Event()

        def fail() -> None:
            raise StoreError("no")

        worker.run(fail, unexpected, failures.append)
        worker.run(lambda: None, lambda _: finished.set(), unexpected)
        await finished.wait()
        worker.stop()
        assert [str(error) for error in failures] == ["no"]

    asyncio.run(scene())


def test_stop_finishes_what_was_given_and_the_loop_hears_of_it() -> None:
    async def scene() -> None:
        worker = ThreadWorker(asyncio.get_running_loop(), "test")
        ran: list[int] = []
        told: list[None] = []
        for number in range(20):
            worker.run(lambda number=number: ran.append(number), told.append, unexpected)  # type: ignore[misc]
        worker.stop()
        assert ran == list(range(20))
        await asyncio.sleep(0)
        assert len(told) == 20
        worker.stop()

    asyncio.run(scene())


def test_job_that_ends_after_its_loop_tells_nobody() -> None:
    loop = asyncio.new_event_loop()
    worker = ThreadWorker(loop, "test")
    told: list[None] = []
    may_end = threading.Event()

    def job() -> None:
        may_end.wait()

    worker.run(job, told.append, unexpected)
    loop.close()
    may_end.set()
    worker.stop()
    assert told == []


def test_inline_worker_runs_at_once() -> None:
    heard: list[object] = []
    worker: Worker = InlineWorker()
    worker.run(lambda: 1, heard.append, unexpected)

    def fail() -> None:
        raise StoreError("no")

    worker.run(fail, unexpected, lambda error: heard.append(str(error)))
    worker.stop()
    assert heard == [1, "no"]


def test_second_hand_works_beside_its_owner_and_both_are_done_at_the_end() -> None:
    hand = SecondHand("test")
    here = threading.get_ident()
    met = threading.Barrier(2, timeout=10)
    ran: list[bool] = []

    def job() -> None:
        met.wait()  # neither could go on alone
        ran.append(threading.get_ident() != here)

    def meanwhile() -> None:
        met.wait()
        ran.append(threading.get_ident() == here)

    hand.together(job, meanwhile)
    assert ran == [True, True]
    hand.stop()


def test_second_hand_raises_what_either_raised_when_both_are_done() -> None:
    hand = SecondHand("test")
    done: list[str] = []

    def fail() -> None:
        raise StoreError("no")

    with pytest.raises(StoreError, match="no"):
        hand.together(fail, lambda: done.append("meanwhile"))
    with pytest.raises(StoreError, match="no"):
        hand.together(lambda: done.append("job"), fail)
    assert done == ["meanwhile", "job"]
    hand.stop()
