from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from fusee.errors import ClientStateError
from fusee.sync.portal import Call, Portal, portal
from tests.sync.programs import interrupt_program, run_program


@pytest.fixture
def gate() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.close()
    assert not made._thread.is_alive()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


# Calls


def test_call_gives_the_result(gate: Portal) -> None:
    assert gate.call(double, 21) == 42


def test_call_raises_what_the_coroutine_raises(gate: Portal) -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        gate.call(fail)


def test_call_of_a_function_that_raises_at_once_raises_that(gate: Portal) -> None:
    def refuse() -> asyncio.Future[None]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        gate.call(refuse)


def test_run_happens_in_the_thread_of_the_loop(gate: Portal) -> None:
    assert gate.run(threading.current_thread).name == "fusee-sync"


def test_call_brings_the_context_of_its_caller(gate: Portal) -> None:
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("caller's")

    async def read() -> str:
        return variable.get()

    assert gate.call(read) == "caller's"


def test_many_threads_call_at_once(gate: Portal) -> None:
    with ThreadPoolExecutor(32) as threads:
        assert list(threads.map(lambda number: gate.call(double, number), range(2000))) == list(range(0, 4000, 2))
    assert gate.run(lambda: len(asyncio.all_tasks())) == 1


def test_call_on_the_loop_itself_is_refused(gate: Portal) -> None:
    async def call_back() -> None:
        gate.call(double, 1)

    with pytest.raises(ClientStateError, match="wait for itself"):
        gate.call(call_back)


def test_call_after_close_is_refused(gate: Portal) -> None:
    gate.close()
    with pytest.raises(ClientStateError, match="ending"):
        gate.call(double, 1)


def test_close_ends_calls_that_wait(gate: Portal) -> None:
    waiting = threading.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(gate.call, wait)
        waiting.wait()
        gate.close()
        with pytest.raises(ClientStateError, match="closes"):
            call.result()


def test_close_closes_what_is_open_newest_first(gate: Portal) -> None:
    closed: list[str] = []

    async def close(name: str) -> None:
        closed.append(name)
        if name == "second":
            raise ValueError("does not stop the others")

    names = ["first", "second", "third", "released"]
    for name in names:
        gate.keep(name, lambda name=name: close(name))  # type: ignore[misc]
    gate.release("released")
    gate.close()
    assert closed == ["third", "second", "first"]


def test_portal_is_one_for_all_threads() -> None:
    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(lambda _: portal(), range(200)))) == 1


def test_call_that_is_cancelled_ends_its_task(gate: Portal) -> None:
    started, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    call = gate.begin(wait)
    started.wait()
    assert call.cancel()
    assert ended.wait(10)
    with pytest.raises(CancelledError):
        call.result()
    assert not call.cancel() or call.cancelled()


def test_call_that_is_cancelled_at_once_is_not_made(gate: Portal) -> None:
    made: list[int] = []

    async def note() -> None:
        made.append(1)

    async def cancel_first() -> None:
        call = Call[None](asyncio.get_running_loop())
        call.give_up()
        call.begin(note, contextvars.copy_context())
        assert isinstance(call.exception(), ClientStateError)
        early = Call[None](asyncio.get_running_loop())
        early.begin(note, contextvars.copy_context())
        early.give_up()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert isinstance(early.exception(0), ClientStateError)

    gate.call(cancel_first)
    assert made == []


# Ctrl-C


def test_ctrl_c_cancels_the_call_and_raises_where_it_waits() -> None:
    ended = interrupt_program(
        """
        import asyncio
        from fusee.sync.portal import portal

        async def wait():
            print("waiting")
            try:
                await asyncio.Event().wait()
            finally:
                print("cancelled")

        try:
            portal().call(wait)
        except KeyboardInterrupt:
            print("interrupted")

        async def greet():
            return "still works"

        print(portal().call(greet))
        """,
        when="waiting",
    )
    assert ended == (0, ["waiting", "cancelled", "interrupted", "still works"], "")


