"""The storage engine: bytes at rest, in the format of RocketMQ.

The names below are loaded when first used, so that whoever decodes records, as Spark's workers do, loads no engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusee.store.config import FlushDiskType, StoreConfig
    from fusee.store.engine import MessageStore
    from fusee.store.memory import MemoryStore
    from fusee.store.new_record import NewRecord
    from fusee.store.results import GetResult, GetStatus, PutResult

_HOMES = {
    "FlushDiskType": "config",
    "GetResult": "results",
    "GetStatus": "results",
    "MemoryStore": "memory",
    "MessageStore": "engine",
    "NewRecord": "new_record",
    "PutResult": "results",
    "StoreConfig": "config",
}

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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
