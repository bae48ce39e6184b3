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

from fusee import compiled as _compiled

__version__ = "0.1.0"

_compiled.install()  # before the first import of a module that may have a compiled form

if TYPE_CHECKING:
    from fusee import sync as sync
    from fusee.admin import Admin as Admin
    from fusee.admin import AdminError as AdminError
    from fusee.client.broker_calls import PullStatus as PullStatus
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
    from fusee.client.hooks import EndTransactionContext as EndTransactionContext
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
    from fusee.client.transaction import TransactionResult as TransactionResult
    from fusee.client.transaction import TransactionState as TransactionState
    from fusee.connection import Connection as Connection
    from fusee.connection import connect as connect
    from fusee.errors import ClientStateError as ClientStateError
    from fusee.errors import ConfigError as ConfigError
    from fusee.errors import ConnectError as ConnectError
    from fusee.errors import ConnectionLostError as ConnectionLostError
    from fusee.errors import ConsumerOfflineError as ConsumerOfflineError
    from fusee.errors import DataLossError as DataLossError
    from fusee.errors import FilterError as FilterError
    from fusee.errors import FuseeError as FuseeError
    from fusee.errors import GroupNotFoundError as GroupNotFoundError
    from fusee.errors import InvalidRequestError as InvalidRequestError
    from fusee.errors import MessageError as MessageError
    from fusee.errors import NoPermissionError as NoPermissionError
    from fusee.errors import NotFoundError as NotFoundError
    from fusee.errors import NotSupportedError as NotSupportedError
    from fusee.errors import PayloadError as PayloadError
    from fusee.errors import ProtocolError as ProtocolError
    from fusee.errors import RecordError as RecordError
    from fusee.errors import RemoteError as RemoteError
    from fusee.errors import RemoteFailureError as RemoteFailureError
    from fusee.errors import RequestTimeoutError as RequestTimeoutError
    from fusee.errors import SendFailedError as SendFailedError
    from fusee.errors import StoreError as StoreError
    from fusee.errors import SubscriptionError as SubscriptionError
    from fusee.errors import SystemBusyError as SystemBusyError
    from fusee.errors import TooManyRequestsError as TooManyRequestsError
    from fusee.errors import TopicNotFoundError as TopicNotFoundError
    from fusee.errors import TransportError as TransportError
    from fusee.errors import UnavailableError as UnavailableError
    from fusee.errors import WrongNodeError as WrongNodeError
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
    "ConnectionLostError": "fusee.errors",
    "ConsumeContext": "fusee.client.hooks",
    "ConsumeHook": "fusee.client.hooks",
    "ConsumeResult": "fusee.client.consumer.options",
    "Consumer": "fusee.client.consumer.push",
    "ConsumerOfflineError": "fusee.errors",
    "DataLossError": "fusee.errors",
    "Durability": "fusee.client.results",
    "EmbeddedServer": "fusee.in_process",
    "EndTransactionContext": "fusee.client.hooks",
    "EndTransactionHook": "fusee.client.hooks",
    "FilterError": "fusee.errors",
    "FuseeError": "fusee.errors",
    "GroupNotFoundError": "fusee.errors",
    "HandlerTable": "fusee.client.handlers",
    "InvalidRequestError": "fusee.errors",
    "Message": "fusee.message.model",
    "MessageError": "fusee.errors",
    "MessageModel": "fusee.client.config",
    "MessageQueue": "fusee.message.model",
    "NoPermissionError": "fusee.errors",
    "NotFoundError": "fusee.errors",
    "NotSupportedError": "fusee.errors",
    "PayloadError": "fusee.errors",
    "Producer": "fusee.client.producer",
    "ProtocolError": "fusee.errors",
    "PullConsumer": "fusee.client.consumer.pull",
    "PullResult": "fusee.client.consumer.pull",
    "PullStatus": "fusee.client.broker_calls",
    "ReceivedMessage": "fusee.client.received",
    "RecordError": "fusee.errors",
    "RemoteError": "fusee.errors",
    "RemoteFailureError": "fusee.errors",
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
    "StoreError": "fusee.errors",
    "SubscriptionError": "fusee.errors",
    "SystemBusyError": "fusee.errors",
    "TooManyRequestsError": "fusee.errors",
    "TopicNotFoundError": "fusee.errors",
    "Transaction": "fusee.client.transaction",
    "TransactionProducer": "fusee.client.transaction",
    "TransactionResult": "fusee.client.transaction",
    "TransactionState": "fusee.client.transaction",
    "TransportError": "fusee.errors",
    "UnavailableError": "fusee.errors",
    "WrongNodeError": "fusee.errors",
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
    "ConnectionLostError",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumeResult",
    "Consumer",
    "ConsumerOfflineError",
    "DataLossError",
    "Durability",
    "EmbeddedServer",
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterError",
    "FuseeError",
    "GroupNotFoundError",
    "HandlerTable",
    "InvalidRequestError",
    "Message",
    "MessageError",
    "MessageModel",
    "MessageQueue",
    "NoPermissionError",
    "NotFoundError",
    "NotSupportedError",
    "PayloadError",
    "Producer",
    "ProtocolError",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "RecordError",
    "RemoteError",
    "RemoteFailureError",
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
    "StoreError",
    "SubscriptionError",
    "SystemBusyError",
    "TooManyRequestsError",
    "TopicNotFoundError",
    "Transaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "TransportError",
    "UnavailableError",
    "WrongNodeError",
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
