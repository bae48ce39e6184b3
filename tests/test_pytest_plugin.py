from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests use the plugin alone, named as one that is not installed must be."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini(
        """
        [pytest]
        addopts = -p fusee.pytest_plugin --strict-markers -p no:cacheprovider
        filterwarnings = error
        """
    )
    return pytester


def outcomes(project: pytest.Pytester, source: str, **expected: int) -> pytest.RunResult:
    project.makepyfile(source)
    result = project.runpytest_subprocess()
    result.assert_outcomes(**expected)
    return result


def test_server_of_a_test_is_its_own(run: pytest.Pytester) -> None:
    outcomes(
        run,
        """
        import pytest
        from fusee.errors import TopicNotFoundError

        seen = set()

        @pytest.mark.parametrize("number", range(2))
        def test_own_server(fusee_server, number):
            assert fusee_server.name_server not in seen
            seen.add(fusee_server.name_server)
            with fusee_server.connect() as mq:
                with pytest.raises(TopicNotFoundError):
                    mq.admin.topic_route("orders")
                mq.send("orders", b"hello")
                with mq.pull_consumer("orders", group="g", consume_from="first") as orders:
                    assert [message.body for message in orders.poll()] == [b"hello"]
        """,
        passed=2,
    )


def test_clocked_server_lets_time_pass_when_told(run: pytest.Pytester) -> None:
    outcomes(
        run,
        """
        import time
        from datetime import timedelta

        def test_delay(fusee_clocked):
            began = time.monotonic()
            fusee_clocked.create_topics(["orders"])
            with fusee_clocked.connect() as mq, mq.pull_consumer("orders", group="g", consume_from="first") as orders:
                start = fusee_clocked.now
                mq.send("orders", b"late", delay_level=16)
                fusee_clocked.advance(1799)
                assert orders.poll(0) == []
                fusee_clocked.advance(timedelta(seconds=2))
                assert [message.body for message in orders.poll()] == [b"late"]
                assert fusee_clocked.now - start == timedelta(seconds=1801)
            assert time.monotonic() - began < 60
        """,
        passed=1,
    )


def test_name_server_is_shared_by_all_tests_and_usable_by_coroutines(run: pytest.Pytester) -> None:
    outcomes(
        run,
        """
        import asyncio
        import fusee

        seen = set()

        def test_one(fusee_name_server):
            seen.add(fusee_name_server)

            async def main():
                async with fusee.connect(fusee_name_server) as mq:
                    await mq.send("orders", b"hello")

            asyncio.run(main())

        def test_two(fusee_name_server):
            seen.add(fusee_name_server)
            assert len(seen) == 1
            with fusee.sync.connect(fusee_name_server) as mq:
                assert mq.admin.topic_route("orders")
        """,
        passed=2,
    )


def test_marker_gives_settings_and_the_closest_goes_first(run: pytest.Pytester) -> None:
    outcomes(
        run,
        """
        import pytest

        @pytest.mark.fusee(topics=["orders"], broker_name="outer")
        class TestSettings:
            def test_outer(self, fusee_server):
                assert self.broker(fusee_server) == "outer"

            @pytest.mark.fusee(broker_name="inner")
            def test_inner(self, fusee_clocked):
                assert self.broker(fusee_clocked) == "inner"

            @staticmethod
            def broker(server):
                with server.connect() as mq:
                    return mq.send("orders", b"hello").queue.broker_name
        """,
        passed=2,
    )


def test_marker_with_positional_arguments_is_an_error_that_says_how(run: pytest.Pytester) -> None:
    result = outcomes(
        run,
        """
        import pytest

        @pytest.mark.fusee("orders")
        def test_wrong(fusee_server):
            pass
        """,
        errors=1,
    )
    result.stdout.fnmatch_lines(["*takes keyword arguments*"])


def test_fixtures_are_listed_with_their_meaning(run: pytest.Pytester) -> None:
    run.makepyfile("")
    result = run.runpytest_subprocess("--fixtures", "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.fusee(topics=...*"])
    result = run.runpytest_subprocess("--fixtures")
    result.stdout.fnmatch_lines_random(
        ["fusee_server*", "fusee_clocked*", "fusee_name_server*", "*a broker with an empty store*"]
    )


def test_plugin_costs_nothing_where_it_is_not_used() -> None:
    program = "import sys, fusee.pytest_plugin; print(sorted(m for m in sys.modules if m.startswith('fusee')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['fusee', 'fusee.compiled', 'fusee.pytest_plugin']"
