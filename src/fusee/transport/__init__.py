"""Bytes in motion: connections, servers, clients."""

from fusee.transport.client import Client, ClientSettings
from fusee.transport.link import Link, LinkLimits
from fusee.transport.router import Lane, Reply, Router
from fusee.transport.server import Server, ServerSettings
from fusee.transport.tcp import TcpNetwork

__all__ = [
    "Client",
    "ClientSettings",
    "Lane",
    "Link",
    "LinkLimits",
    "Reply",
    "Router",
    "Server",
    "ServerSettings",
    "TcpNetwork",
]
