"""A name server and a broker inside this process, for tests and small programs."""

from fusee.in_process.server import EmbeddedServer, embedded
from fusee.in_process.stillness import NotSettledError

__all__ = ["EmbeddedServer", "NotSettledError", "embedded"]
