"""How whole programs end: at their last line, by Ctrl-C, after a fork."""

from __future__ import annotations

import socket

import pytest

import fusee.sync
from fusee.clock import SystemClock
from tests.sync.programs import interrupt_program, run_program

_SECONDS_MAX = 15.0


@pytest.fixture
def address(server: fusee.sync.EmbeddedServer) -> str:
    return server.name_server


# The last line


def test_program_with_everything_open_ends_in_time_and_says_nothing(address: str, topic: str) -> None:
    now = SystemClock().monotonic
    began = now()
    ended = run_program(
        """
        import sys, threading
        import fusee

        address, topic = sys.argv[1:]
        mq = fusee.sync.connect(address)
        called, looped = threading.Event(), threading.Event()

        def listener(message):
            called.set()

        def loop():
            for message in messages:
                looped.set()

        mq.consumer(topic, group=topic + "-listener", listener=listener, consume_from="first").start()
        messages = mq.consumer(topic, group=topic + "-loop", consume_from="first")
        messages.start()
        threading.Thread(target=loop, daemon=True).start()
        polled = mq.pull_consumer(topic, group=topic + "-poll", consume_from="first")
        polled.start()
        mq.producer("producer-of-" + topic).start()
        mq.send(topic, b"hello")
        called.wait()
        looped.wait()
        assert polled.poll()
        print("end")
        """,
        address,
        topic,
    )
    assert ended == (0, ["end"], "")
    assert now() - began < _SECONDS_MAX


def test_what_was_done_is_committed_when_the_program_just_ends(
    address: str, topic: str, mq: fusee.sync.Connection
) -> None:
    mq.send(topic, b"done")
    ended = run_program(
        """
        import sys
        import fusee

        address, topic = sys.argv[1:]
        messages = fusee.sync.connect(address).consumer(topic, group=topic, consume_from="first")
        messages.start()
        for batch in messages.batches():
            print(batch[0].body)
            messages.close()
        """,
        address,
        topic,
    )
    assert ended.errors == ""
    assert ended.out == ["b'done'"]


def test_program_with_a_send_that_nobody_answers_ends_in_time(topic: str) -> None:
    # A name server that takes connections and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ended = run_program(
            """
            import sys, threading
            import fusee

            with fusee.sync.embedded(topics=["orders"]) as server:
                mq = server.connect()
                mq.send("orders", b"hello")
                server.stop_broker()
                late = mq.send_soon("orders", b"never", timeout_ms=600_000)
                silent = threading.Thread(
                    target=fusee.sync.connect, args=(sys.argv[1],), kwargs={"mq_client_api_timeout_ms": 600_000},
                    daemon=True,
                )
                silent.start()
                print("end")
                import sys
                sys.exit(0)
            """,
            f"127.0.0.1:{silent.getsockname()[1]}",
        )
    assert ended == (0, ["end"], "")


def test_listener_that_never_returns_does_not_keep_the_program(address: str, topic: str) -> None:
    ended = run_program(
        """
        import sys, threading
        import fusee
        import fusee.sync.consuming as consuming

        consuming._LEAVE_PATIENCE = 0.1
        called = threading.Event()

        def listener(message):
            called.set()
            threading.Event().wait()

        mq = fusee.sync.connect(sys.argv[1])
        mq.consumer(sys.argv[2], group=sys.argv[2], listener=listener, consume_from="first").start()
        mq.send(sys.argv[2], b"hello")
        called.wait()
        print("end")
        """,
        address,
        topic,
    )
    assert ended.code == 0
    assert ended.out == ["end"]


def test_embedded_server_goes_with_its_program(topic: str) -> None:
    ended = run_program(
        """
        import fusee

        server = fusee.sync.embedded(topics=["orders"])
        mq = server.connect()
        mq.send("orders", b"hello")
        print(server.store_path)
        """
    )
    assert (ended.code, ended.errors) == (0, "")
    from pathlib import Path

    assert not Path(ended.out[0]).exists()


