"""Tell public IP addresses from those of this machine and of private networks."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
# Some Python versions take these for public.
_NOT_PUBLIC_V4 = (ipaddress.ip_network("192.0.0.0/24"), ipaddress.ip_network("192.88.99.0/24"))
_NOT_PUBLIC_V6 = (ipaddress.ip_network("2001:db8::/32"), ipaddress.ip_network("3fff::/20"))


class PrivateAddress(OSError):
    """A host is not on the public internet."""


async def resolve(host: str, port: int, *, private: bool) -> list[str]:
    """Return the addresses of a host, to connect to one of them.

    Raises PrivateAddress if one of them is not public, unless `private` is set, and OSError if
    there are none. A caller that connects to a returned address is safe from a name that means
    another address a moment later.
    """
    loop = asyncio.get_running_loop()
    results = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(result[4][0]) for result in results))
    if not addresses:
        raise OSError("the host has no address")
    if not private and not all(map(is_public, addresses)):
        raise PrivateAddress(f"{host} is not on the public internet")
    return addresses


def is_public(address: str) -> bool:
    """Return True if an IP address, or the IPv4 address embedded in it, is a public one."""
    if "%" in address:  # an interface of this machine
        return False
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not ip.is_multicast and not _in_any(ip, _NOT_PUBLIC_V4)
    embedded = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
    if embedded is None and ip in _NAT64:
        embedded = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    if embedded:
        return is_public(str(embedded))
    # All other public IPv6 addresses are in one block: a list of private ones would have gaps.
    return ip in _GLOBAL_UNICAST and ip.is_global and not _in_any(ip, _NOT_PUBLIC_V6)


def _in_any(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
    networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> bool:
    return any(ip in network for network in networks)
