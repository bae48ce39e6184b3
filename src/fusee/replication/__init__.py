"""Replication: the bytes of a master's log on their way to its slaves."""

from fusee.replication.primary import Primary, PrimarySettings
from fusee.replication.progress import ReplicaProgress, SlaveProgress
from fusee.replication.replica import Replica, ReplicaSettings, ReplicaState

__all__ = [
    "Primary",
    "PrimarySettings",
    "Replica",
    "ReplicaProgress",
    "ReplicaSettings",
    "ReplicaState",
    "SlaveProgress",
]
