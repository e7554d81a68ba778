"""Which hosts a session may reach."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

# The hosts of public package registries.
PACKAGE_REGISTRIES = (
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "registry.yarnpkg.com"),
    *("crates.io", "index.crates.io", "static.crates.io", "rubygems.org", "index.rubygems.org"),
    *("proxy.golang.org", "sum.golang.org", "deb.debian.org", "security.debian.org"),
    *("archive.ubuntu.com", "security.ubuntu.com"),
)


class EgressRules(NamedTuple):
    """The hosts that a session may reach; None for all.

    Addresses of this machine and of private networks are closed unless `private` is set.
    """

    hosts: tuple[str, ...] | None = None
    private: bool = False
    allow_mcp_servers: bool = True  # whether servers of the agent may be at other hosts, too

    @property
    def limited(self) -> bool:
        """True if the session may reach some hosts only."""
        return self.hosts is not None

    def allows(self, host: str) -> bool:
        """Return whether the session may connect to a host. An entry `*.x` allows all below x."""
        if self.hosts is None:
            return True
        host = normalize_host(host)
        return any(
            host == entry or (entry.startswith("*.") and host.endswith(entry[1:]))
            for entry in map(normalize_host, self.hosts)
        )


def rules_of(networking: Mapping[str, Any] | None, *, private: bool) -> EgressRules:
    """Return the rules for the `networking` of an environment; None is unrestricted."""
    if networking is None or networking["type"] == "unrestricted":
        return EgressRules(private=private)
    hosts = tuple(networking.get("allowed_hosts") or ())
    if networking.get("allow_package_managers"):
        hosts += (*PACKAGE_REGISTRIES, *_own_registries())
    return EgressRules(hosts, private, bool(networking.get("allow_mcp_servers")))


def _own_registries() -> list[str]:
    """Return the hosts of the registries that the operator has set for pip and npm."""
    names = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "NPM_CONFIG_REGISTRY")
    urls = " ".join(os.environ.get(name, "") for name in names).split()
    return [host for url in urls if (host := urlsplit(url).hostname)]


def normalize_host(host: str) -> str:
    """Return a host name in the form in which hosts are compared."""
    return host.strip("[]").rstrip(".").lower()
