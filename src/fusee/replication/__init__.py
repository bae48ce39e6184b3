"""Replication: the bytes of a master's log on their way to its slaves."""

from fusee.replication.primary import Primary, PrimarySettings

__all__ = ["Primary", "PrimarySettings"]
