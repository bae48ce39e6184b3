"""The blocking classes offer what the asynchronous ones do."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import fusee.sync
from fusee.admin import Admin
from fusee.client.consumer.pull import PullConsumer
from fusee.client.consumer.push import Consumer
from fusee.client.producer import Producer
from fusee.client.transaction import Transaction, TransactionProducer
from fusee.connection import Connection
from fusee.in_process import EmbeddedServer

# What brokers and other parts of the client call, and what only makes sense on the loop.
_INNER = {
    Connection: {"session", "start", "handlers", "config"},
    Consumer: {
        "consume_directly", "heartbeat", "is_ordered", "members_changed", "model", "options", "persist_offsets",
        "reset_offsets", "running_info", "status", "subscribed_topics",
    },
    PullConsumer: {
        "consume_directly", "heartbeat", "members_changed", "model", "persist_offsets", "reset_offsets",
        "running_info", "status", "subscribed_topics",
    },
    Producer: {"check_transaction", "published_topics", "hooks", "in_flight"},
    Transaction: set(),
    TransactionProducer: {"begin", "check_transaction", "end"},
    Admin: set(),
    EmbeddedServer: {"start", "broker", "clock"},
}  # fmt: skip


def offered(kind: type[Any]) -> set[str]:
    """Public methods and properties; not what dispatches inside, which takes the parts of a send."""
    return {
        name
        for name in dir(kind)
        if not name.startswith("_")
        and (callable(getattr(kind, name)) or isinstance(inspect.getattr_static(kind, name), property))
    }


@pytest.mark.parametrize("kind", list(_INNER), ids=lambda kind: kind.__name__)
def test_everything_offered_has_a_blocking_twin(kind: type[Any]) -> None:
    twin = getattr(fusee.sync, kind.__name__)
    assert offered(kind) - _INNER[kind] - offered(twin) == set()


@pytest.mark.parametrize("kind", list(_INNER), ids=lambda kind: kind.__name__)
def test_twins_take_the_same_arguments_and_say_what_they_do(kind: type[Any]) -> None:
    twin = getattr(fusee.sync, kind.__name__)
    for name in offered(kind) & offered(twin):
        method = getattr(twin, name)
        if not hasattr(method, "__wrapped__"):
            continue
        assert inspect.signature(method) == inspect.signature(getattr(kind, name))
        assert method.__doc__
        assert not inspect.iscoroutinefunction(method.__code__)