def test_signal_that_wakes_nobody_is_seen_all_the_same() -> None:
    ended = run_program(
        """
        import asyncio
        import _thread
        import sys
        import threading
        from fusee.sync.portal import portal

        async def wait():
            looks = 0
            while looks < 1000:  # so often that the main thread is asleep
                await asyncio.sleep(0)
                frame = sys._current_frames()[threading.main_thread().ident]
                looks = looks + 1 if frame.f_code.co_name == "wait" else 0
            _thread.interrupt_main()  # sets the mark of a signal, and wakes nobody
            await asyncio.Event().wait()

        try:
            portal().call(wait)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert ended == (0, ["interrupted"], "")


# The end of the interpreter


def test_program_that_ends_closes_what_is_open_without_a_word() -> None:
    ended = run_program(
        """
        import asyncio, threading
        from fusee.sync.portal import portal

        async def close():
            await asyncio.sleep(0.01)
            print("closed")

        async def wait():
            started.release()
            await asyncio.Event().wait()

        async def greet():
            started.release()

        def go_on():
            while True:
                portal().call(greet)

        started = threading.Semaphore(0)
        portal().keep(close, close)
        threading.Thread(target=portal().call, args=(wait,), daemon=True).start()
        threading.Thread(target=go_on, daemon=True).start()
        for _ in range(100):
            started.acquire()
        print("end")
        """
    )
    assert ended == (0, ["end", "closed"], "")


def test_program_that_ends_by_an_error_shows_that_error_alone() -> None:
    ended = run_program(
        """
        from fusee.sync.portal import portal

        async def fail():
            raise ValueError("the program's own")

        portal().call(fail)
        """
    )
    assert ended.code == 1
    assert ended.errors.rstrip().endswith("ValueError: the program's own")
    assert ended.errors.count("Traceback") == 1


def test_program_ends_in_time_when_closing_does_not_end() -> None:
    ended = run_program(
        """
        import asyncio
        import fusee.sync.portal as module

        module._CLOSE_PATIENCE = module._CANCEL_PATIENCE = 0.1

        async def close():
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    print("not now")

        module.portal().keep(close, close)
        """
    )
    assert ended.code == 0
    assert ended.errors == ""


def test_threads_of_the_program_can_call_until_they_end() -> None:
    ended = run_program(
        """
        import asyncio, threading
        from fusee.sync.portal import portal

        async def pause():
            await asyncio.sleep(0.02)

        def work():
            for _ in range(5):
                portal().call(pause)
            print("done")

        portal()
        threading.Thread(target=work).start()
        """
    )
    assert ended == (0, ["done"], "")


# Forks


def test_fork_leaves_old_objects_useless_and_new_ones_work() -> None:
    ended = run_program(
        """
        import os
        from fusee.errors import ClientStateError
        from fusee.sync.portal import portal

        async def greet():
            return "hello"

        old = portal()
        print(old.call(greet), flush=True)
        child = os.fork()
        if child == 0:
            try:
                old.call(greet)
            except ClientStateError as error:
                print("process" in str(error) and "connect again" in str(error))
            print(portal() is not old, portal().call(greet))
        else:
            _, status = os.waitpid(child, 0)
            print(status, old.call(greet))
        """
    )
    assert ended == (0, ["hello", "True", "True hello", "0 hello"], "")


def test_fork_while_another_thread_makes_the_portal_does_not_lock_up() -> None:
    ended = run_program(
        """
        import os
        import fusee.sync.portal as module

        async def greet():
            return "hello"

        module._lock.acquire()
        child = os.fork()
        if child == 0:
            print(module.portal().call(greet))
        else:
            _, status = os.waitpid(child, 0)
            print(status)
            module._lock.release()
        """
    )
    assert ended == (0, ["hello", "0"], "")


def test_processes_of_a_pool_call_for_themselves() -> None:
    ended = run_program(
        """
        import multiprocessing
        from fusee.sync.portal import portal

        async def double(number):
            return 2 * number

        def work(number):
            return portal().call(double, number)

        if __name__ == "__main__":
            print(work(1))
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(work, range(5)))
        """
    )
    assert ended == (0, ["2", "[0, 2, 4, 6, 8]"], "")
