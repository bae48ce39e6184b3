"""The name server: which broker holds which topic."""

from fusee.namesrv.config import NameServerConfig
from fusee.namesrv.server import NameServer

__all__ = ["NameServer", "NameServerConfig"]
