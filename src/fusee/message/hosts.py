"""Host fields of records and ids: an IP address (4 or 16 bytes) followed by the port as int32, big-endian.

The packed form is what travels and what is kept; text is made on demand and remembered, because a log names
few hosts in many records.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from fusee.errors import MessageError

HOST_V4_SIZE: Final = 8
HOST_V6_SIZE: Final = 20


@lru_cache(maxsize=1024)
def pack_ip(ip: str) -> bytes:
    """The address as 4 or 16 bytes; an IPv4 address mapped into IPv6 becomes IPv4, as in Java.

    Raises MessageError when the text is not a numeric address.
    """
    try:
        address = ip_address(ip)
    except ValueError as error:
        raise MessageError(f"{ip!r} is not an IP address; records carry numbers, resolve the name first") from error
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed


def pack_host(ip: str, port: int) -> bytes:
    """The 8 or 20 bytes of a host field. Raises MessageError on a bad address or port."""
    if not 0 <= port <= 65535:
        raise MessageError(f"port {port} of {ip} is outside 0..65535")
    return pack_ip(ip) + port.to_bytes(4, "big")


@lru_cache(maxsize=4096)
def unpack_host(host: bytes) -> tuple[str, int]:
    """Address text and port of a host field. Raises MessageError unless it is 8 or 20 bytes long."""
    if len(host) == HOST_V4_SIZE:
        return str(IPv4Address(host[:4])), int.from_bytes(host[4:], "big")
    if len(host) == HOST_V6_SIZE:
        return str(IPv6Address(host[:16])), int.from_bytes(host[16:], "big")
    raise MessageError(f"a host field is {HOST_V4_SIZE} or {HOST_V6_SIZE} bytes long, not {len(host)}")


@lru_cache(maxsize=4096)
def host_text(host: bytes) -> str:
    """`ip:port`, with an IPv6 address in brackets."""
    ip, port = unpack_host(host)
    return f"{ip}:{port}" if len(host) == HOST_V4_SIZE else f"[{ip}]:{port}"
