"""Bytes in motion: connections, servers, clients."""
