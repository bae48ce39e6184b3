"""The same calls, blocking: for programs without an event loop.

    with fusee.sync.connect("127.0.0.1:9876") as mq:
        mq.send("orders", b"...", tag="paid", key="42")
        with mq.consumer("orders", group="billing") as messages:
            for message in messages:
                print(message.body)

Everything runs on one event loop in a thread of its own, and any number of threads may call. Ctrl-C ends the call that
waits. After a fork, connect again in the child. What is open at the end of the program is closed.

The names below are loaded when first used: whoever only connects loads no server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusee.sync.admin import Admin
    from fusee.sync.connection import Connection, connect
    from fusee.sync.consuming import Consumer, PullConsumer
    from fusee.sync.sending import Producer, Transaction, TransactionProducer
    from fusee.sync.server import EmbeddedServer, embedded

_HOMES = {
    "Admin": "admin",
    "Connection": "connection",
    "Consumer": "consuming",
    "EmbeddedServer": "server",
    "Producer": "sending",
    "PullConsumer": "consuming",
    "Transaction": "sending",
    "TransactionProducer": "sending",
    "connect": "connection",
    "embedded": "server",
}

__all__ = [
    "Admin",
    "Connection",
    "Consumer",
    "EmbeddedServer",
    "Producer",
    "PullConsumer",
    "Transaction",
    "TransactionProducer",
    "connect",
    "embedded",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
