"""Samples, trends, and when a lag will be gone."""

from __future__ import annotations

import fusee
from fusee.clock import ManualClock
from fusee.console.cluster_link import ClusterLink
from fusee.console.history import GroupFigures, History
from fusee.service import run


def figures(lag: int, *, is_whole: bool = True) -> dict[str, GroupFigures]:
    return {"billing": GroupFigures(group="billing", lag=lag, consume_tps=1.0, topics=("orders",), is_whole=is_whole)}


def history() -> History:
    return History(ClusterLink("127.0.0.1:1", clock=ManualClock()))


def test_a_lag_that_shrinks_is_gone_in_time_and_one_that_grows_is_not() -> None:
    past = history()
    assert past.trend("billing") is None
    for step in range(5):
        past._remember(step * 5_000, figures(1_000 - step * 100))
    trend = past.trend("billing")
    assert trend is not None
    assert trend.per_second == -20
    assert trend.drain_seconds == 600 / 20
    past._remember(25_000, figures(9_000))
    grown = past.trend("billing")
    assert grown is not None
    assert grown.drain_seconds is None


def test_a_part_of_a_lag_is_no_point_and_a_group_that_is_gone_is_forgotten() -> None:
    past = history()
    past._remember(0, figures(10))
    past._remember(5_000, figures(3, is_whole=False))
    assert [point.lag for point in past.points("billing")] == [10]
    past._remember(10_000, {})
    assert past.points("billing") == ()


def test_samples_of_a_cluster_and_gaps_while_it_is_away() -> None:
    async def story() -> None:
        async with fusee.embedded(topics=["orders"]) as server:
            link = ClusterLink(server.name_server)
            past = History(link)
            told: list[object] = []
            end = past.listen(told.append)
            first = await past.sample()
            assert first.put_tps is not None
            assert first.lag == 0
            await server.stop_broker()
            link.forget()
            second = await past.sample()
            assert (second.put_tps, second.lag) == (None, None)
            end()
            await link.close()
            assert told == [first, second]

    run(story())
