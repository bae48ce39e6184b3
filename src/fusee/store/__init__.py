"""The storage engine: bytes at rest, in the format of RocketMQ."""

from fusee.store.config import FlushDiskType, StoreConfig
from fusee.store.engine import MessageStore
from fusee.store.memory import MemoryStore
from fusee.store.new_record import NewRecord
from fusee.store.results import GetResult, GetStatus, PutResult

__all__ = [
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "MemoryStore",
    "MessageStore",
    "NewRecord",
    "PutResult",
    "StoreConfig",
]