# Ctrl-C


def test_ctrl_c_ends_a_loop_that_waits_and_its_with(address: str, topic: str) -> None:
    ended = interrupt_program(
        """
        import sys
        import fusee

        with fusee.sync.connect(sys.argv[1]) as mq:
            try:
                with mq.consumer(sys.argv[2], group=sys.argv[2]) as messages:
                    print("waiting")
                    for message in messages:
                        pass
            except KeyboardInterrupt:
                print("interrupted", messages.state.value)
            print(mq.send(sys.argv[2], b"after").status.name)
        """,
        address,
        topic,
        when="waiting",
    )
    assert ended == (0, ["waiting", "interrupted closed", "SEND_OK"], "")


def test_ctrl_c_that_nobody_catches_ends_the_program_as_usual(address: str, topic: str) -> None:
    ended = interrupt_program(
        """
        import sys
        import fusee

        with fusee.sync.connect(sys.argv[1]) as mq, mq.pull_consumer(sys.argv[2], group=sys.argv[2]) as orders:
            print("waiting")
            orders.poll(600_000)
        """,
        address,
        topic,
        when="waiting",
    )
    assert ended.errors.rstrip().endswith("KeyboardInterrupt")
    assert ended.errors.count("Traceback") == 1
    assert ended.code != 0


def test_ctrl_c_stops_handlers_that_run(address: str, topic: str) -> None:
    ended = interrupt_program(
        """
        import sys
        import fusee

        with fusee.sync.connect(sys.argv[1]) as mq:

            @mq.handler(sys.argv[2], group=sys.argv[2], consume_from="first")
            def handle(text: str):
                print(text)

            mq.send(sys.argv[2], "handled")
            try:
                mq.run()
            except KeyboardInterrupt:
                print("stopped")
        """,
        address,
        topic,
        when="handled",
    )
    assert ended == (0, ["handled", "stopped"], "")


# Forks


def test_after_a_fork_old_objects_refuse_new_ones_work_and_the_parent_goes_on(address: str, topic: str) -> None:
    ended = run_program(
        """
        import os, sys
        import fusee
        from fusee.errors import ClientStateError

        address, topic = sys.argv[1:]
        mq = fusee.sync.connect(address)
        messages = mq.consumer(topic, group=topic, consume_from="first")
        messages.start()
        loop = iter(messages)
        mq.send(topic, b"before")
        print(next(loop).body, flush=True)
        child = os.fork()
        if child == 0:
            for call in (lambda: mq.send(topic, b"x"), lambda: next(loop), messages.close, mq.close, lambda: mq.admin):
                try:
                    call()
                except ClientStateError as error:
                    assert "fork" in str(error)
                else:
                    print("not refused")
            with fusee.sync.connect(address) as own:
                own.send(topic, b"from the child")
        else:
            _, status = os.waitpid(child, 0)
            print(status, next(loop).body)
            mq.send(topic, b"after")
            print(next(loop).body)
            mq.close()
        """,
        address,
        topic,
    )
    assert ended == (0, ["b'before'", "0 b'from the child'", "b'after'"], "")


def test_workers_of_a_pool_that_forked_send_for_themselves(address: str, topic: str) -> None:
    ended = run_program(
        """
        import multiprocessing, os, sys
        import fusee

        address, topic = sys.argv[1:]
        mq = fusee.sync.connect(address)
        mq.send(topic, b"parent")
        own = None

        def work(number):
            global own
            if own is None:
                own = fusee.sync.connect(address)
            return own.send(topic, b"%d" % number).status.name, own.client_id != mq_id

        mq_id = mq.client_id
        with multiprocessing.get_context("fork").Pool(3) as pool:
            print(set(pool.map(work, range(30))))
        print(mq.send(topic, b"parent").status.name)
        """,
        address,
        topic,
    )
    assert ended == (0, ["{('SEND_OK', True)}", "SEND_OK"], "")
