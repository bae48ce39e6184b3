"""`python -m tests.faults --seed 7 --faults 20`: faults against a cluster of real processes, and what clients saw.

The same seed gives the same faults in the same order; what happens in between is up to the machine.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from rich.console import Console

from tests.faults.menu import FAULTS, NEED_NAMESPACE
from tests.faults.namespace import Namespace, inside, is_possible
from tests.faults.run import Plan, play
from tests.faults.timeline import show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides which faults happen, to whom and for how long")
    parser.add_argument("--faults", type=int, default=5, help="how many")
    parser.add_argument(
        "--mode", choices=("sync", "flush"), default="sync", help="SYNC_MASTER, or ASYNC_MASTER with SYNC_FLUSH"
    )
    parser.add_argument("--only", default="", help=f"these faults, separated by commas: {', '.join(FAULTS)}")
    parser.add_argument(
        "--namespace", action="store_true", help="in a network namespace, with faults of the kernel's network as well"
    )
    parser.add_argument("--log", action="store_true", help="show what clients log, and the last sends that failed")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.WARNING if arguments.log else logging.CRITICAL, format="%(name)s: %(message)s", stream=sys.stdout
    )
    names = tuple(name for name in arguments.only.split(",") if name)
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        parser.error(f"there is no fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
    has_network = Namespace().is_there
    if arguments.namespace and not has_network:
        if not is_possible():
            parser.error("--namespace needs unshare, ip and tc, and a kernel that lets you make network namespaces")
        command, environment = inside(sys.argv[1:])
        os.execvpe(command[0], command, environment)
    missing = sorted(NEED_NAMESPACE & set(names))
    if missing and not has_network:
        parser.error(f"{missing[0]} needs --namespace")
    plan = Plan(
        seed=arguments.seed,
        faults=len(names) or arguments.faults,
        mode=arguments.mode,
        names=names,
        in_namespace=has_network,
    )
    outcome = play(plan)
    show(outcome, Console(width=None if sys.stdout.isatty() else 150), in_detail=arguments.log)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
