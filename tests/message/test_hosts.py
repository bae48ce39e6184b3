from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusee.errors import MessageError
from fusee.message.hosts import host_text, pack_host, pack_ip, unpack_host


@given(st.ip_addresses(v=4).map(str), st.integers(0, 65535))
def test_pack_host_when_ipv4_is_undone_by_unpack(ip: str, port: int) -> None:
    assert len(pack_host(ip, port)) == 8
    assert unpack_host(pack_host(ip, port)) == (ip, port)


@given(st.binary(min_size=20, max_size=20))
def test_host_text_when_ipv6_has_brackets(host: bytes) -> None:
    ip, port = unpack_host(host)
    assert host_text(host) == f"[{ip}]:{port}"


def test_pack_ip_when_ipv4_is_mapped_into_ipv6_becomes_ipv4() -> None:
    assert pack_ip("::ffff:10.1.2.3") == bytes([10, 1, 2, 3])


@pytest.mark.parametrize("ip", ["", "broker.example", "1.2.3", "1.2.3.4:5"])
def test_pack_ip_when_text_is_no_address_is_refused(ip: str) -> None:
    with pytest.raises(MessageError, match="is not an IP address"):
        pack_ip(ip)


@pytest.mark.parametrize("port", [-1, 65536])
def test_pack_host_when_port_is_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(MessageError, match="outside 0"):
        pack_host("10.0.0.1", port)


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_unpack_host_when_length_is_wrong_is_refused(size: int) -> None:
    with pytest.raises(MessageError, match=f"not {size}"):
        unpack_host(bytes(size))
