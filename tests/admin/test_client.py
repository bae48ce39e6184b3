from __future__ import annotations

import inspect

import msgspec
import pytest

from fusee import admin as package
from fusee.admin import Admin, views
from fusee.errors import ConfigError
from tests.admin.scene import Scene, play, queue

OPERATIONS = sorted(name for name in dir(Admin) if not name.startswith("_"))
VIEWS = [getattr(views, name) for name in views.__all__ if inspect.isclass(getattr(views, name))]


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_a_documented_typed_coroutine(name: str) -> None:
    operation = getattr(Admin, name)
    assert inspect.iscoroutinefunction(operation) or inspect.isasyncgenfunction(operation)
    assert operation.__doc__
    assert "return" in operation.__annotations__


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_view_is_frozen_and_documented(view: type) -> None:
    assert view.__doc__
    assert not issubclass(view, msgspec.Struct) or view.__struct_config__.frozen


def test_views_can_be_written_as_json() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=1))
        await on.send("orders")
        await on.member("billing", {"orders": "*"}, [queue()])
        for work in (
            on.admin.lag("billing", "orders"),
            on.admin.consumers_at_work("billing"),
            on.admin.topic_stats("orders"),
            on.admin.topic_route("orders"),
            on.admin.clusters(),
            on.admin.reset_offsets("billing", "orders", "last", dry_run=True),
            on.admin.member_offsets("billing", "orders"),
            on.admin.group_summaries(),
        ):
            assert msgspec.json.encode(await on.do(work))

    play(scene)


def test_allocate_queues_shows_who_would_get_what() -> None:
    async def scene(on: Scene) -> None:
        await on.do(on.admin.create_topic("orders", queues=3))
        found = await on.do(on.admin.allocate_queues("orders", ["b", "a"]))
        assert found == {"a": (queue(queue_id=0), queue(queue_id=1)), "b": (queue(queue_id=2),)}
        circle = await on.do(on.admin.allocate_queues("orders", ["b", "a"], strategy="AVG_BY_CIRCLE"))
        assert circle["a"] == (queue(queue_id=0), queue(queue_id=2))
        with pytest.raises(ConfigError):
            await on.do(on.admin.allocate_queues("orders", ["a"], strategy="NONE"))

    play(scene)


def test_package_offers_the_client_and_its_error() -> None:
    assert package.__all__ == ["Admin", "AdminError"]
