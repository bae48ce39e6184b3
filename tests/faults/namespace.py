"""A network of its own for a run: the kernel drops what goes to and from chosen ports, and all of it can be slow.

Wires (`wires`) need no privilege, but only part those that go through them. In a network namespace a node is parted
from everybody: packets of open connections vanish and are sent again when the link is back, and new connections find
no way. Its own connections to others go on, as behind a firewall that lost a rule: name servers hear of a broker that
nobody reaches.

The run is started again inside by `unshare`, which needs a kernel that lets this user make namespaces; nothing outside
of it is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

_INSIDE: Final = "FAULTS_NAMESPACE"
_UNSHARE: Final = ("unshare", "--map-root-user", "--net")
# Rules are looked at in this order; the kernel's own for local addresses is put behind ours.
_PARTED: Final = "10"
_LOCAL: Final = "100"
_OWN_LOCAL: Final = "0"
_TRIAL: Final = (
    "ip link set lo up && ip rule add pref 100 lookup local && ip rule del pref 0 && "
    "ip rule add pref 10 ipproto tcp dport 9 unreachable && "
    "tc qdisc add dev lo root tbf rate 1mbit burst 64kb latency 1s"
)


class Namespace:
    """The network that this process is in, if it is one of its own."""

    def __init__(self) -> None:
        self.is_there = os.environ.get(_INSIDE) == "1"

    def prepare(self) -> None:
        """Make the loopback work, with room for rules before its own. Once."""
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "rule", "add", "pref", _LOCAL, "lookup", "local")
        _run("ip", "rule", "del", "pref", _OWN_LOCAL)

    def part(self, ports: Iterable[int]) -> None:
        """Nothing arrives at these ports, and nothing from them."""
        for port in ports:
            for side in ("dport", "sport"):
                _run("ip", "rule", "add", "pref", _PARTED, "ipproto", "tcp", side, str(port), "unreachable")

    def mend(self) -> None:
        """Everything arrives."""
        while subprocess.run(["ip", "rule", "del", "pref", _PARTED], capture_output=True, check=False).returncode == 0:
            pass

    def slow(self, megabits: float) -> None:
        """All nodes and clients together get so many megabits in a second."""
        limits = f"rate {megabits}mbit burst 128kb latency 1s"
        _run("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", *limits.split())

    def hurry(self) -> None:
        """As much as the machine can do."""
        _run("tc", "qdisc", "del", "dev", "lo", "root")


@cache
def is_possible() -> bool:
    """Whether this user may make such a network here."""
    if not all(map(shutil.which, ("unshare", "ip", "tc"))):
        return False
    return subprocess.run([*_UNSHARE, "sh", "-c", _TRIAL], capture_output=True, check=False).returncode == 0


def inside(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command and environment of `python -m tests.faults` with these arguments in a network of its own."""
    return [*_UNSHARE, sys.executable, "-m", "tests.faults", *arguments], {**os.environ, _INSIDE: "1"}


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, text=True)
