"""A distributed message queue, compatible with Apache RocketMQ on the wire and on disk.

    async with fusee.connect("127.0.0.1:9876") as mq:
        await mq.send("orders", b"...", tag="paid", key="42")
        async with mq.consumer("orders", group="billing") as messages:
            async for message in messages:
                print(message.body)

The names below are the public ones; they are loaded when first used, so that `import fusee.store` alone stays light.
`fusee.sync` has the same calls, blocking; `fusee.embedded()` is a whole server inside this process, for tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fusee import sync as sync
    from fusee.admin import Admin as Admin
    from fusee.admin import AdminError as AdminError
    from fusee.client.config import MessageModel as MessageModel
    from fusee.client.config import ServiceState as ServiceState
    from fusee.client.consumer.options import ConsumeResult as ConsumeResult
    from fusee.client.consumer.options import RetryLater as RetryLater
    from fusee.client.consumer.pull import PullConsumer as PullConsumer
    from fusee.client.consumer.pull import PullResult as PullResult
    from fusee.client.consumer.push import Consumer as Consumer
    from fusee.client.handlers import HandlerTable as HandlerTable
    from fusee.client.handlers import RetryPolicy as RetryPolicy
    from fusee.client.hooks import ConsumeContext as ConsumeContext
    from fusee.client.hooks import ConsumeHook as ConsumeHook
    from fusee.client.hooks import EndTransactionHook as EndTransactionHook
    from fusee.client.hooks import SendContext as SendContext
    from fusee.client.hooks import SendHook as SendHook
    from fusee.client.producer import Producer as Producer
    from fusee.client.received import ReceivedMessage as ReceivedMessage
    from fusee.client.results import Durability as Durability
    from fusee.client.results import SendResult as SendResult
    from fusee.client.results import SendStatus as SendStatus
    from fusee.client.subscriptions import Sql as Sql
    from fusee.client.transaction import Transaction as Transaction
    from fusee.client.transaction import TransactionProducer as TransactionProducer
    from fusee.client.transaction import TransactionState as TransactionState
    from fusee.connection import Connection as Connection
    from fusee.connection import connect as connect
    from fusee.errors import ClientStateError as ClientStateError
    from fusee.errors import ConfigError as ConfigError
    from fusee.errors import ConnectError as ConnectError
    from fusee.errors import FuseeError as FuseeError
    from fusee.errors import MessageError as MessageError
    from fusee.errors import PayloadError as PayloadError
    from fusee.errors import RemoteError as RemoteError
    from fusee.errors import RequestTimeoutError as RequestTimeoutError
    from fusee.errors import SendFailedError as SendFailedError
    from fusee.errors import TopicNotFoundError as TopicNotFoundError
    from fusee.errors import TransportError as TransportError
    from fusee.in_process import EmbeddedServer as EmbeddedServer
    from fusee.in_process import embedded as embedded
    from fusee.message.model import Message as Message
    from fusee.message.model import MessageQueue as MessageQueue

_HOMES = {
    "Admin": "fusee.admin",
    "AdminError": "fusee.admin",
    "ClientStateError": "fusee.errors",
    "ConfigError": "fusee.errors",
    "ConnectError": "fusee.errors",
    "Connection": "fusee.connection",
    "ConsumeContext": "fusee.client.hooks",
    "ConsumeHook": "fusee.client.hooks",
    "ConsumeResult": "fusee.client.consumer.options",
    "Consumer": "fusee.client.consumer.push",
    "Durability": "fusee.client.results",
    "EmbeddedServer": "fusee.in_process",
    "EndTransactionHook": "fusee.client.hooks",
    "FuseeError": "fusee.errors",
    "HandlerTable": "fusee.client.handlers",
    "Message": "fusee.message.model",
    "MessageError": "fusee.errors",
    "MessageModel": "fusee.client.config",
    "MessageQueue": "fusee.message.model",
    "PayloadError": "fusee.errors",
    "Producer": "fusee.client.producer",
    "PullConsumer": "fusee.client.consumer.pull",
    "PullResult": "fusee.client.consumer.pull",
    "ReceivedMessage": "fusee.client.received",
    "RemoteError": "fusee.errors",
    "RequestTimeoutError": "fusee.errors",
    "RetryLater": "fusee.client.consumer.options",
    "RetryPolicy": "fusee.client.handlers",
    "SendContext": "fusee.client.hooks",
    "SendFailedError": "fusee.errors",
    "SendHook": "fusee.client.hooks",
    "SendResult": "fusee.client.results",
    "SendStatus": "fusee.client.results",
    "ServiceState": "fusee.client.config",
    "Sql": "fusee.client.subscriptions",
    "TopicNotFoundError": "fusee.errors",
    "Transaction": "fusee.client.transaction",
    "TransactionProducer": "fusee.client.transaction",
    "TransactionState": "fusee.client.transaction",
    "TransportError": "fusee.errors",
    "connect": "fusee.connection",
    "embedded": "fusee.in_process",
}

__all__ = [
    "Admin",
    "AdminError",
    "ClientStateError",
    "ConfigError",
    "ConnectError",
    "Connection",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumeResult",
    "Consumer",
    "Durability",
    "EmbeddedServer",
    "EndTransactionHook",
    "FuseeError",
    "HandlerTable",
    "Message",
    "MessageError",
    "MessageModel",
    "MessageQueue",
    "PayloadError",
    "Producer",
    "PullConsumer",
    "PullResult",
    "ReceivedMessage",
    "RemoteError",
    "RequestTimeoutError",
    "RetryLater",
    "RetryPolicy",
    "SendContext",
    "SendFailedError",
    "SendHook",
    "SendResult",
    "SendStatus",
    "ServiceState",
    "Sql",
    "TopicNotFoundError",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
    "TransportError",
    "__version__",
    "connect",
    "embedded",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name == "sync":
        return import_module("fusee.sync")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'fusee' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
